package desk

import (
	"context"
	"errors"
	"slices"
	"sync"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/tracing"
)

// Action is an operator's action on parked jobs: Replay, Ask, Done, NotDone or Discard.
type Action struct {
	Name string // in forms and for programs
	Verb string // "replay", as in "replay 12 jobs?"
	Past string // "replayed"
	// NeedsWhy says that a reason is required.
	NeedsWhy bool
	// InDoubt says that it is for jobs that may have been charged. Without ids and reasons it applies to all of
	// these.
	InDoubt bool
	// Final says that it can't be undone.
	Final bool
	// Heeds says that it admits jobs again. Such an action stops while the gateway is held or paused, and can
	// be slowed down.
	Heeds bool

	trail   string // in the audit trail
	readmit bool   // it admits jobs again
	asks    bool   // only for gateways with look-ups
	waiting bool   // jobs selected by id may also be waiting for their call
}

// The actions.
var (
	// Replay admits jobs again.
	Replay = Action{Name: "replay", Verb: "replay", Past: "replayed", Heeds: true, trail: "replay", readmit: true}
	// Ask makes look-ups for jobs in doubt now: they are pending until the outcome is known.
	Ask = Action{Name: "ask", Verb: "ask about", Past: "asked about", InDoubt: true, trail: "resolve --ask", asks: true}
	// Done settles jobs in doubt as charged.
	Done = Action{Name: "done", Verb: "resolve as done", Past: "resolved", NeedsWhy: true, InDoubt: true, Final: true, trail: "resolve --done"}
	// NotDone settles jobs in doubt as not charged, and admits them again.
	NotDone = Action{Name: "not-done", Verb: "resolve as not done", Past: "resolved", NeedsWhy: true, InDoubt: true, trail: "resolve --not-done", readmit: true}
	// Discard removes jobs for good. Jobs selected by id may also be waiting for their call.
	Discard = Action{Name: "discard", Verb: "discard", Past: "discarded", NeedsWhy: true, Final: true, trail: "discard", waiting: true}
)

// ActionOf returns the action with a name.
func ActionOf(name string) (a Action, known bool) {
	for _, a := range []Action{Replay, Ask, Done, NotDone, Discard} {
		if a.Name == name {
			return a, true
		}
	}
	return a, false
}

// Noun returns the command that does it.
func (a Action) Noun() string {
	if a.InDoubt {
		return "resolve"
	}
	return a.Verb
}

// means adds to a filter what the action implies.
func (a Action) means(f deadletter.Filter) deadletter.Filter {
	f.InDoubt = a.InDoubt && len(f.IDs)+len(f.Reasons) == 0
	f.Waiting = a.waiting && len(f.IDs) > 0
	return f
}

// CanAsk reports whether the gateway has look-ups.
func (g *Gateway) CanAsk() bool { return g.Asked() }

// offered returns an error with code usage if none of the gateways supports the action.
func (a Action) offered(d *Desk) error {
	if !a.asks || slices.ContainsFunc(d.Gateways, (*Gateway).CanAsk) {
		return nil
	}
	return usage("look the jobs up there, then say --done or --not-done; or give the gateway a lookup in the file", "no look-up is configured for %s", d.Names())
}

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
