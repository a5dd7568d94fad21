package desk

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/reconcile"
	"spillway/internal/tracing"
)

// Settling says how to compare a report with a gateway's records.
type Settling struct {
	// Since and Until bound when the jobs in the report were done: from (inclusive), and before. Zero means any
	// time.
	Since, Until time.Time
	// Batch is the only batch in the report. Empty means all jobs, with and without a batch.
	Batch string
	// Keys says that the report's ids are idempotency keys.
	Keys bool
}

// Reconciled yields the records of all the gateway's jobs in the form needed for a comparison with a report. It
// refuses an unknown batch.
func (d *Desk) Reconciled(ctx context.Context, g *Gateway, s Settling) (iter.Seq2[reconcile.Record, error], error) {
	if s.Batch != "" {
		if _, ok, err := g.Books.Batch(ctx, s.Batch); err != nil {
			return nil, err
		} else if !ok {
			return nil, d.NoBatch(ctx, s.Batch)
		}
	}
	expected := JobQuery{States: []job.State{job.Done}, Since: s.Since, Until: s.Until, Finished: true}
	return func(yield func(reconcile.Record, error) bool) {
		for r, err := range ledger.EachJob(ctx, []*ledger.Books{g.Books}, false) {
			to := g.reconciled(r)
			to.Expected = expected.means(r) && (s.Batch == "" || s.Batch == r.Job.Batch)
			if s.Keys {
				to.Keys = g.keysOf(r)
			}
			if !yield(to, err) || err != nil {
				return
			}
		}
	}, nil
}

func (g *Gateway) reconciled(r job.Record) reconcile.Record {
	itself := r.Reason == job.Paused || r.Reason == job.Rejected && g.Replay == config.ReplayAuto || r.Reason == job.Exhausted && g.Exhausted != config.ReplayManual
	return reconcile.Record{ID: r.Job.ID, Batch: r.Job.Batch, State: r.State, Reason: r.Reason, Money: r.Money, Reference: r.Reference, InDoubt: r.InDoubt(),
		GoesOn:   r.Waits() || r.State == job.InFlight || r.State == job.Parked && itself,
		FirstKey: r.KeyGeneration == 1, Calls: max(len(r.Calls()), r.Attempts), ParkedAt: r.ParkedAt}
}

// keysOf returns the idempotency keys of a job, as sent.
func (g *Gateway) keysOf(r job.Record) []string {
	keys := make([]string, 0, r.KeyGeneration)
	for n := int64(1); n <= r.KeyGeneration; n++ {
		keys = append(keys, g.Request.Key.Text(job.IdempotencyKey(r.Job.ID, n)))
	}
	return keys
}

// Settled counts the jobs that a report has settled.
type Settled struct {
	Done    job.Totals `json:"done"`
	NotDone job.Totals `json:"not_done"`
	// Left is those that were no longer parked as expected, or that the rules hold back.
	Left int64 `json:"left"`
}

// settlement returns the action by which a report settles a job, the filter for that job, and the reason.
func settlement(c reconcile.Clear, report string) (a Action, f deadletter.Filter, why string) {
	a = NotDone
	if c.Done {
		a = Done
	}
	f = deadletter.Filter{IDs: []string{c.ID}, Since: c.ParkedAt, Until: c.ParkedAt.Add(time.Microsecond)} // no two jobs have the same parking time
	return a, f, fmt.Sprintf("line %d of the settlement report %s", c.Line, filepath.Base(report))
}

// planned prepares to settle one job. If the job has moved on, the plan has no parts.
func (d *Desk) planned(ctx context.Context, c reconcile.Clear, report string) (*Plan, string, error) {
	a, f, why := settlement(c, report)
	s, err := d.Select(ctx, f, "")
	if err != nil {
		return nil, "", err
	}
	o := Options{}
	if GoodReference(c.Reference) {
		o.Reference = c.Reference
	}
	plan, err := s.Plan(ctx, a, o)
	if job.CodeOf(err) == job.CodeNotFound && err != nil {
		return &Plan{Action: a}, why, nil
	}
	return plan, why, err
}

// WouldSettle returns what Settle would do.
func (d *Desk) WouldSettle(ctx context.Context, all []reconcile.Clear, report string) (s Settled, err error) {
	for _, c := range all {
		plan, _, err := d.planned(ctx, c, report)
		if err != nil {
			return s, err
		}
		s.count(plan, plan.Would())
	}
	return s, nil
}

// Settle settles the jobs of a report by the actions of "dlq resolve", each with its audit entry. An error says
// that it stopped; what was settled by then stays so.
func (d *Desk) Settle(ctx context.Context, all []reconcile.Clear, report, who string, traces *tracing.Tracer) (s Settled, err error) {
	for _, c := range all {
		plan, why, err := d.planned(ctx, c, report)
		if err != nil {
			return s, err
		}
		for _, b := range plan.Parts {
			b.vouched = true
		}
		errs := plan.Run(ctx, By{Who: who, Why: why}, traces, func(*Bulk) {})
		s.count(plan, plan.Now().Took)
		for _, err := range errs {
			if err != nil {
				return s, fmt.Errorf("job %q: %w", c.ID, err)
			}
		}
	}
	return s, nil
}

func (s *Settled) count(p *Plan, took job.Totals) {
	switch {
	case took.Jobs == 0:
		s.Left++
	case p.Action.Name == Done.Name:
		s.Done.Add(took)
	default:
		s.NotDone.Add(took)
	}
}
