package desk

import (
	"context"
	"crypto/sha256"
	"errors"
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

// Plan is an action on a selection: what it would do, and what it did.
type Plan struct {
	Action Action
	Parts  []*Bulk // one for each gateway with selected jobs
	// Missing is the filter's ids whose jobs are not parked.
	Missing []string
	// Cut says that ctx ended before all jobs were counted.
	Cut bool
}

// Plan counts what an action would do to the selection, and changes nothing. If ctx ends early, the plan covers
// what was counted by then.
func (s *Selection) Plan(ctx context.Context, a Action, o Options) (*Plan, error) {
	if err := a.offered(s.Desk); err != nil {
		return nil, err
	}
	chosen := *s
	chosen.Filter = a.means(s.Filter)
	p := &Plan{Action: a}
	counting := chosen
	counting.Filter.ToCount(s.hasAmounts())
	var last *Bulk
	var err error
	p.Missing, err = counting.Each(ctx, func(g *Gateway, r job.Record) error {
		if last == nil || last.Gateway != g {
			var err error
			if last, err = g.bulk(ctx, a, chosen.Filter, o); err == nil {
				err = last.halts(ctx)
			}
			if err != nil {
				return err
			}
			p.Parts = append(p.Parts, last)
		}
		last.meet(r)
		return nil
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.Cut, err = true, nil
	}
	return p, err
}

// Meant returns the jobs that the action would take or hold back.
func (p *Plan) Meant() (t job.Totals) {
	for _, b := range p.Parts {
		t.Add(b.Meant.Totals)
	}
	return t
}

// Would returns the jobs that it would take.
func (p *Plan) Would() (t job.Totals) {
	for _, b := range p.Parts {
		t.Add(b.Would)
	}
	return t
}

// ByReason returns the jobs that it would take or hold back by reason, over all gateways.
func (p *Plan) ByReason() map[job.Reason]job.Totals {
	all := map[job.Reason]job.Totals{}
	for _, b := range p.Parts {
		for r, of := range b.Meant.ByReason {
			t := all[r]
			t.Add(of.Totals)
			all[r] = t
		}
	}
	return all
}

// Held returns how many jobs were or would be held back, by reason.
func (p *Plan) Held() map[string]int {
	all := map[string]int{}
	for _, b := range p.Parts {
		for why, n := range b.Held() {
			all[why] += n
		}
	}
	return all
}

// Often returns how many of the jobs were replayed often without success.
func (p *Plan) Often() (n int) {
	for _, b := range p.Parts {
		n += b.Often
	}
	return n
}

// Now returns the progress over all gateways.
func (p *Plan) Now() (sum Progress) {
	for _, b := range p.Parts {
		far := b.Now()
		sum.Taken += far.Taken
		sum.HeldBack += far.HeldBack
		sum.Gone += far.Gone
		sum.Unsure += far.Unsure
		sum.Took.Add(far.Took)
		if c := far.Canary; c != nil {
			if sum.Canary == nil {
				sum.Canary = &deadletter.Canary{}
			}
			sum.Canary.Sent += c.Sent
			sum.Canary.Done += c.Done
			sum.Canary.Waiting += c.Waiting
			sum.Canary.Later += c.Later
			sum.Canary.Failed = append(sum.Canary.Failed, c.Failed...)
		}
	}
	return sum
}

// Run carries out the plan at all gateways concurrently, so that a gateway without room delays no other. watch
// is called after each step of a gateway's part, one at a time. It returns an error for each part, nil if there
// was none.
func (p *Plan) Run(ctx context.Context, by By, traces *tracing.Tracer, watch func(*Bulk)) []error {
	errs := make([]error, len(p.Parts))
	var all sync.WaitGroup
	var one sync.Mutex
	for i, b := range p.Parts {
		all.Go(func() {
			errs[i] = b.Run(ctx, by, traces, func() {
				one.Lock()
				defer one.Unlock()
				watch(b)
			})
		})
	}
	all.Wait()
	return errs
}

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
	books  tracedBooks // counted for the act
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

// tracedBooks are books that record in the traces of jobs that they were admitted again.
type tracedBooks struct {
	*ledger.Books
	traces  *tracing.Tracer
	gateway string
}

// Readmit implements job.Readmitter.
func (t tracedBooks) Readmit(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	begun := time.Now()
	answers, retry, err := t.Books.Readmit(ctx, jobs)
	t.traces.Replayed(ctx, t.gateway, jobs, answers, begun)
	return answers, retry, err
}

// Progress is the progress of an action.
type Progress struct {
	deadletter.BulkResult
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
	if b.seen != nil { // some acts of the gateway need approval
		if asked, err := b.ask(ctx, by); asked || err != nil {
			return err
		}
	}
	now, err := b.Books.Look(ctx)
	if err != nil {
		return err
	}
	b.rules.Now = now.Now // an hour may have passed since the plan
	entry := b.Store.Entry(b.granted.noted(by.act(deadletter.Act{At: b.rules.Now, What: b.Action.trail,
		Filter: strings.TrimSpace(FilterText(b.filter) + b.Options.text())})))
	books := b.Books.For(entry.Place) // the script that takes a job counts it
	b.books = tracedBooks{books, traces, b.Name}
	b.mu.Lock()
	b.held = map[string]int{}
	b.mu.Unlock()
	noted := time.Time{}
	c := deadletter.BulkRun{
		Store: b.Store.For(entry), Filter: b.meant(), Clock: clock.Real{}, Seen: b.met.Seen, Canary: b.Canary,
		Begin:    func(ctx context.Context) error { return Bounded(ctx, entry.Begin) },
		Taken:    b.took,
		HeldBack: b.holdBack,
		Withdraw: func(ctx context.Context, jobs []job.Return) ([]bool, error) {
			return books.WithdrawForGood(ctx, jobs, ledger.Discarding{Why: fmt.Sprintf("discarded by %s: %s", by.Who, by.Why), Dedupe: b.Dedupe, MayBeCharged: b.MayBeCharged})
		},
		Canaries: func(now deadletter.Canary) { b.note(func(p *Progress) { p.Canary = &now }); watch() },
		Progress: func(done deadletter.BulkResult) {
			b.note(func(p *Progress) { p.BulkResult = done })
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
	b.note(func(p *Progress) { p.BulkResult = done })
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
