package desk

import (
	"context"
	"errors"
	"sync"

	"spillway/internal/deadletter"
	"spillway/internal/job"
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

// hasAmounts reports whether the jobs of some gateway have money.
func (d *Desk) hasAmounts() bool {
	for _, g := range d.Gateways {
		if g.Amount.Field != "" {
			return true
		}
	}
	return false
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
