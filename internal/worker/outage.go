package worker

import (
	"context"
	"time"

	"spillway/internal/job"
	"spillway/internal/outcome"
)

// leastOutageWait is how long a job that met an outage steps aside at least, so that the next call sent ahead is another job's.
const leastOutageWait = 100 * time.Millisecond

// tell lets the pacer know what a call says of the gateway: that it failed, or that it is there. Any answer but a failure and
// "wait" means the latter, and after a hold the rest may follow.
func (w *Worker) tell(ctx context.Context, a job.Attempt, slot Slot, res job.Result, j outcome.Judgement) Fallout {
	switch {
	case j.Fault:
		return w.failed(ctx, a, slot, res, j)
	case res.Stage == job.Answered && j.Verdict != job.VerdictHold && w.cfg.Pacer.Succeeded(ctx, slot):
		w.cfg.Log.Info("circuit closed: the gateway answers again", "job", a.Job.ID, "status", res.Status)
	}
	return Fallout{}
}

// failed has the failure counted, for as long as that takes: uncounted, it would spend an attempt on an outage.
func (w *Worker) failed(ctx context.Context, a job.Attempt, slot Slot, res job.Result, j outcome.Judgement) (out Fallout) {
	f := Failure{Job: a.Job.ID, Outages: a.Outages, Slot: slot.At(), Took: res.Took, Written: res.Stage != job.NotSent, Why: j.Why}
	if !f.Written {
		f.Why = j.Error
	}
	w.persist(ctx, a.Job.ID, func() (err error) {
		out, err = w.cfg.Pacer.Failed(ctx, f)
		return err
	})
	if out.Opened {
		w.cfg.Log.Error("circuit open: nobody calls the gateway until a call sent ahead succeeds; jobs wait, no attempts are spent",
			"because", f.Why, "held", out.Held, "job", a.Job.ID)
	}
	return out
}
