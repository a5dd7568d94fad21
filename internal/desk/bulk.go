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

	"spillway/internal/bucket"
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
	rules, err := dispatch.Rules(ctx, g.redis, g.Gateway)
	if err != nil {
		return nil, err
	}
	if err := g.checkPriority(a, o.Priority); err != nil {
		return nil, err
	}
	b := &Bulk{Gateway: g, Action: a, Options: o, Meant: g.newTally(), filter: f, rules: rules}
	b.rules.ExpiredKeys, b.rules.MayBeCharged = o.ExpiredKeys, o.MayBeCharged
	b.met = deadletter.Preview{Seen: deadletter.NewSeen(clock.Real{})}
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

func (b *Bulk) meet(r job.Record) {
	b.Meant.add(r)
	change, why := b.decide(r)
	taken := b.met.Meet(r, change, why)
	if b.seen != nil {
		_, _ = fmt.Fprintf(b.seen, "%s %d %d %d %t %s\n", r.Job.ID, r.Generation, r.ParkedAt.UnixMicro(), r.Edited.UnixMicro(), taken, r.Money)
	}
	if taken {
		b.Would.AddRecord(r, b.Amount.Field, b.Amount.Currency)
	}
	b.Often = b.met.Often
}

// decide returns what the action does to the idempotency key of a job, or why it holds the job back.
func (b *Bulk) decide(r job.Record) (change job.KeyChange, why string) {
	switch b.Action {
	case Replay:
		return b.rules.Key(r)
	case Ask:
		return b.rules.Ask(r)
	case Done:
		return b.rules.Done(r)
	case NotDone:
		return b.rules.NotDone(r)
	case Discard:
		return b.rules.Discard(r)
	}
	return "", "no such action: " + b.Action.Name
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
	done, err := b.carryOut(ctx, c, tracedBooks{books, traces, b.Name})
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

// carryOut does it to the jobs of the run.
func (b *Bulk) carryOut(ctx context.Context, c deadletter.BulkRun, books tracedBooks) (deadletter.BulkResult, error) {
	switch b.Action {
	case Replay:
		return c.Replay(ctx, books, b.rules)
	case Ask:
		return c.Ask(ctx, b.rules, books.AskAgain)
	case Done:
		return c.Done(ctx, b.rules, b.Dedupe, b.Reference)
	case NotDone:
		return c.NotDone(ctx, books, b.rules)
	case Discard:
		return c.Discard(ctx, b.rules, b.Dedupe)
	}
	return deadletter.BulkResult{}, fmt.Errorf("no such action: %q", b.Action.Name)
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

func (b *Bulk) took(r job.Record) {
	b.note(func(p *Progress) { p.Took.AddRecord(r, b.Amount.Field, b.Amount.Currency) })
}

func (b *Bulk) holdBack(_ job.Record, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[why]++
}

func (b *Bulk) note(what func(*Progress)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what(&b.far)
}

func (b *Bulk) deed() deadletter.Deed { return deadletter.Deed{Totals: b.Now().Took} }

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

// halts finds out what holds the gateway's calls back now.
func (b *Bulk) halts(ctx context.Context) error {
	if !b.Action.Heeds {
		return nil
	}
	leave, err := b.leave(ctx, b.Pace)
	b.Halt = leave.Stop
	return err
}

// leave returns what the gateway permits a replay now. It reads the hold and the limits each time.
func (g *Gateway) leave(ctx context.Context, p Pace) (deadletter.Leave, error) {
	leave := deadletter.Leave{Rate: p.Rate}
	hold, err := dispatch.Hold(ctx, g.redis, g.Gateway)
	if err != nil {
		return leave, err
	}
	if leave.Stop = stoppedBy(g.Name, hold); leave.Stop == "" && hold.Circuit {
		leave.Stop, err = g.openCircuit(ctx, hold)
	}
	if err != nil || p.Share == 0 || leave.Stop != "" {
		return leave, err
	}
	now, err := dispatch.CurrentLimits(ctx, g.redis, g.Gateway)
	leave.Rate = p.Share * job.PerSecond(now.Limits)
	return leave, err
}

// stoppedBy says what holds a gateway's calls back; empty if nothing does. A pending probe is no reason to
// stop, because the replay may supply it.
func stoppedBy(gateway string, s bucket.Standing) string {
	switch {
	case s.Paused:
		return because(gateway+" is paused", s.PauseWhy)
	case !s.HeldUntil.IsZero():
		return because(gateway+" is held until "+job.Moment(s.HeldUntil), s.Reason)
	}
	return ""
}

// openCircuit says that a gateway's circuit is still open after its hold, and that other jobs wait for the
// probe. If no other job waits, the replay itself has to supply the probe. If that fails, the next call of
// leave finds the hold.
func (g *Gateway) openCircuit(ctx context.Context, hold bucket.Standing) (string, error) {
	now, err := g.Books.Look(ctx)
	if err != nil {
		return "", err
	}
	if now.Queued+now.InFlight+now.Retrying+now.Pending == 0 {
		return "", nil
	}
	return because("the circuit of "+g.Name+" is open", hold.Reason), nil
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}
