package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/outcome"
)

// takeCostly is how long a job waits here for a slot of its own cost before it goes back to the queue.
const takeCostly = 2 * time.Second

// call sends the job at its slot and deals with what comes of it.
func (w *Worker) call(ctx context.Context, a job.Attempt, slot Slot, latest time.Time) {
	slot, err := w.fit(ctx, a, slot)
	if err != nil {
		w.unfit(ctx, a, err)
		return
	}
	tooLate := func(now time.Time) bool { return now.After(latest) || slot.TooLate(now) }
	slot.Ready(w.cfg.Clock.Now())
	begun := w.cfg.Clock.Now()
	res := w.cfg.Sender.Send(ctx, Call{Job: a.Job, Key: a.Key(), Due: slot.Due(), TooLate: tooLate})
	if res.Stage == job.NotSent {
		slot.Release(ctx)
	} else {
		slot.Written(res.Wrote)
		defer slot.End(ctx) // after the pacer has heard what the call came to: a probe without news lets another one go
	}
	if res.Late {
		w.giveBack(ctx, a)
		return
	}
	received := w.cfg.Clock.Now()
	j := w.cfg.Judge.Judge(outcome.Input{Result: res, KeySent: w.cfg.Keys, KeyLives: w.keyLives(a), Received: received})
	e := ending(res, j, begun)
	w.cfg.Metrics.called(w.cfg.Gateway, j.Verdict, res)
	if res.Stage == job.Answered && j.Verdict != job.VerdictHold {
		w.cfg.Pacer.Succeeded(ctx) // any answer but "wait" says that the gateway is there: after a hold the rest may follow
	}
	w.finish(ctx, a, e, j)
}

// fit trades a slot whose cost is too small for this job against one of its own cost.
func (w *Worker) fit(ctx context.Context, a job.Attempt, slot Slot) (Slot, error) {
	if slot.Cost() >= a.Job.Cost {
		return slot, nil
	}
	slot.Release(ctx)
	taking, cancel := context.WithTimeout(w.cfg.Stopping, takeCostly)
	defer cancel()
	return w.cfg.Pacer.Take(taking, a.Job.Cost)
}

// unfit deals with a job that got no slot of its cost: there was none in time, or there can be none as the limits are.
// Then it steps aside, so that it does not stop the queue.
func (w *Worker) unfit(ctx context.Context, a job.Attempt, err error) {
	if !errors.Is(err, ErrCost) {
		w.giveBack(ctx, a)
		return
	}
	e := job.Ending{Error: err.Error() + ": raise it, or discard the job"}
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, costlyWait) })
	w.cfg.Log.Warn("a job costs too much", "job", a.Job.ID, "cost", a.Job.Cost, "wait", costlyWait, "error", err)
}

// giveBack puts a job that was not called back at the head of the queue. No attempt is spent.
func (w *Worker) giveBack(ctx context.Context, a job.Attempt) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, job.Ending{}, 0) })
	w.cfg.Metrics.givenBack(w.cfg.Gateway)
	w.cfg.Log.Debug("given back, its slot had passed", "job", a.Job.ID)
}

// keyLives says whether the gateway still remembers the key that this call carried.
func (w *Worker) keyLives(a job.Attempt) bool {
	return w.cfg.Keys && (!a.KeySent || a.KeyAge < w.cfg.KeyLifetime)
}

func ending(res job.Result, j outcome.Judgement, begun time.Time) job.Ending {
	e := job.Ending{Called: res.Stage != job.NotSent, Spent: j.Spent, Status: res.Status, Verdict: j.Verdict,
		Error: j.Error, At: res.Wrote, Took: res.Took}
	if e.At.IsZero() {
		e.At = begun
	}
	e.Unsure = unsure(res, j.Verdict)
	return e
}

// unsure says that the call may have charged although it is to be tried again: only the same key makes that safe.
func unsure(res job.Result, v job.Verdict) bool {
	switch {
	case v == job.VerdictUnknown || res.Stage == job.Sent:
		return true
	case v != job.VerdictRetry || res.Stage == job.NotSent:
		return false
	}
	return res.Status == 408 || res.Status == 409 || res.Status >= 500
}

// finish writes down what is to become of the job.
func (w *Worker) finish(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement) {
	spent := a.Spent
	if j.Spent {
		spent++
	}
	switch j.Verdict {
	case job.VerdictDone:
		w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Done(ctx, a, e) })
		w.logCall(a, e, "done", 0)
	case job.VerdictHold:
		w.hold(ctx, a, e, j)
	case job.VerdictFewer:
		w.fewer(ctx, a, e)
	case job.VerdictRetry:
		if j.Spent && spent >= w.cfg.Attempts {
			w.park(ctx, a, e, job.Exhausted)
			return
		}
		wait := w.cfg.Backoff(max(spent, 1))
		w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, wait) })
		w.logCall(a, e, "retry", wait)
	case job.VerdictRefused:
		w.park(ctx, a, e, job.Refused)
	default:
		w.park(ctx, a, e, job.UnknownOutcome)
	}
}

// hold stops everybody first and puts the job back at the head of the queue then. No attempt is spent.
func (w *Worker) hold(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement) {
	w.persist(ctx, a.Job.ID, func() error {
		_, err := w.cfg.Pacer.Hold(ctx, j.HoldFor, j.Why)
		return err
	})
	e.Spent = false
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, 0) })
	if j.Alarm {
		w.cfg.Log.Error("the gateway does not let us in: held, nothing is refused; check its credentials", "job", a.Job.ID, "answer", j.Why)
	}
	w.logCall(a, e, "hold", j.HoldFor)
}

// fewer lowers the number of calls under way and puts the job back at the head of the queue. No attempt is spent.
func (w *Worker) fewer(ctx context.Context, a job.Attempt, e job.Ending) {
	var few int64
	w.persist(ctx, a.Job.ID, func() (err error) {
		few, err = w.cfg.Pacer.Fewer(ctx)
		return err
	})
	e.Spent = false
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, 0) })
	w.logCall(a, e, "fewer at once: "+strconv.FormatInt(few, 10), 0)
}

func (w *Worker) park(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.DeadLetters.Park(ctx, a, e, reason) })
	w.cfg.Metrics.parked(w.cfg.Gateway, reason)
	w.logCall(a, e, "parked as "+string(reason), 0)
}

// parkUnsent parks a job that must not be called (again), as the ledger found when the attempt was opened.
func (w *Worker) parkUnsent(ctx context.Context, a job.Attempt, opening job.Opening) {
	reason, why := job.Expired, "its time to expire passed before it was sent"
	e := job.Ending{}
	switch opening {
	case job.OpenUnknown:
		reason, why = job.UnknownOutcome, "an earlier call may have charged, and no living idempotency key covers another one"
		e.Unsure = true
	case job.OpenExhausted:
		reason, why = job.Exhausted, fmt.Sprintf("%d attempts used up, the last one cut off", w.cfg.Attempts)
	}
	e.Error = why
	w.park(ctx, a, e, reason)
}

// logCall writes the one wide line of an attempt. It carries the status, never the answer's body.
func (w *Worker) logCall(a job.Attempt, e job.Ending, next string, wait time.Duration) {
	w.cfg.Log.Info("attempt", "job", a.Job.ID, "batch", a.Job.Batch, "generation", a.Generation, "spent", a.Spent,
		"verdict", e.Verdict, "status", e.Status, "took", e.Took.Round(time.Millisecond), "next", next, "wait", wait)
}
