package bucket

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/job"
)

const (
	strayed = 3_000_000 // a slot reserved this long ago, in µs, no longer counts as in hand, whatever has become of its job
	regain  = 0.25      // how much of the reduction by one late job is undone by one that is ready in time
)

// congestion bounds how many slots this process has in hand: those that are reserved and whose jobs are not yet
// ready to be called. On a machine that is too busy, slots pass before their jobs are ready. Each of them still
// costs the work of a pull and of putting the job back, and that work makes the next ones pass too. So each
// slot that passes lowers the bound by one, and each whose job is ready in time while more slots were wanted
// raises it by a quarter. If one of five passes, the bound stays.
type congestion struct {
	mu    sync.Mutex
	hand  map[int64]inHand // by slot number
	less  float64          // how far the bound is below the plan's
	all   *Burden          // of the process
	freed chan struct{}
}

// inHand is what is known of one slot.
type inHand struct {
	since int64 // local µs
	short bool  // more slots were wanted with it, and there was no room
}

func newCongestion() congestion {
	return congestion{hand: map[int64]inHand{}, freed: make(chan struct{})}
}

// start records that a slot is in hand from local time now, in µs. short means that more slots were wanted with
// it, and there was no room.
func (c *congestion) start(s job.Slot, now int64, short bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hand[s.Number] = inHand{now, short}
	c.all.add(1)
}

// inTime records that a slot's job was ready to be called when the slot came, or not too late after it. What
// follows, such as the way to the gateway, gets no shorter with fewer slots.
func (c *congestion) inTime(s job.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.end(s); ok && h.short {
		c.less = max(c.less-regain, 0)
	}
}

// unused records that a slot is given back. most is the plan's bound.
func (c *congestion) unused(s job.Slot, passed bool, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.end(s); ok && passed {
		c.less = min(c.less+1, float64(most-1))
	}
}

// end removes a slot from those in hand. The caller holds mu.
func (c *congestion) end(s job.Slot) (h inHand, ok bool) {
	if h, ok = c.hand[s.Number]; ok {
		delete(c.hand, s.Number)
		c.all.add(-1)
		close(c.freed)
		c.freed = make(chan struct{})
	}
	return h, ok
}

// close removes all slots from those in hand: no more are asked for.
func (c *congestion) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.add(-int64(len(c.hand)))
	clear(c.hand)
}

// room returns how many slots this process may reserve at local time now, in µs, and a channel that is closed
// when a slot is no longer in hand. most is the plan's bound, least the lowest one.
func (c *congestion) room(now, least, most int64) (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.hand)
	maps.DeleteFunc(c.hand, func(_ int64, h inHand) bool { return now > h.since+strayed })
	c.all.add(int64(len(c.hand) - before))
	c.less = min(c.less, float64(most-1)) // the limit may have been higher
	if c.less == 0 {
		return job.MaxCount, c.freed
	}
	return max(most-int64(c.less), min(least, most)) - int64(len(c.hand)), c.freed
}

// room waits until this process may reserve a slot, and returns how many, at the most. The lowest bound is one
// slot plus those that come during one answer of Redis: these are in hand however far away Redis is, and a
// lower number would not bring it nearer.
func (p *Pacer) room(ctx context.Context) (int64, error) {
	for {
		now, pl := p.clock.Now(), p.plan.Load()
		n, freed := p.congestion.room(p.local(now), 1+p.distance.is()/max(pl.spacing, 1), pl.inHand)
		if n > 0 {
			return n, nil
		}
		if err := p.sleep(ctx, time.Second, freed); err != nil {
			return 0, err
		}
	}
}

const (
	burdenLeast  = 16                     // slots in hand that even a process that is too slow may have
	burdenFirst  = 64                     // the bound at the start; it doubles as it is used until something is late
	burdenSteps  = 4                      // the bound rises by this while all the slots it allows are used
	burdenCut    = 0.8                    // the bound falls to this part when one of burdenMany jobs is late, or one of burdenFew slots has passed
	burdenLost   = 0.5                    // and to this part when one of burdenMany slots has passed
	burdenMany   = 8                      // a single late job may come from a neighbour, or a pause of the garbage collector
	burdenFew    = 128                    // work on a slot that passes is wasted
	burdenEvery  = 100 * time.Millisecond // how often the bound is judged
	burdenJobs   = 16                     // and by how many jobs at least
	burdenLate   = 8                      // a job is late that is ready after this part of the time from its slot to the last useful moment,
	burdenTrips  = 4                      // and after this many answers of Redis: the slots come with one, and a job is pulled and claimed by two
	burdenRecent = 10 * time.Second       // a process that had to wait within this time is overloaded
	burdenWait   = 10 * time.Second       // if no turn came for this long, the count of slots in hand includes those of a gateway that no longer asks
)

// Burden bounds how many slots a process has in hand over all of its gateways: those that are reserved and
// whose jobs are not yet ready to be called. With hundreds of gateways, each may manage with one slot and all
// together still be more than the process can do. Then jobs are ready late, slots pass, and giving them back is
// work too. So the bound follows the delay and not only the slots that are lost. When one of eight jobs is
// ready long after its slot, or one of 128 slots has passed, the bound falls by a fifth; when one of eight has
// passed, it is halved. Jobs that are ready in time raise it again while others wait.
//
// Those who wait for slots get them in order. If no turn has come for ten seconds, each that waited so long
// gets one slot. A nil Burden bounds nothing.
type Burden struct {
	mu       sync.Mutex
	bound    float64
	hand     int64 // slots in hand
	asked    int64 // slots being asked for
	waiting  []*turn
	seen     tally
	cut      time.Time // when the bound last fell; zero: nothing was late yet
	held     time.Time // when a caller last had to wait
	moved    time.Time // when a turn last came
	wait     time.Duration
	distance distance // distance to Redis, for all gateways
	shown    prometheus.Gauge
}

// NewBurden returns the burden of a process and registers its bound as a metric.
func NewBurden(reg prometheus.Registerer) *Burden {
	b := &Burden{bound: burdenFirst, wait: burdenWait, distance: distance{careful: true}, shown: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_slots_in_hand_bound",
		Help: "How many slots this process may have in hand, over all its gateways, as it is too slow for more. 0 while it is not."})}
	if reg != nil {
		reg.MustRegister(b.shown)
	}
	return b
}

// Overloaded reports whether the process has lately made calls wait because it is too slow for them, and how
// many slots it may have in hand.
func (b *Burden) Overloaded(now time.Time) (slots int64, is bool) {
	if b == nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.bound), !b.cut.IsZero() && now.Sub(b.held) < burdenRecent
}

// answered records that an answer of Redis has come now, after took µs.
func (b *Burden) answered(took int64, now time.Time) {
	if b != nil {
		b.distance.add(took, now)
	}
}

// enter waits until slots may be asked for, and returns how many, at most want.
func (b *Burden) enter(ctx context.Context, closed <-chan struct{}, want int64) (int64, error) {
	if b == nil {
		return want, nil
	}
	n, mine := b.some(want)
	if n > 0 {
		return n, nil
	}
	limit := time.NewTimer(b.wait)
	defer limit.Stop()
	for {
		select {
		case <-mine.come:
			return mine.gets, nil
		case <-limit.C:
			if left := b.moves(); left > 0 {
				limit.Reset(left)
				continue
			}
			b.give(mine)
			b.leave(-1)
			return 1, nil
		case <-ctx.Done():
			b.give(mine)
			return 0, ctx.Err()
		case <-closed:
			b.give(mine)
			return 0, ErrClosed
		}
	}
}

// moves returns how much longer the waiting callers are assumed to get their turn.
func (b *Burden) moves() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait - time.Since(b.moved)
}

// tally counts the jobs that became ready since the bound was last judged.
type tally struct {
	jobs, late, lost int64 // lost: their slots had passed; late: includes those
	since            time.Time
}

// part returns the factor by which the bound changes.
func (t tally) part() float64 {
	switch {
	case t.lost*burdenMany >= t.jobs:
		return burdenLost
	case t.late*burdenMany >= t.jobs, t.lost*burdenFew >= t.jobs:
		return burdenCut
	}
	return 1
}

// turn is a caller that waits for slots.
type turn struct {
	want int64
	gets int64         // counted as asked for once it has come
	come chan struct{} // closed when the turn has come
}

// some returns how many slots may be asked for at once, or a turn to wait for: a caller does not overtake those
// that wait.
func (b *Burden) some(want int64) (n int64, mine *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = min(want, b.room()); n > 0 && len(b.waiting) == 0 {
		b.asked += n
		b.moved = time.Now()
		return n, nil
	}
	mine = &turn{want: want, come: make(chan struct{})}
	b.waiting, b.held = append(b.waiting, mine), time.Now()
	return 0, mine
}

// give is for a caller that stops waiting. Slots that came meanwhile go to the next.
func (b *Burden) give(mine *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, mine); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	b.asked -= mine.gets
	b.wake()
}

// room is how many more slots may be asked for. The caller holds mu.
func (b *Burden) room() int64 { return int64(b.bound) - b.hand - b.asked }

// leave records that n slots are no longer asked for: those that came are in hand.
func (b *Burden) leave(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked -= n
	b.wake()
}

// add changes the number of slots in hand by n.
func (b *Burden) add(n int64) {
	if b == nil || n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hand += n
	b.wake()
}

// wake gives turns to those that there is room for, in order, with no more slots each than leaves some for the
// others. The caller holds mu.
func (b *Burden) wake() {
	for room := b.room(); len(b.waiting) > 0 && room > 0; room = b.room() {
		next := b.waiting[0]
		next.gets = min(next.want, max(room/int64(len(b.waiting)), 1))
		b.asked += next.gets
		b.waiting, b.moved = b.waiting[1:], time.Now()
		close(next.come)
	}
}

// ready records how long after its slot a job was ready, and until how long after it the slot was of use, in
// µs. A slot that passed was ready too late. When Redis is far away, its answers alone make jobs late, and
// fewer slots would not help.
func (b *Burden) ready(late, most int64) {
	if b == nil {
		return
	}
	trips := burdenTrips * b.distance.is()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.jobs++
	if late > most/burdenLate+trips {
		b.seen.late++
		if late >= most {
			b.seen.lost++
		}
	} else if len(b.waiting) > 0 {
		if b.cut.IsZero() || trips > most/burdenLate {
			b.bound++
		} else {
			b.bound += burdenSteps / b.bound
		}
		b.wake()
	}
	if now := time.Now(); b.seen.jobs >= burdenJobs && now.Sub(b.seen.since) >= burdenEvery {
		b.judge(now)
	}
}

// judge adapts the bound to the tally and starts a new one. The caller holds mu.
func (b *Burden) judge(now time.Time) {
	if part := b.seen.part(); part < 1 {
		b.cut = now
		b.bound = min(b.bound, max(float64(b.hand), burdenFirst))
		b.bound = max(b.bound*part, burdenLeast)
	}
	b.seen = tally{since: now}
	if !b.cut.IsZero() {
		b.shown.Set(b.bound)
	}
}
