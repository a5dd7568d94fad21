package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

const (
	// quiet is how long a gateway may be without a sign of life before it counts as not served. A dispatcher
	// gives one about once a second.
	quiet = 15 * time.Second
	// soon is the longest wait for room in the limits, or between two slots, that is normal pacing.
	soon = 2 * time.Second
)

// WaitOf returns why a job isn't in flight now, and its remaining wait.
func WaitOf(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (Wait, error) {
	w := Wait{In: -1}
	why, err := w.whyNot(ctx, c, g, r)
	w.Why = why
	return w, err
}

func (w *Wait) whyNot(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	switch r.State {
	case job.Done:
		return "done since " + job.Moment(r.Finished), nil
	case job.Discarded:
		return fmt.Sprintf("discarded since %s: its payload and what the gateway said of it are deleted", job.Moment(r.Finished)), nil
	case job.Parked:
		return whyParked(ctx, c, g, r)
	case job.InFlight:
		return whyInFlight(ctx, c, g, r)
	}
	v, err := Look(ctx, c, g)
	if err != nil {
		return "", err
	}
	stopped, err := stopped(ctx, c, g, r, v)
	if err != nil {
		return "", err
	}
	switch r.State {
	case job.Scheduled:
		return also("scheduled for "+job.Moment(r.Job.At), stopped), nil
	case job.Pending:
		return also(whyPending(r), stopped), nil
	case job.Retrying:
		if v.Hold.Circuit {
			return "waiting until the gateway answers again, jobs that were not called yet try it first: " + v.Hold.Reason, nil
		}
		return also(fmt.Sprintf("waiting out a back-off until %s, with %d attempts of %d spent", job.Moment(r.Due), r.Spent, g.Retry.Attempts), stopped), nil
	}
	return w.whyQueued(ctx, c, g, r, v, stopped)
}

// whyPending says what the last look-up of a pending job found, and when the next is due.
func whyPending(r job.Record) string {
	why := "the gateway is asked what became of its call"
	if r.Taken {
		why = "the gateway has accepted it, and is asked what became of it"
	}
	why += ": the next look-up is due at " + job.Moment(r.NextLook)
	switch r.Looks {
	case 0:
	case 1:
		why += "; 1 was made"
	default:
		why += fmt.Sprintf("; %d were made", r.Looks)
	}
	if r.LastSeen != "" {
		why += "; the last one saw: " + r.LastSeen
	}
	return why
}

// also adds what would hold the job back even if its time had come.
func also(why, stopped string) string {
	if stopped == "" {
		return why
	}
	return why + "; " + stopped
}

// stopped says why the job would not be called even in its turn; empty if it would.
func stopped(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, v Glance) (string, error) {
	switch h := v.Hold; {
	case v.Stopped != "":
		return v.Stopped, nil
	case h.HeldUntil.After(v.Now):
		return fmt.Sprintf("the gateway is held until %s: %s", job.Moment(h.HeldUntil), h.Reason), nil
	case h.Probing:
		return "the gateway was held, one call goes ahead to see whether it is over: " + h.Reason, nil
	}
	if r.Job.Batch != "" {
		batch, _, err := Books(c, g).Batch(ctx, r.Job.Batch)
		if err != nil {
			return "", err
		}
		if !batch.Paused.IsZero() {
			return fmt.Sprintf("its batch %s is paused since %s: %s", r.Job.Batch, job.Moment(batch.Paused), batch.Why), nil
		}
	}
	return stoppedAlone(ctx, c, g, r, v.Now)
}

func (w *Wait) whyQueued(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, v Glance, why string) (string, error) {
	ahead, known, err := Books(c, g).Ahead(ctx, r)
	if err != nil {
		return "", err
	}
	if why == "" && !known {
		return "a worker has pulled it, and its call begins at its slot", nil
	}
	if why == "" && ahead.InLane {
		*w, err = laneWait(ctx, c, g, r, v, ahead)
		return w.Why, err
	}
	if why == "" {
		if why, err = whyNoSlot(ctx, c, g, r, v); err != nil {
			return "", err
		}
	}
	if !known {
		return why, nil
	}
	return why + ", " + behind(ahead.Jobs, ahead.AtLeast), nil
}

// whyNoSlot says which limit the next slot waits for, unless that is normal pacing.
func whyNoSlot(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, v Glance) (string, error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), unmeasured)
	if err != nil {
		return "", err
	}
	defer p.Close(ctx)
	room, err := p.Room(ctx, r.Job.Cost)
	long := room.In > soon || room.Gap > soon
	switch {
	case err != nil:
		return "", err
	case long && room.Limit.N > 0:
		return whyUsedUp(ctx, p, room)
	case long:
		return fmt.Sprintf("no call before %s, as calls made before Redis lost its memory, or before the limits changed, still count", job.Moment(room.At)), nil
	case room.Full:
		return fmt.Sprintf("the cap on calls in flight is reached (max_in_flight %d)", g.Leak.MaxInFlight), nil
	}
	return "waiting for a slot", nil
}

// whyUsedUp says until when a limit is used up, and how much of it a loss has charged.
func whyUsedUp(ctx context.Context, p *bucket.Pacer, room bucket.Room) (string, error) {
	why := fmt.Sprintf("the limit %s is used up until %s", room.Limit, job.Moment(room.At))
	charged, err := p.Charged(ctx)
	for _, c := range charged {
		if c.Limit == room.Limit {
			why += fmt.Sprintf(" (%d of it are calls that Redis may have lost: dispatcher limit forgive)", c.Units)
		}
	}
	return why, err
}

func behind(n int64, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("behind more than %d others", n)
	case n == 0:
		return "next in the queue"
	case n == 1:
		return "behind 1 other"
	}
	return fmt.Sprintf("behind %d others", n)
}

func whyParked(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	why := fmt.Sprintf("%s since %s", r.Reason.As(), job.Moment(r.ParkedAt))
	if r.Reason == job.Paused || r.Reason == job.AwaitsApproval {
		batch, _, err := Books(c, g).Batch(ctx, r.Job.Batch)
		return fmt.Sprintf("%s: %s; %s", why, r.Error, GoOn(r.Job.Batch, batch)), err
	}
	if r.Reason != job.Rejected || g.Replay != config.ReplayAuto {
		return why + `: see "dispatcher dlq show ` + ShellWord(r.Job.ID) + `"`, nil
	}
	ahead, known, err := Books(c, g).Ahead(ctx, r)
	if err != nil || !known {
		return why, err
	}
	if ahead.Jobs == 0 {
		return why + ": it goes in by itself when there is room, as the next one", nil
	}
	return why + ": it goes in by itself when there is room, " + behind(ahead.Jobs, false), nil
}

// ResumeBatch says, for a person, how to admit the jobs of a paused batch again.
func ResumeBatch(name string) string {
	return fmt.Sprintf("\"dispatcher batch resume %s --why TEXT\" takes its jobs in again", ShellWord(name))
}

// GoOn says, for a person, how to continue a batch that is paused, or whose jobs wait for its first ones.
func GoOn(name string, b record.Batch) string {
	word := ShellWord(name)
	switch {
	case b.Paused.IsZero() && !b.Awaits.Since.IsZero():
		return fmt.Sprintf("somebody who did not bring it in approves it with \"dispatcher batch approve %s --why TEXT --server URL\", or gives it up with \"batch reject\"", word)
	case b.Braked:
		return fmt.Sprintf("see \"dispatcher dlq list --batch %s\"; mend the jobs with \"enqueue --replace\", then \"dispatcher batch resume %s --why TEXT\"; "+
			"or give the batch up with \"dispatcher batch cancel %s --why TEXT\"", word, word, word)
	case b.Canary.Waits:
		return fmt.Sprintf("the rest goes in by itself then; \"dispatcher batch resume %s --why TEXT\" takes it in now", word)
	}
	return ResumeBatch(name)
}

// ShellWord quotes a text as one word for a shell.
func ShellWord(text string) string {
	if strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("-_.:/@%+=,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0 && text != "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// whyInFlight says who is calling the job, and since when. The owner is host.pid.rest, as newOwner makes it.
func whyInFlight(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	v, err := c.HMGet(ctx, redisdb.NewKeys(g.Name).Job(r.Job.ID), record.Short("owner"), record.Short("opened_at")).Result()
	if err != nil {
		return "", err
	}
	owner, _ := v[0].(string)
	opened, _ := v[1].(string)
	why := "in flight"
	if us, err := strconv.ParseInt(opened, 10, 64); err == nil {
		why += " since " + job.Moment(time.UnixMicro(us))
	}
	if host, pid, ok := process(owner); ok {
		why += fmt.Sprintf(" by process %s on %s", pid, host)
	}
	if r.Deadline.IsZero() {
		return why, nil
	}
	return why + fmt.Sprintf("; other workers leave it alone until %s", job.Moment(r.Deadline)), nil
}

// process parses host and process id from an owner; a host's name may contain dots.
func process(owner string) (host, pid string, ok bool) {
	parts := strings.Split(owner, ".")
	for i := len(parts) - 2; i > 0; i-- {
		if _, err := strconv.Atoi(parts[i]); err == nil {
			return strings.Join(parts[:i], "."), parts[i], true
		}
	}
	return "", "", false
}

// alone describes a route or a lane with a hold or a cap on calls in flight of its own.
type alone struct {
	words  string
	hold   bucket.Standing
	flying int64
	most   int64 // most calls in flight; 0 = any number
	at     string
}

// scopesOf returns the route and the lane of a job, if the gateway tracks them individually.
func scopesOf(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) ([]alone, error) {
	p := pacing(g, Limits{Limits: g.Leak.Limits})
	if !p.Laned() {
		return nil, nil
	}
	route, lane := alone{words: "the gateway's own request", at: "routes.max_in_flight"}, alone{words: "the jobs without a lane", at: "lanes.max_in_flight"}
	if r.Job.Route != "" {
		route.words = "the route " + r.Job.Route
	}
	if r.Job.Lane != "" {
		lane.words = "the lane " + r.Job.Lane
	}
	for _, own := range p.Routes {
		if own.Name == r.Job.Route {
			route.most = own.MaxInFlight
		}
	}
	if p.Lanes != nil {
		lane.most = p.Lanes.MaxInFlight
	}
	of := job.Flow{Route: r.Job.Route, Lane: r.Job.Lane}
	own, err := bucket.Overridden(ctx, c, g.Name, redisdb.OfLane, r.Job.Lane)
	if err == nil && own.MaxInFlight != nil && p.Lanes != nil {
		lane.most, lane.at = *own.MaxInFlight, "set live:"
	}
	if route.hold, lane.hold, err = bucket.LookIn(ctx, c, g.Name, of); err != nil {
		return nil, err
	}
	if route.most > 0 || lane.most > 0 {
		route.flying, lane.flying, err = bucket.FlyingIn(ctx, c, g.Name, of)
	}
	return []alone{route, lane}, err
}

// stoppedAlone says why a job's route or lane would not be called even in its turn; empty if it would.
func stoppedAlone(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, now time.Time) (string, error) {
	all, err := scopesOf(ctx, c, g, r)
	for _, a := range all {
		switch h := a.hold; {
		case h.HeldUntil.After(now):
			return fmt.Sprintf("%s is held until %s: %s; others go on", a.words, job.Moment(h.HeldUntil), h.Reason), err
		case h.Probing:
			return fmt.Sprintf("%s was held, one call of it goes ahead to see whether it is over: %s", a.words, h.Reason), err
		}
	}
	return "", err
}

// whyNoPlace says whose calls in flight a job waits for; empty if none.
func whyNoPlace(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	all, err := scopesOf(ctx, c, g, r)
	for _, a := range all {
		if a.most > 0 && a.flying >= a.most {
			return fmt.Sprintf("the cap on calls in flight of %s is reached (%s %d)", a.words, a.at, a.most), err
		}
	}
	return "", err
}
