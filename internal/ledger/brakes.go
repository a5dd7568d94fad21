package ledger

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Counted is what one process has seen of the money that is counted for a gateway's brakes: by it Redis can be told what it has lost. The zero Counted has seen nothing. Safe
// for concurrent use.
type Counted struct {
	mu      sync.Mutex
	born    string            // see money.lua
	opened  map[string]string // by currency: what this process has opened in all, in minor units
	lead    time.Duration     // how long after its opening a call was to be written at the latest, at the most
	process string            // as open.lua knows it: by its first worker, since each file that it reads has others
	said    string            // text; empty: to be made anew
	agreed  int64             // when Redis was last heard of to know it (µs)
}

// countedFor is how long Redis knows for certain what a process has opened that says nothing: brakes_kept of brakes_ask.lua forgets it an hour later.
const countedFor = 24 * time.Hour

// see takes in what open.lua answered at a moment, "born currency money"; empty: nothing was counted.
func (c *Counted) see(text string, now int64) {
	born, rest, _ := strings.Cut(text, " ")
	currency, money, ok := strings.Cut(rest, " ")
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.born != born {
		c.born, c.opened = born, map[string]string{}
	}
	c.opened[currency], c.said, c.agreed = later(c.opened[currency], money), "", max(c.agreed, now)
}

// recall forgets what was opened where Redis may have forgotten it: it would be taken for lost, and charged once more. None of it was opened in the last day. The lock is held.
func (c *Counted) recall(now int64) {
	if len(c.opened) > 0 && now-c.agreed > countedFor.Microseconds() {
		c.opened, c.said = map[string]string{}, ""
	}
}

// later returns the larger of two numbers: answers may come in another order than they were given in.
func later(a, b string) string {
	n, _ := strconv.ParseInt(a, 10, 64)
	m, err := strconv.ParseInt(b, 10, 64)
	if err != nil || n > m {
		return a
	}
	return b
}

// text is what was seen, as the scripts read it: "born CURRENCY:MONEY …"; empty if nothing was. The lock is held.
func (c *Counted) text() string {
	if c.said != "" || c.born == "" {
		return c.said
	}
	c.said = c.born
	for _, currency := range slices.Sorted(maps.Keys(c.opened)) {
		c.said += " " + currency + ":" + c.opened[currency]
	}
	return c.said
}

// opens notes that a call is being opened, which will be written lead later at the latest, and returns what was seen so far, how open.lua knows the process, and the longest lead so far.
func (c *Counted) opens(owner string, lead time.Duration, now int64) (seen, process string, longest time.Duration) {
	if i := strings.LastIndexByte(owner, '.'); i > 0 {
		owner = owner[:i]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.lead = cmp.Or(c.process, owner), max(c.lead, lead)
	c.recall(now)
	return c.text(), c.process, c.lead
}

// TellCounted tells Redis what this process has opened, in case it has lost some of it. A gateway whose money nobody counts costs nothing. A process whose own file has no brakes tells as well.
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

// micros is this machine's clock, which goes on while the machine sleeps.
func (b *Books) micros() int64 {
	if now := b.cfg.NowMicros.Now(); now > 0 {
		return now
	}
	return record.Micros(time.Now())
}

// BrakeWindow is how one limit of money stands.
type BrakeWindow struct {
	Limit job.MoneyLimit
	// Called is what counts in the window now, in minor units.
	Called int64
	// Unknown is until when nobody knows what was called, since Redis lost it; zero if that is known.
	Unknown time.Time
}

// BrakeStanding is how a gateway's brakes stand, all of one moment.
type BrakeStanding struct {
	Now     time.Time
	Windows []BrakeWindow // in the order of the file
	// Lifted is until when no limit keeps a call back; zero if they are in force. LiftedBy did it at LiftedAt, for LiftedWhy.
	Lifted, LiftedAt    time.Time
	LiftedBy, LiftedWhy string
	// Waits is since when a job waits for room, and WaitsUntil when there is room at the latest; zero if none waits. Why names the brake.
	Waits, WaitsUntil time.Time
	Why               string
}

// Brakes returns how the gateway's brakes stand.
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

// LiftBrakes lets calls go that no limit of money has room for, for a time; zero ends that. What is called meanwhile counts.
func (b *Books) LiftBrakes(ctx context.Context, l Lift) error {
	keys := []string{b.keys.Brakes(), b.keys.Hold()}
	if l.Request != "" {
		keys = append(keys, b.requestKeys(l.Request)...)
	}
	return record.LiftBrakes.Act(ctx, b.c, keys, b.cfg.NowMicros.Now(), l.For.Microseconds(), redisdb.Flag(l.Lost), l.Who, l.Why, l.Request).Err()
}

// Lift is for how long brakes are lifted, by whom and why.
type Lift struct {
	For      time.Duration
	Lost     bool // a loss of Redis from before is charged no more: somebody has asked the gateway what was called
	Who, Why string
	// Request is what was approved, where a second person had to: it is over with that. If it is over already, nothing is done.
	Request string
}
