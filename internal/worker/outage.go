package worker

import (
	"context"
	"time"

	"spillway/internal/job"
	"spillway/internal/outcome"
)

// leastOutageWait is the least time for which a job that met an outage is set aside, so that the next probe is
// another job's.
const leastOutageWait = 100 * time.Millisecond

// fewer lowers the maximum of calls in flight, and returns it; 0 if one was too many already.
func (w *Worker) fewer(ctx context.Context, a job.Attempt) (few int64) {
	w.persist(ctx, a.Job.ID, func() (err error) {
		few, err = w.cfg.Pacer.Fewer(ctx)
		return err
	})
	return few
}

func (w *Worker) failure(a job.Attempt, slot job.Slot, res job.Result, j outcome.Judgement) job.Failure {
	f := job.Failure{Kind: job.Fail, Job: a.Job.ID, Outages: a.Outages, Spent: a.Spent, Since: a.Failed, Slot: slot.At, Took: res.Took, Written: res.Stage != job.NotSent, Why: j.Why,
		Scope: j.Scope, Flow: slot.Flow}
	if to, _ := w.route(a.Job.Route); j.Fault && to.Circuit && (f.Written || to.OwnHost) {
		f.Scope = job.ScopeRoute
	}
	switch {
	case !f.Written:
		f.Why = j.Error
	case j.Alarm:
		f.Kind, f.For = job.Deny, j.HoldFor
	case !j.Fault:
		f.Kind, f.For = job.Wait, j.HoldFor
	}
	return f
}

// failed has the trouble counted, and retries until it is: uncounted, it would spend an attempt on an outage.
func (w *Worker) failed(ctx context.Context, a job.Attempt, f job.Failure) (out job.Fallout) {
	w.persist(ctx, a.Job.ID, func() (err error) {
		out, err = w.cfg.Pacer.Failed(ctx, f)
		return err
	})
	if !out.Opened {
		return out
	}
	if alone := f.Scope != "" && f.Scope != job.ScopeGateway; alone && f.Flow.Kept {
		w.failedAlone(a, f, out)
		return out
	}
	switch f.Kind {
	case job.Deny:
		w.cfg.Log.Error("the gateway does not let us in: held, nothing is refused; check its credentials", "job", a.Job.ID, "answer", f.Why, "held", out.Held)
	case job.Wait:
		w.cfg.Log.Warn("the gateway asks to wait: held", "job", a.Job.ID, "answer", f.Why, "held", out.Held)
	default:
		w.cfg.Log.Error("circuit open: the gateway is not called until a probe call succeeds; jobs wait, no attempts are spent",
			"because", f.Why, "held", out.Held, "job", a.Job.ID)
	}
	return out
}

// failedAlone logs a hold of one route or lane.
func (w *Worker) failedAlone(a job.Attempt, f job.Failure, out job.Fallout) {
	of := []any{"job", a.Job.ID, "answer", f.Why, "held", out.Held, "scope", f.Scope, "route", f.Flow.Route}
	if f.Scope == job.ScopeLane {
		of = append(of, "lane", f.Flow.Lane)
	}
	switch {
	case f.Kind == job.Deny:
		w.cfg.Log.Error("the gateway does not let one in: held alone, nothing is refused; check its credentials", of...)
	case f.Kind == job.Wait:
		w.cfg.Log.Warn("the gateway asks to wait: held alone", of...)
	default:
		w.cfg.Log.Error("circuit of a route open: it is not called until a probe call succeeds; jobs wait, no attempts are spent", of...)
	}
}
