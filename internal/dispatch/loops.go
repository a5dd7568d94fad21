package dispatch

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
)

const (
	pulseEvery   = 400 * time.Millisecond // time between two pulses, which read all gateways in one round trip; idle ones are in every other pulse
	manyUnits    = 500                    // above this number of gateways, a pulse reads only some,
	fewEvery     = 100 * time.Millisecond // at this interval,
	fewLeast     = 100                    // at least this many: a read takes Redis some 50 µs, during which calls wait,
	fewPart      = 20                     // and at least this part of all: each gateway is read within fewPart × fewEvery, or else a lease would seem stalled
	askSoon      = 2 * time.Second        // a gateway with a look-up due this soon is not idle
	tellEvery    = 2 * time.Second        // how often Redis is told that this process is too slow
	sweepAtLeast = 30 * time.Second
	loopBackoff  = time.Second // after an error
)

// pulse reads the state of all gateways until ctx ends, and starts the work that is due. An idle gateway costs
// one script every other pulse; if all are idle, every other pulse is skipped.
func (d *Dispatcher) pulse(ctx context.Context) {
	d.round.begin(time.Now())
	for next := pulseEvery; await(ctx, next); next = d.pause() {
		if err := d.pulseOnce(ctx); err != nil && ctx.Err() == nil {
			d.p.Log.Warn("gateways not looked at, trying again", "error", err)
			await(ctx, loopBackoff)
		}
	}
}

// pause returns the time from one pulse to the next.
func (d *Dispatcher) pause() time.Duration {
	switch {
	case len(d.units()) > manyUnits:
		return fewEvery
	case d.idle():
		return 2 * pulseEvery
	}
	return pulseEvery
}

// between returns the time between two reads of a gateway that has jobs. Reads take time too, so it is at least as long
// as a round takes now.
func (d *Dispatcher) between() time.Duration {
	planned := 2 * pulseEvery
	if n := len(d.units()); n > manyUnits {
		planned = time.Duration((n+few(n)-1)/few(n)) * fewEvery
	}
	return max(planned, time.Duration(d.round.micros(time.Now()))*time.Microsecond)
}

// few returns how many of n gateways one pulse reads, if they are many.
func few(n int) int { return max(fewLeast, (n+fewPart-1)/fewPart) }

// overloaded returns what the next pulse must tell Redis if this process is too slow for its gateways' limits.
// It also logs that, from time to time.
func (d *Dispatcher) overloaded() (s ledger.Slow) {
	now := time.Now()
	slots, is := d.tooSlow(now)
	if !is {
		d.over = overload{}
		return s
	}
	if d.over.since.IsZero() {
		d.over.since = now
	}
	if now.Sub(d.over.reported) > tellEvery && d.from == 0 {
		d.over.reported, d.over.telling = now, len(d.units())
	}
	if d.over.telling > 0 { // all gateways, some at a time if they are many
		s = ledger.Slow{Process: processName(), For: now.Sub(d.over.since), Slots: slots}
	}
	if now.Sub(d.overSaid) > complainEvery {
		d.overSaid = now
		d.p.Log.Warn("this process is too slow for its gateways' limits: it calls as fast as it can, and takes no more slots than it can use",
			"slots_in_hand_at_most", slots, "hint", "run dispatchers on more machines, or give this one and Redis more processors")
	}
	return s
}

// overload is since when this process is too slow, and when Redis was last told; zero if it is not.
type overload struct {
	since, reported time.Time
	telling         int // number of gateways still to be told since then
}

// pulseOnce reads the gateways once. A fault of a single gateway is logged and does not affect the others.
func (d *Dispatcher) pulseOnce(ctx context.Context) error {
	slow, units := d.overloaded(), d.turn()
	d.over.telling -= len(units)
	err := d.look(ctx, d.well(units), slow)
	if err == nil && d.from == 0 {
		d.round.end(time.Now())
	}
	return err
}

// lookAtAll reads all gateways, whether or not it is their turn.
func (d *Dispatcher) lookAtAll(ctx context.Context) error {
	well := d.well(d.units())
	if err := d.look(ctx, well, ledger.Slow{}); err != nil {
		return err
	}
	for _, u := range well {
		if u.blind != nil && !u.ails(ctx, u.blind) {
			return u.blind
		}
	}
	return nil
}

// well returns those of the gateways that are served, or will be.
func (d *Dispatcher) well(units []*unit) []*unit {
	return slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return u.ailing.Load() })
}

func (d *Dispatcher) look(ctx context.Context, units []*unit, slow ledger.Slow) error {
	books, next := make([]*ledger.Books, len(units)), d.between()
	for i, u := range units {
		books[i] = u.now().books
	}
	pulses, err := ledger.Pulses(ctx, d.p.DB.Client, books, slow)
	if err != nil {
		return err
	}
	for i, u := range units {
		if pulses[i].Err != nil {
			u.unfelt(ctx, pulses[i].Err)
			continue
		}
		err = cmp.Or(err, u.feel(ctx, pulses[i], next))
	}
	return err
}

// unfelt handles a failed pulse of one gateway: damage there concerns no other.
func (u *unit) unfelt(ctx context.Context, err error) {
	u.idle, u.blind = true, err
	u.sayBroken(ctx, "gateway not looked at, trying again", err)
}

// sayBroken logs, from time to time, what keeps this gateway alone from being served.
func (u *unit) sayBroken(ctx context.Context, what string, err error) {
	if err != nil && time.Since(u.damaged) > complainEvery {
		u.damaged = time.Now()
		u.complain(ctx, what, err)
	}
}

// turn returns the gateways to read: idle ones are due every other time, all together, or always if no others
// exist. With many gateways, it returns the next ones and those that a message was about. An idle gateway is
// woken by a message when it gets work.
func (d *Dispatcher) turn() []*unit {
	if all := d.units(); len(all) > manyUnits {
		from := d.from
		if from >= len(all) { // there were more before the reload
			from = 0
		}
		upto := min(from+few(len(all)), len(all))
		d.from = upto % len(all)
		turn := slices.Clone(all[from:upto])
		for i, u := range all {
			if u.woken.Swap(false) && (i < from || i >= upto) {
				turn = append(turn, u)
			}
		}
		return turn
	}
	d.from = 0
	if d.turns++; d.turns%2 == 0 || d.idle() {
		return d.units()
	}
	var units []*unit
	for _, u := range d.units() {
		if !u.ailing.Load() && !u.idle {
			units = append(units, u)
		}
	}
	return units
}

// idle reports whether the last pulse of every gateway found nothing to do.
func (d *Dispatcher) idle() bool {
	return !slices.ContainsFunc(d.units(), func(u *unit) bool { return !u.ailing.Load() && !u.idle })
}

// feel starts the work that a pulse found, including what is due before the next pulse. It returns an error if
// Redis was unreachable when the limits in force were requested.
func (u *unit) feel(ctx context.Context, p ledger.Pulse, next time.Duration) error {
	u.blind = nil
	u.sayBroken(ctx, "no slots, trying again", u.pacer.Broken())
	u.age(ctx, p.Alive)
	if err := u.now().books.TellCounted(ctx); err != nil {
		u.log.Warn("what this process has called not told to Redis, trying again", "error", err)
	}
	u.idle = p.Pending == 0 && p.Rejected == 0 && p.DueIn < 0 && (p.AskIn < 0 || p.AskIn > askSoon) && !p.Sweep && !p.Shelve
	if p.Pending > 0 {
		u.pacer.Wake()
		u.tendFeedIfDue()
	}
	if p.DueIn >= 0 && p.DueIn < next {
		u.mover.nudge()
	}
	if p.AskIn >= 0 && p.AskIn < next || p.AskIn >= 0 && u.now().asks == nil {
		u.asker.nudge()
	}
	if p.Rejected > 0 {
		u.replayer.nudge()
	}
	if p.Shelve {
		u.shelver.nudge()
	}
	// Processes take turns at random, and none skips two sweeps in a row.
	if u.passed = p.Sweep && !u.passed && rand.N(2) == 0; p.Sweep && !u.passed {
		u.sweeper.nudge()
	}
	if err := u.pacer.Watch(ctx); err != nil {
		u.complain(ctx, "the circuit's state not read, trying again", err)
	}
	for _, l := range u.pacer.Losses() {
		u.log.Warn("Redis may not know all calls that were made: one window of the shortest limit passes, and each longer one is charged with what may be missing",
			"charged_at_most", l.Charged, "why", l.Why)
	}
	if !u.stale() && p.Limits == u.limits.Load() {
		return nil
	}
	return u.follow(ctx, p.Limits)
}

// staleLong is how long Redis may refuse this process's limits as too old before that is logged. Usually a
// pulse or two fixes it.
const staleLong = 2 * time.Second

// stale reports whether the pacer has seen newer limits than this process has.
func (u *unit) stale() bool {
	is, since := u.pacer.Stale()
	if since > staleLong && time.Since(u.outdated) > complainEvery {
		u.outdated = time.Now()
		u.log.Warn("no slots: the pacer has seen a newer version of the limits, and they could not be taken over", "for", since.Round(time.Second),
			"hint", "set them again: dispatcher limit set, or limit reset")
	}
	return is
}

// follow applies limits that were set at run time. If it can't, the old ones stay, and it logs that once for
// each version. An unreachable Redis is an error.
func (u *unit) follow(ctx context.Context, version int64) error {
	err := u.adopt(ctx)
	if redisdb.Away(err) {
		return err
	}
	if err != nil && u.refused != version {
		u.complain(ctx, "limits set live not taken over, the old ones stay", err)
		u.refused = version
	}
	return nil
}

// move moves due retries and scheduled jobs into the queue.
func (u *unit) move(ctx context.Context) time.Duration {
	_, next, err := u.now().books.MoveDue(ctx)
	if err != nil {
		u.complain(ctx, "due jobs not moved, trying again", err)
		return loopBackoff
	}
	return next
}

// sweep recovers what dead workers left, and foreign tasks that asynq put aside. It runs when a pulse reports
// that there may be some, and from time to time.
func (u *unit) sweep(ctx context.Context) time.Duration {
	swept, err := u.now().books.Sweep(ctx)
	if err != nil {
		u.complain(ctx, "sweep failed, trying again", err)
	}
	if swept != (ledger.Swept{}) {
		u.log.Warn("took up what a dead or stalled worker left", "calls_cut_off", swept.Reclaimed,
			"put_back", swept.Requeued, "old_tasks_removed", swept.Removed)
	}
	if err := u.parkStrays(ctx); err != nil {
		u.complain(ctx, "stray tasks not parked, trying again", err)
	}
	u.seal(ctx)
	return sweepAtLeast
}

// headEvery is how often the head of the audit chain is logged, if there is one. With such a line, later
// changes to the entries before it can be detected.
const headEvery = time.Hour

// seal chains the audit entries that scripts have written, and logs the head of the chain from time to time.
func (u *unit) seal(ctx context.Context) {
	head, err := Store(u.redis, u.now().cfg).Seal(ctx)
	if err != nil {
		u.complain(ctx, "trail not chained, trying again", err)
		return
	}
	if head.Links > 0 && time.Since(u.headSaid) >= headEvery {
		u.headSaid = time.Now()
		u.log.Info("head of the trail", "links", head.Links, "entries", head.Entries, "hash", head.Hash)
	}
}

// parkStrays parks foreign tasks that asynq will never deliver.
func (u *unit) parkStrays(ctx context.Context) error {
	strays, err := queue.Strays(ctx, u.redis, u.name)
	if err != nil {
		return err
	}
	for _, s := range strays {
		if err := cmp.Or(u.now().worker.Handle(ctx, job.Delivery{TaskID: s.TaskID, Payload: s.Payload, Foreign: true}), ctx.Err()); err != nil {
			return err // it is unknown whether it is parked
		}
		if err := queue.Drop(ctx, u.redis, u.name, s.TaskID); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		u.log.Warn(what, "error", err)
	}
}

// await waits for d or the end of ctx, and reports whether to continue.
func await(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
