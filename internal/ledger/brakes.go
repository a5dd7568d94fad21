package ledger

import (
	"context"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// TellCounted tells Redis what this process has opened, in case Redis has lost it. It costs nothing for a
// gateway whose money is not counted. A process without brakes in its own configuration tells as well.
func (b *Books) TellCounted(ctx context.Context) error {
	c, now := b.cfg.Counted, b.micros()
	c.mu.Lock()
	c.recall(now)
	seen, process, longest := c.text(), c.process, c.lead
	c.mu.Unlock()
	if seen == "" {
		return nil
	}
	err := record.TellCounted.Run(ctx, b.c, []string{b.keys.Brakes()}, b.cfg.NowMicros.Now(), process, seen, longest.Microseconds()).Err()
	if err == nil {
		c.mu.Lock()
		c.agreed = max(c.agreed, now)
		c.mu.Unlock()
	}
	return err
}

// BrakeWindow is the state of one money limit.
type BrakeWindow struct {
	Limit job.MoneyLimit
	// Called is the money that counts in the window now, in minor units.
	Called int64
	// Unknown is until when the money called is unknown, because Redis lost it; zero if it is known.
	Unknown time.Time
}

// BrakeStanding is the state of a gateway's brakes, all read at one moment.
type BrakeStanding struct {
	Now     time.Time
	Windows []BrakeWindow // in configured order
	// Lifted is until when no limit stops a call; zero if the limits apply. LiftedBy, LiftedAt and LiftedWhy
	// say who did it, when and why.
	Lifted, LiftedAt    time.Time
	LiftedBy, LiftedWhy string
	// Waits is since when a job waits for room, and WaitsUntil is when there is room at the latest; both are
	// zero if none waits. Why names the brake.
	Waits, WaitsUntil time.Time
	Why               string
}

// Brakes returns the state of the gateway's brakes.
func (b *Books) Brakes(ctx context.Context) (BrakeStanding, error) {
	v, err := record.LookBrakes.Run(ctx, b.c, []string{b.keys.Brakes(), b.keys.Hold()}, b.cfg.NowMicros.Now(), b.brakes).Slice()
	if err != nil {
		return BrakeStanding{}, err
	}
	ok := len(v) == 8+2*len(b.cfg.Brakes.Limits)
	number := func(i int) int64 { n, is := at[int64](v, i); ok = ok && is; return n }
	moment := func(i int) time.Time {
		if us := number(i); us > 0 {
			return record.Moment(us)
		}
		return time.Time{}
	}
	text := func(i int) string { s, is := at[string](v, i); ok = ok && is; return s }
	s := BrakeStanding{Now: moment(0), Lifted: moment(1), LiftedAt: moment(2), LiftedBy: text(3), LiftedWhy: text(4), Waits: moment(5), WaitsUntil: moment(6), Why: text(7)}
	for i, l := range b.cfg.Brakes.Limits {
		s.Windows = append(s.Windows, BrakeWindow{Limit: l, Called: number(8 + 2*i), Unknown: moment(9 + 2*i)})
	}
	if !ok {
		return BrakeStanding{}, redisdb.BadReply("brakes_look.lua", v)
	}
	return s, nil
}

// LiftBrakes allows, for a time, calls for which no money limit has room. A time of zero ends that. Such calls
// still count.
func (b *Books) LiftBrakes(ctx context.Context, l Lift) error {
	keys := []string{b.keys.Brakes(), b.keys.Hold()}
	if l.Request != "" {
		keys = append(keys, b.requestKeys(l.Request)...)
	}
	return record.LiftBrakes.Act(ctx, b.c, keys, b.cfg.NowMicros.Now(), l.For.Microseconds(), redisdb.Flag(l.Lost), l.Who, l.Why, l.Request).Err()
}

// Lift says for how long brakes are lifted, by whom and why.
type Lift struct {
	For      time.Duration
	Lost     bool // an earlier loss in Redis is no longer charged: someone has asked the gateway what was called
	Who, Why string
	// Request is the approved request, if approval was needed. LiftBrakes completes it. If it is complete
	// already, LiftBrakes does nothing.
	Request string
}
