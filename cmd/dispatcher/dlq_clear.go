package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/tracing"
)

// unit is one gateway with what a replay of its jobs needs.
type unit struct {
	g     config.Gateway
	store *deadletter.Store
	books *ledger.Books
	admit deadletter.Admitter
	rules deadletter.Rules
}

func unitOf(ctx context.Context, c redis.UniversalClient, g config.Gateway, expiredKeys bool) (unit, error) {
	books := dispatch.Books(c, g)
	now, err := books.Look(ctx)
	if err != nil {
		return unit{}, dispatch.Coded(err)
	}
	rules := dispatch.Rules(g, now.Now)
	rules.ExpiredKeys = expiredKeys
	return unit{g: g, store: dispatch.Store(c, g), books: books, admit: books, rules: rules}, nil
}

// act is what replay, discard and resolve differ in.
type act struct {
	verb    string // "replay", as in "replay 12 jobs?"
	past    string // "replayed"
	what    string // as it stands in the trail
	doubt   bool   // it is for jobs that may have been charged
	waiting bool   // jobs that are named may also wait for their call
	single  bool   // it is for one job
	// decide says what becomes of a job's key, or why it would not be taken.
	decide  func(deadletter.Rules, job.Record) (change job.KeyChange, why string)
	run     func(context.Context, deadletter.Clearing, unit) (deadletter.Cleared, error)
	caution caution
}

// clearFlags are the flags that replay, discard and resolve share.
type clearFlags struct {
	*dlqFilter
	consent     cli.Consent
	why         string
	expiredKeys bool
	// mayBeCharged lets jobs be discarded that may have been charged.
	mayBeCharged bool
}

func clearingFlags(cmd *cobra.Command) *clearFlags {
	f := &clearFlags{dlqFilter: filterFlags(cmd)}
	consentFlags(cmd, &f.consent)
	return f
}

// needWhy refuses an act without a reason.
func (f *clearFlags) needWhy(verb string) error {
	return needWhy(f.why, verb)
}

// mostWhy is how many bytes a reason may have: it is shown with each job that was settled.
const mostWhy = 500

func needWhy(why, verb string) error {
	switch {
	case strings.TrimSpace(why) == "":
		return cli.Usage(`say it with --why "confirmed by support, ticket 4711"`, "a %s needs a reason", verb)
	case len(why) > mostWhy:
		return cli.Usage("name a ticket that says the rest", "--why has more than %d bytes", mostWhy)
	}
	return nil
}

// clear shows what an act would touch, asks, does it and says what it did.
func (p *program) clear(ctx context.Context, f *clearFlags, a act) error {
	s, err := p.choose(ctx, f.dlqFilter)
	if err != nil {
		return err
	}
	defer s.close()
	s.filter.InDoubt = a.doubt && len(s.filter.IDs)+len(s.filter.Reasons) == 0
	s.filter.Waiting = a.waiting && len(s.filter.IDs) > 0
	w := &clearance{p: p, s: s, f: f, act: a}
	missing, err := w.preview(ctx)
	if err != nil {
		return err
	}
	if a.single && w.total > 1 {
		return cli.Usage("choose one with -g", "several gateways have parked a job %q", s.filter.IDs[0])
	}
	if err := p.remarkMissing(ctx, s, missing); err != nil {
		return err
	}
	decision, err := w.decide(ctx)
	if err != nil {
		return err
	}
	if decision != cli.Go || w.open == 0 {
		return w.report(decision, nil)
	}
	return w.report(decision, w.do(ctx))
}

// clearance is one act under way.
type clearance struct {
	p      *program
	s      *selection
	f      *clearFlags
	act    act
	shares []*share // one for each gateway with jobs
	total  int      // jobs meant
	open   int      // of these, jobs not held back
	ran    bool

	mu       sync.Mutex
	progress *cli.Progress
}

// share is the part of an act that is one gateway's.
type share struct {
	unit
	heap  *gatewayHeap
	met   deadletter.Preview
	would *pile          // would be taken
	held  map[string]int // was held back, and why; while nothing was done, what would be
	halt  string         // why it would stop at once
	done  deadletter.Cleared
	ahead *deadletter.Canary // the jobs sent ahead; nil before they are
	took  *pile
	entry *deadletter.Entry
}

// preview counts what the act would touch.
func (w *clearance) preview(ctx context.Context) ([]string, error) {
	byName := map[string]*share{}
	w.s.filter.ToCount(anyAmount(w.s.gateways))
	missing, err := w.s.each(ctx, func(g config.Gateway, r job.Record) error {
		sh := byName[g.Name]
		if sh == nil {
			var err error
			if sh, err = w.begin(ctx, g); err != nil {
				return err
			}
			byName[g.Name], w.shares = sh, append(w.shares, sh)
		}
		sh.meet(r)
		return nil
	})
	for _, sh := range w.shares {
		sh.heap.close()
		sh.held = sh.met.Held
		w.total += sh.heap.Total
		w.open += sh.would.jobs
	}
	return missing, err
}

// begin begins a gateway's share, and asks what keeps its calls back now.
func (w *clearance) begin(ctx context.Context, g config.Gateway) (*share, error) {
	u, err := unitOf(ctx, w.s.db.Client, g, w.f.expiredKeys)
	if err != nil {
		return nil, err
	}
	u.rules.MayBeCharged = w.f.mayBeCharged
	sh := &share{unit: u, heap: newHeap(g), would: newPile(), took: newPile(),
		met: deadletter.Preview{Rules: u.rules, Decide: w.act.decide, Seen: deadletter.NewSeen(clock.Real{})}}
	if look := w.act.caution.watch(w.s.db.Client, g); look != nil {
		leave, err := look(ctx)
		if err != nil {
			return nil, dispatch.Coded(err)
		}
		sh.halt = leave.Stop
	}
	return sh, nil
}

func (sh *share) meet(r job.Record) {
	sh.heap.add(r)
	if sh.met.Meet(r) {
		sh.would.add(r, sh.g.Amount)
	}
}

// decide asks a person at a terminal, where there is something to ask about.
func (w *clearance) decide(ctx context.Context) (cli.Decision, error) {
	consent := w.f.consent
	if w.open == 0 && w.p.InTerminal {
		consent.Yes = true
	}
	would := newPile()
	for _, sh := range w.shares {
		would.addAll(sh.would)
	}
	if consent.Yes && !consent.DryRun && w.open > 0 && !w.p.JSON() {
		w.p.remark("%s", strings.TrimSuffix(w.previewText(), "\n"))
	}
	return cli.Confirm(ctx, w.p.Streams, consent, w.previewText()+capital(w.act.verb)+" "+would.text())
}

// do runs the act at every gateway side by side: one without room keeps no other waiting.
func (w *clearance) do(ctx context.Context) error {
	w.progress = cli.NewProgress(w.p.Streams, cli.ProgressParams{What: w.act.verb, Total: int64(w.open), Quiet: w.p.Quiet})
	defer w.progress.Close()
	w.ran = true
	traces, err := w.p.traces(ctx)
	if err != nil {
		return err
	}
	defer bounded(ctx, traces.Close)
	errs := make([]error, len(w.shares))
	var all sync.WaitGroup
	for i, sh := range w.shares {
		all.Go(func() { errs[i] = w.doShare(ctx, sh, traces) })
	}
	all.Wait()
	return w.outcome(errs)
}

// outcome is one error of all shares': what is broken before what was interrupted, and that before what stopped by itself.
func (w *clearance) outcome(errs []error) error {
	var halts []*deadletter.Halt
	interrupted := false
	for _, err := range errs {
		halt, halted := errors.AsType[*deadletter.Halt](err)
		switch {
		case halted:
			halts = append(halts, halt)
		case errors.Is(err, context.Canceled):
			interrupted = true
		case err != nil:
			return w.cut(dispatch.Coded(err), goOn)
		}
	}
	switch {
	case interrupted:
		return w.cut(&job.Error{Code: job.CodeInterrupted, Message: "interrupted"}, goOn)
	case len(halts) > 0:
		return w.halted(halts)
	}
	return nil
}

// noteEvery is how often a long act brings its entry in the trail up to date.
const noteEvery = time.Second

// noteTime bounds writing the entry down.
const noteTime = 5 * time.Second

func (w *clearance) doShare(ctx context.Context, sh *share, traces *tracing.Tracer) error {
	who, err := cli.WhoAmI()
	if err != nil {
		return err
	}
	sh.entry = sh.store.Entry(deadletter.Act{At: sh.rules.Now, Who: who, What: w.act.what, Why: w.f.why, Filter: w.chose()})
	sh.store = sh.store.For(sh.entry)
	sh.admit = traces.Replays(sh.g.Name, sh.books.For(sh.entry.Place))
	sh.held = map[string]int{}
	noted := time.Time{}
	done, err := w.act.run(ctx, deadletter.Clearing{
		Store: sh.store, Filter: sh.filter(w.s.filter), Clock: clock.Real{}, Seen: sh.met.Seen,
		Begin: func(ctx context.Context) error { return bounded(ctx, sh.entry.Begin) },
		Watch: w.act.caution.watch(w.s.db.Client, sh.g), Canary: w.act.caution.canary, Canaries: w.follow(sh),
		Taken:    func(r job.Record) { sh.took.add(r, sh.g.Amount) },
		HeldBack: func(_ job.Record, why string) { sh.held[why]++ },
		Withdraw: sh.withdrawing(who, w.f),
		Progress: func(done deadletter.Cleared) {
			w.show(sh, done)
			if time.Since(noted) < noteEvery {
				return
			}
			if bounded(ctx, sh.note) == nil { // the end below tells
				noted = time.Now()
			}
		},
	}, sh.unit)
	if err == nil { // of the jobs that it read again it met only those that were still parked
		done.Gone = max(done.Gone, sh.heap.Total-done.Taken-done.HeldBack)
	}
	w.show(sh, done)
	if endErr := bounded(ctx, sh.end); endErr != nil {
		return endErr
	}
	return err
}

// chose is the flags that chose the jobs, as the trail has them.
func (w *clearance) chose() string {
	if !w.f.mayBeCharged {
		return w.s.flags
	}
	return strings.TrimSpace(w.s.flags + " --may-be-charged")
}

// filter is the jobs that the preview met: those parked since then were not asked about.
func (sh *share) filter(all deadletter.Filter) deadletter.Filter {
	all.Until = sh.met.Until
	all.ToCount(sh.g.Amount.Field != "")
	if all.Limit > 0 {
		all.Limit = sh.heap.Total
	}
	return all
}

// bounded writes something down, also after an interrupt.
func bounded(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	return write(ctx)
}

func (sh *share) deed() deadletter.Deed {
	return deadletter.Deed{Jobs: sh.took.jobs, Amount: sh.took.money, Bare: sh.took.bare}
}

func (sh *share) note(ctx context.Context) error { return sh.entry.Note(ctx, sh.deed()) }

func (sh *share) end(ctx context.Context) error { return sh.entry.End(ctx, sh.deed()) }

func (w *clearance) show(sh *share, done deadletter.Cleared) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sh.done = done
	sum := 0
	for _, each := range w.shares {
		sum += each.done.Taken + each.done.Gone
	}
	w.progress.Set(int64(sum))
}

const goOn = "run the same again: that is safe, it goes on with the jobs that are still parked"

// cut adds to an error how far it got.
func (w *clearance) cut(err error, hint string) error {
	sum := w.sum()
	far := fmt.Sprintf("%d of %s %s", sum.Taken, jobs(w.open), w.act.past)
	if sum.Unsure > 0 {
		far += fmt.Sprintf(", and %d more may or may not be", sum.Unsure)
	}
	return &job.Error{Code: job.CodeOf(err), Message: far, Err: err, Hint: hint}
}

// halted says why a replay stopped by itself, and how to go on. A gateway that is held is away; a canary that failed is a failure.
func (w *clearance) halted(halts []*deadletter.Halt) error {
	var why []string
	code, hint := job.CodeUnavailable, `see "dispatcher status"; when calls go through again, run the same again: it goes on with the jobs that are still parked`
	for _, h := range halts {
		why = append(why, h.Why)
		if h.Canary != nil {
			code, hint = job.CodeFailed, `look at them with "dispatcher job ID"; once the cause is gone, run the same again: it goes on with the jobs that are still parked`
		}
	}
	return w.cut(&job.Error{Code: code, Message: "stopped: " + strings.Join(why, "; ")}, hint)
}

func (w *clearance) sum() (sum deadletter.Cleared) {
	for _, sh := range w.shares {
		sum.Taken += sh.done.Taken
		sum.HeldBack += sh.done.HeldBack
		sum.Gone += sh.done.Gone
		sum.Unsure += sh.done.Unsure
	}
	return sum
}
