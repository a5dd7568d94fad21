package desk

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"strings"
	"sync"
	"time"

	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/tracing"
)

// Bulk is one action on parked jobs of one gateway.
type Bulk struct {
	*Gateway
	Action Action
	Options
	// Meant is the jobs that Plan found, and Would those of them that the action would take.
	Meant *Tally
	Would job.Totals
	// Often is how many of these were replayed deadletter.OftenReplayed times or more without success.
	Often int
	// Halt is why a replay would stop at once; empty if it would not.
	Halt string

	filter deadletter.Filter
	rules  deadletter.Rules
	admit  job.Readmitter
	books  *ledger.Books // counted for the act
	met    deadletter.Preview
	seen   hash.Hash // of the jobs found; nil if no act needs approval
	// granted is the approved request; nil: none.
	granted *Request
	// vouched says that the gateway's own report is the reason: no approval is needed.
	vouched bool

	mu   sync.Mutex
	far  Progress
	held map[string]int
}

// Progress is the progress of an action.
type Progress struct {
	deadletter.Cleared
	Took job.Totals // replayed, discarded or resolved
	// Canary is the state of the jobs sent ahead; nil before there are any.
	Canary *deadletter.Canary
}

// bulk prepares an action on the jobs of one gateway that the filter selects. It reads Redis's clock.
func (g *Gateway) bulk(ctx context.Context, a Action, f deadletter.Filter, o Options) (*Bulk, error) {
	now, err := g.Books.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.checkPriority(a, o.Priority); err != nil {
		return nil, err
	}
	b := &Bulk{Gateway: g, Action: a, Options: o, Meant: g.newTally(), filter: f, rules: dispatch.Rules(g.Gateway, now.Now)}
	b.rules.ExpiredKeys, b.rules.MayBeCharged = o.ExpiredKeys, o.MayBeCharged
	b.met = deadletter.Preview{Rules: b.rules, Decide: a.decide, Seen: deadletter.NewSeen(clock.Real{})}
	if g.Approval.OfActs() {
		b.seen = sha256.New()
	}
	return b, nil
}

// Bulk returns an action on the jobs of one gateway that were shown to a person before: the filter contains the
// time until which they were parked.
func (g *Gateway) Bulk(ctx context.Context, a Action, f deadletter.Filter, o Options) (*Bulk, error) {
	b, err := g.bulk(ctx, a, a.means(f), o)
	if err == nil {
		b.met.Seen = nil
	}
	return b, err
}

// halts finds out what holds the gateway's calls back now.
func (b *Bulk) halts(ctx context.Context) error {
	if !b.Action.Heeds {
		return nil
	}
	leave, err := b.leave(ctx, b.Pace)
	b.Halt = leave.Stop
	return err
}

func (b *Bulk) meet(r job.Record) {
	b.Meant.add(r)
	taken := b.met.Meet(r)
	if b.seen != nil {
		_, _ = fmt.Fprintf(b.seen, "%s %d %d %d %t %s\n", r.Job.ID, r.Generation, r.ParkedAt.UnixMicro(), r.Edited.UnixMicro(), taken, r.Money)
	}
	if taken {
		b.Would.AddRecord(r, b.Amount.Field, b.Amount.Currency)
	}
	b.Often = b.met.Often
}

// Until returns the time just after the last job that Plan found: jobs parked from then on are excluded. Zero:
// it found none.
func (b *Bulk) Until() time.Time { return b.met.Until }

// Held returns how many jobs were held back, by reason; before Run, how many would be.
func (b *Bulk) Held() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		return maps.Clone(b.met.Held)
	}
	return maps.Clone(b.held)
}

// Now returns the action's progress.
func (b *Bulk) Now() Progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	far := b.far
	far.Took = job.Totals{}
	far.Took.Add(b.far.Took)
	return far
}

const (
	noteEvery = time.Second     // how often a long action updates its audit entry
	noteTime  = 5 * time.Second // bounds a write of the entry
)

// Bounded calls write with a bounded context that an interrupt does not end.
func Bounded(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	return write(ctx)
}

// Run does it. If a second person has to approve it, Run instead stores a request and returns an Awaits. The
// audit entry is written before the first job is touched. watch is called after each step, by one goroutine at
// a time; nil: not called. Run stops between two steps when ctx ends; what it took stays taken. A
// deadletter.Halt says that it stopped itself.
func (b *Bulk) Run(ctx context.Context, by By, traces *tracing.Tracer, watch func()) error {
	if watch == nil {
		watch = func() {}
	}
	if asked, err := b.ask(ctx, by); asked || err != nil {
		return err
	}
	now, err := b.Books.Look(ctx)
	if err != nil {
		return err
	}
	b.rules.Now = now.Now // an hour may have passed since the plan
	entry := b.Store.Entry(b.granted.noted(by.act(deadletter.Act{At: b.rules.Now, What: b.Action.trail,
		Filter: strings.TrimSpace(FilterText(b.filter) + b.Options.text())})))
	books := b.Books.For(entry.Place) // the script that takes a job counts it
	b.admit, b.books = traces.Replays(b.Name, books), books
	b.mu.Lock()
	b.held = map[string]int{}
	b.mu.Unlock()
	noted := time.Time{}
	c := deadletter.Clearing{
		Store: b.Store.For(entry), Filter: b.meant(), Clock: clock.Real{}, Seen: b.met.Seen, Canary: b.Canary,
		Begin:    func(ctx context.Context) error { return Bounded(ctx, entry.Begin) },
		Taken:    b.took,
		HeldBack: b.holdBack,
		Withdraw: func(ctx context.Context, jobs []job.Return) ([]bool, error) {
			return books.WithdrawForGood(ctx, jobs, ledger.Discarding{Why: fmt.Sprintf("discarded by %s: %s", by.Who, by.Why), Dedupe: b.Dedupe, MayBeCharged: b.MayBeCharged})
		},
		Canaries: func(now deadletter.Canary) { b.note(func(p *Progress) { p.Canary = &now }); watch() },
		Progress: func(done deadletter.Cleared) {
			b.note(func(p *Progress) { p.Cleared = done })
			watch()
			if time.Since(noted) >= noteEvery && Bounded(ctx, func(ctx context.Context) error { return entry.Note(ctx, b.deed()) }) == nil { // entry.End reports permanent errors
				noted = time.Now()
			}
		},
	}
	if b.granted != nil { // the approver saw each payload that was replaced before the request
		c.Agreed = b.granted.Asked
	}
	if b.Options.Priority != "" {
		c.Class = b.classChange()
	}
	if b.Action.Heeds {
		c.Watch = func(ctx context.Context) (deadletter.Leave, error) { return b.leave(ctx, b.Pace) }
	}
	done, err := b.Action.run(ctx, c, b)
	if err == nil { // jobs found no longer parked on reading them again are not counted yet
		done.Gone = max(done.Gone, int(b.Meant.Jobs)-done.Taken-done.HeldBack)
	}
	b.note(func(p *Progress) { p.Cleared = done })
	watch()
	if endErr := Bounded(ctx, func(ctx context.Context) error { return entry.End(ctx, b.deed()) }); endErr != nil {
		return endErr
	}
	return err
}

// meant returns the filter without jobs parked since Plan: nobody was asked about those.
func (b *Bulk) meant() deadletter.Filter {
	f := b.filter
	if !b.met.Until.IsZero() {
		f.Until = b.met.Until
	}
	f.ToCount(b.Amount.Field != "")
	if f.Limit > 0 {
		f.Limit = int(b.Meant.Jobs)
	}
	return f
}

func (b *Bulk) note(what func(*Progress)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what(&b.far)
}

func (b *Bulk) took(r job.Record) {
	b.note(func(p *Progress) { p.Took.AddRecord(r, b.Amount.Field, b.Amount.Currency) })
}

func (b *Bulk) holdBack(_ job.Record, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[why]++
}

func (b *Bulk) deed() deadletter.Deed { return deadletter.Deed{Totals: b.Now().Took} }

// ParkDeed is what Park does or would do to a job: "park -o json".
type ParkDeed struct {
	ID       string      `json:"id"`
	Gateway  string      `json:"gateway"`
	Was      job.State   `json:"was"`
	Reason   job.Reason  `json:"reason"`
	Unsure   bool        `json:"may_have_charged"`
	Amount   job.Amounts `json:"amount"`
	NoAmount int64       `json:"without_amount"`
	Done     bool        `json:"done"`
}

// WouldPark returns what Park would do. An error says why the job can't be parked.
func (f Found) WouldPark() (ParkDeed, error) {
	money := f.Money(f.Record)
	d := ParkDeed{ID: f.Record.Job.ID, Gateway: f.Name, Was: f.Record.State, Reason: job.Cancelled, Unsure: f.Record.Unsure || f.Record.State == job.Pending,
		Amount: money.Amount, NoAmount: money.NoAmount}
	if d.Unsure {
		d.Reason = job.UnknownOutcome
	}
	return d, f.waitsStill()
}

// waitsStill returns why an operator can't park a job, or nil.
func (f Found) waitsStill() error {
	rec := f.Record
	switch {
	case rec.Waits(), rec.State == job.Pending:
		return nil
	case rec.State == job.InFlight:
		return &job.Error{Code: job.CodeFailed,
			Message: fmt.Sprintf("job %q is in flight at %s: its call may last until %s", rec.Job.ID, f.Name, job.Moment(rec.Deadline)),
			Hint:    "wait for its end, then look at it again: dispatcher job " + dispatch.ShellWord(rec.Job.ID)}
	case rec.State == job.Parked:
		return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q is %s at %s already", rec.Job.ID, rec.Reason.As(), f.Name),
			Hint: `replay, discard or resolve it with "dispatcher dlq"`}
	}
	return &job.Error{Code: job.CodeNotFound, Message: fmt.Sprintf("job %q does not wait any more: it is %s at %s", rec.Job.ID, rec.State, f.Name),
		Hint: "there is nothing left to park"}
}

// Park removes a job that waits for its call from the queue, or ends the look-ups of a pending one, and parks
// it. It writes the audit entry first. An error with code failed says that the job has moved on since it was
// found, and was not changed.
func (f Found) Park(ctx context.Context, by By) error {
	now, err := f.redis.Time(ctx).Result()
	if err != nil {
		return err
	}
	id := f.Record.Job.ID
	entry := f.Store.Entry(by.act(deadletter.Act{At: now, What: "park", Filter: flag("id", id)}))
	if err := entry.Begin(ctx); err != nil {
		return err
	}
	taken, err := f.Books.For(entry.Place).Withdraw(context.WithoutCancel(ctx), []job.Return{{ID: id, Generation: f.Record.Generation}},
		fmt.Sprintf("parked by %s: %s", by.Who, by.Why))
	if err != nil {
		return err
	}
	var deed deadletter.Deed
	if taken[0] {
		deed.Totals = f.Money(f.Record)
	}
	if err := Bounded(ctx, func(ctx context.Context) error { return entry.End(ctx, deed) }); err != nil {
		return err
	}
	if !taken[0] {
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("job %q has moved on meanwhile, and was not parked", id),
			Hint: "look at it again: dispatcher job " + dispatch.ShellWord(id)}
	}
	return nil
}
