package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/outcome"
)

// takeCostly is how long a job waits here for a slot of its own cost before it goes back to the queue.
const takeCostly = 2 * time.Second

// call sends the job at its slot and deals with what comes of it.
func (w *Worker) call(ctx context.Context, a job.Attempt, to Route, slot job.Slot, latest time.Time) {
	fence := fence{w.cfg.Pacer, slot, latest}
	slot, err := w.fit(ctx, a, slot)
	if err != nil {
		w.unfit(ctx, a, err)
		return
	}
	res, slot, begun := w.send(ctx, a, to.Sender, slot, fence)
	if res.Late || res.Stage == job.NotSent && errors.Is(res.Err, job.ErrLocal) { // nobody's fault but this machine's: another process may call it
		_ = w.cfg.Pacer.Release(ctx, slot)
		w.giveBack(ctx, a)
		return
	}
	received := w.cfg.Clock.Now()
	j := to.Judge.Judge(outcome.Input{Result: res, KeySent: w.cfg.Keys, KeyLives: w.keyLives(a), Again: a.KeySent || a.Lapse, Unsure: a.Unsure, Lapse: a.Lapse,
		Last: a.LastError, Received: received, Job: a.Job})
	w.meters.called(j.Verdict, res)
	e := ending(res, j, begun)
	out := w.tell(ctx, a, slot, res, j)
	e.Outage, e.Trouble = out.Outage, !out.At.IsZero()
	if !out.Own { // it may turn out as the beginning of an outage
		e.Failed = out.At
	}
	// The pacer has heard by now what the call came to: a call sent ahead that ends without news lets another one go.
	if res.Stage == job.NotSent && res.Wrote.IsZero() { // a proxy may have had what the gateway has not seen: the pacer counts that
		_ = w.cfg.Pacer.Release(ctx, slot)
	} else {
		defer w.cfg.Pacer.End(ctx, slot)
	}
	w.finish(ctx, a, e, j, out)
	w.traceOutcome(ctx, "outcome", received, string(j.Verdict))
}

// send writes the call at its slot. On a busy machine slots pass before their jobs are ready; a job that is ready then takes another one, as it would be late
// again if it went back to the queue and came the whole way again. It returns the slot of the last try, and when that began.
func (w *Worker) send(ctx context.Context, a job.Attempt, to Sender, slot job.Slot, fence fence) (job.Result, job.Slot, time.Time) {
	for {
		begun := w.cfg.Clock.Now()
		w.cfg.Pacer.Ready(slot, begun)
		res := job.Result{Stage: job.NotSent, Late: true}
		if !fence.over(begun) && !w.cfg.Pacer.Passed(slot, begun) {
			// The pacer hears of the write before the answer: a call that went out late must be known while its window lasts.
			res = to.Send(ctx, job.Request{Job: a.Job, Key: a.Key(), Due: w.cfg.Pacer.Due(slot),
				TooLate: func(now time.Time) bool { return fence.over(now) || w.cfg.Pacer.TooLate(slot, now) },
				Wrote:   func(at time.Time) { w.cfg.Pacer.Written(slot, at) }})
			w.traceCall(ctx, begun, res)
		}
		if !res.Late {
			return res, slot, begun
		}
		_ = w.cfg.Pacer.Release(ctx, slot)
		now := w.cfg.Clock.Now()
		if fence.over(now) {
			return res, job.Slot{}, begun
		}
		again, err := w.retake(a, fence.latest.Sub(now))
		if err != nil {
			return res, job.Slot{}, begun
		}
		slot = again
	}
}

// retake takes another slot for a job that is ready, if there is one within that time.
func (w *Worker) retake(a job.Attempt, within time.Duration) (job.Slot, error) {
	taking, cancel := context.WithTimeout(w.cfg.Stopping, within)
	defer cancel()
	return w.cfg.Pacer.Retake(taking, a.Job.Cost, a.Job.ID)
}

// fence keeps a job from being called when others may have judged its attempt. This process's own clock stands still while the machine is suspended and knows
// nothing of Redis's clock, by which they judge: so it goes by the job's first slot as well, which lies on that.
type fence struct {
	pacer  Pacer
	first  job.Slot
	latest time.Time
}

func (f fence) over(now time.Time) bool {
	behind, ok := f.pacer.Behind(f.first, now)
	return !ok || behind > margin/2 || now.After(f.latest)
}

// fit trades a slot whose cost is too small for this job against one of its own cost.
func (w *Worker) fit(ctx context.Context, a job.Attempt, slot job.Slot) (job.Slot, error) {
	if slot.Cost >= a.Job.Cost {
		return slot, nil
	}
	_ = w.cfg.Pacer.Release(ctx, slot)
	taking, cancel := context.WithTimeout(w.cfg.Stopping, takeCostly)
	defer cancel()
	return w.cfg.Pacer.Take(taking, a.Job.Cost, a.Job.ID)
}

// unfit deals with a job that got no slot of its cost: there was none in time, or there can be none as the limits are.
// Then it steps aside, so that it does not stop the queue.
func (w *Worker) unfit(ctx context.Context, a job.Attempt, err error) {
	if !errors.Is(err, job.ErrCost) {
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
	w.cfg.Log.Debug("given back uncalled", "job", a.Job.ID)
}

// asideWait is how long a job waits whose payload can't be opened here, or whose route this process does not know: until then somebody may have given the key or the
// route, or a process takes it that has it.
const asideWait = time.Minute

// putAside lets a job wait that can't be called as this process is configured: its key is missing, it was never sealed and must be, or its route is not there. It steps aside, so that it does not stop those that can be opened;
// no attempt is spent, and nothing is parked, since all others may want the same.
func (w *Worker) putAside(ctx context.Context, a job.Attempt, opening job.Opening) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, job.Ending{Error: a.LastError}, asideWait) })
	if opening == job.OpenUnrouted {
		w.cfg.Metrics.unrouted(w.cfg.Gateway)
	} else {
		w.cfg.Metrics.unopened(w.cfg.Gateway)
	}
	level := slog.LevelDebug
	if now := w.cfg.Clock.Now(); now.Sub(time.Unix(0, w.alarmed.Load())) >= asideWait { // a million jobs may want the same key
		w.alarmed.Store(now.UnixNano())
		level = slog.LevelError
	}
	w.cfg.Log.Log(ctx, level, "a job can't be called: put aside", "job", a.Job.ID, "wait", asideWait, "error", a.LastError)
}

// keyLives says whether another call may still go out with the key that this one carried.
func (w *Worker) keyLives(a job.Attempt) bool {
	return w.cfg.Keys && w.cfg.KeyLifetime > 0 && (!a.KeySent || a.KeyAge < w.cfg.KeyLifetime)
}

func ending(res job.Result, j outcome.Judgement, begun time.Time) job.Ending {
	e := job.Ending{Called: res.Stage != job.NotSent, Spent: j.Spent, Status: res.Status, Verdict: j.Verdict,
		Error: j.Error, At: res.Wrote, Took: res.Took, Reference: j.Reference, Foreign: j.Foreign}
	if e.At.IsZero() {
		e.At = begun
	}
	e.Unsure = unsure(res, j.Verdict)
	return e
}

// unsure says that the call may have charged although it is to be tried again: only the same key makes that safe. A rule that takes
// a 408 or a 5xx for a wait does not change that: only 503 says that nothing was tried.
func unsure(res job.Result, v job.Verdict) bool {
	switch {
	case v == job.VerdictUnknown || v == job.VerdictAccepted || res.Stage == job.Sent:
		return true
	case res.Stage == job.NotSent:
		return false
	case v == job.VerdictHold || v == job.VerdictFewer:
		return res.Status == 408 || res.Status >= 500 && res.Status != 503
	case v == job.VerdictRetry: // below 400 a rule waits for what was begun, and so it does with 409 and 422
		return res.Status < 400 || res.Status == 408 || res.Status == 409 || res.Status == 422 || res.Status >= 500
	case v == job.VerdictDone || v == job.VerdictRefused || v == job.VerdictNewKey: // its answer is definite
		return false
	}
	return true
}

// finish writes down what is to become of the job.
func (w *Worker) finish(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement, out told) {
	if e.Unsure && !w.keyLives(a) { // whatever a rule wants: another call might charge again
		w.park(ctx, a, e, job.UnknownOutcome)
		return
	}
	if j.Renew {
		w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, job.Ending{}, 0) })
		w.cfg.Log.Debug("put back: its access token was not taken", "job", a.Job.ID)
		return
	}
	switch j.Verdict {
	case job.VerdictDone:
		w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Done(ctx, a, e) })
		w.meters.done(a, w.cfg.Clock.Now())
		w.logCall(ctx, a, e, "done", 0)
	case job.VerdictHold:
		w.hold(ctx, a, e, j, out.Fallout)
	case job.VerdictFewer:
		if out.few == 0 {
			w.hold(ctx, a, e, j, out.Fallout)
			return
		}
		e.Spent = false
		w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, 0) })
		w.logCall(ctx, a, e, "fewer at once: "+strconv.FormatInt(out.few, 10), 0)
	case job.VerdictRetry:
		w.retry(ctx, a, e, out.Fallout)
	case job.VerdictNewKey: // the ledger and the store take the next key in the script that ends the attempt
		w.again(ctx, a, e, 0)
	case job.VerdictRefused:
		w.park(ctx, a, e, job.Refused)
	case job.VerdictUnknown, job.VerdictAccepted:
		fallthrough
	default:
		w.park(ctx, a, e, job.UnknownOutcome)
	}
}

// endless is an attempt whose back-off has grown as long as it ever does.
const endless = 64

// retry lets the job wait out a back-off, or parks it when its attempts are used up. An answer that spends none ("too early") makes
// it wait half as long again as it has so far, or one that always gets it would call for ever at the first back-off. A failure of the gateway's that was its last
// attempt may turn out as the beginning of an outage: then the ledger says, when the job comes again, whether it counts.
func (w *Worker) retry(ctx context.Context, a job.Attempt, e job.Ending, out job.Fallout) {
	if !e.Outage.IsZero() {
		e.Spent = false
		w.waitOut(ctx, a, e, "retry: the gateway is down", w.aside(out))
		return
	}
	if !e.Spent && e.Called && a.KeySent {
		w.waitOut(ctx, a, e, "retry", max(w.cfg.Backoff(1), min(a.KeyAge/2, w.cfg.Backoff(endless))))
		return
	}
	w.again(ctx, a, e, 0)
}

// aside is how long a job that met an outage waits. It is called after those that were never called, so it need not wait for the end of the hold.
func (w *Worker) aside(out job.Fallout) time.Duration {
	if out.Held <= 0 { // others are tried at once
		return w.cfg.Backoff(1)
	}
	return min(w.cfg.Backoff(1), max(out.Held, leastOutageWait))
}

// again lets the job wait out a back-off, at least so long, or parks it when its attempts are used up.
func (w *Worker) again(ctx context.Context, a job.Attempt, e job.Ending, least time.Duration) {
	spent := a.Spent
	if e.Spent {
		spent++
	}
	switch {
	case !e.Spent || spent < w.cfg.Attempts:
		w.waitOut(ctx, a, e, "retry", max(w.cfg.Backoff(max(spent, 1)), least))
	case !e.Failed.IsZero():
		w.waitOut(ctx, a, e, "exhausted, unless this was an outage", w.cfg.Backoff(1))
	default:
		w.park(ctx, a, e, job.Exhausted)
	}
}

func (w *Worker) waitOut(ctx context.Context, a job.Attempt, e job.Ending, next string, wait time.Duration) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, wait) })
	w.logCall(ctx, a, e, next, wait)
}

// hold lets the job step aside that was told to wait, or not let in, when everybody has been stopped: no attempt is spent.
// Where nobody was stopped, since the trouble is the job's own or not known to be the gateway's, its attempt counts.
func (w *Worker) hold(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement, out job.Fallout) {
	if out.Outage.IsZero() {
		e.Spent = true
		w.again(ctx, a, e, j.HoldFor)
		return
	}
	e.Spent = false
	w.waitOut(ctx, a, e, "hold", w.aside(out))
}

func (w *Worker) park(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) {
	begun, asked := w.cfg.Clock.Now(), false
	w.persist(ctx, a.Job.ID, func() (err error) {
		asked, err = w.cfg.DeadLetters.ParkOrAsk(ctx, a, e, reason)
		return err
	})
	if asked {
		w.logCall(ctx, a, e, "pending: the gateway is asked what came of it", 0)
		return
	}
	w.traceOutcome(ctx, "park", begun, string(reason))
	w.cfg.Metrics.parked(w.cfg.Gateway, reason)
	w.logCall(ctx, a, e, "parked as "+string(reason), 0)
}

// Exhausted notes that a job was parked when its back-off was over, its attempts being used up.
func (w *Worker) Exhausted(id string) { w.Parked(id, job.Exhausted) }

// Parked notes that a job was parked without an attempt.
func (w *Worker) Parked(id string, reason job.Reason) {
	w.cfg.Metrics.parked(w.cfg.Gateway, reason)
	w.cfg.Log.Info(LineParked, "job", id, "reason", reason)
}

// parkUnsent parks a job that must not be called (again), as the ledger found when the attempt was opened.
func (w *Worker) parkUnsent(ctx context.Context, a job.Attempt, opening job.Opening) {
	reason, why := job.Expired, "its time to expire passed before it was sent"
	to, _ := w.route(a.Job.Route)
	e := job.Ending{}
	switch opening {
	case job.OpenUnknown:
		reason, why = job.UnknownOutcome, "an earlier call may have charged, and no living idempotency key covers another one"
		e.Unsure = true
	case job.OpenDiffers:
		reason, why = job.UnknownOutcome, differs(a.LastError, to.Sent)
		e.Unsure = true
	case job.OpenExhausted:
		reason, why = job.Exhausted, fmt.Sprintf("%d attempts used up, the last one cut off", w.cfg.Attempts)
		if a.LastError != "" {
			why = a.LastError
		}
	case job.OpenPaused:
		reason, why = job.Paused, a.LastError
	case job.OpenAwaits:
		reason, why = job.AwaitsApproval, a.LastError
	case job.OpenCancelled:
		reason, why = job.Cancelled, a.LastError
	case job.OpenOver:
		reason, why = job.Refused, "not called: "+a.LastError
		if a.Unsure {
			reason, why, e.Unsure = job.UnknownOutcome, "an earlier call may have charged, and another one is not made: "+a.LastError, true
		}
	case job.OpenChanged:
		reason, why = job.Unreadable, a.LastError
		w.cfg.Log.Error("a payload was changed in Redis: its job is not called", "job", a.Job.ID)
	}
	e.Error = why
	w.park(ctx, a, e, reason)
}

// differs says why an unsure job is not called: the gateway would take another call with this key for another payment, or answer that of the first.
func differs(then, now string) string {
	return "an earlier call may have charged, and another one would not be the same request: changed since, in the configuration: " +
		strings.Join(job.SentChanges(then, now), ", ") + `; put that back and replay the job, or look it up and use "dlq resolve"`
}

// The lines of the log that there is one of for each attempt, or for each job that is parked without one.
const (
	LineAttempt = "attempt"
	LineParked  = "parked"
)

// logCall writes the one wide line of an attempt. It carries the status, never the answer's body.
func (w *Worker) logCall(ctx context.Context, a job.Attempt, e job.Ending, next string, wait time.Duration) {
	noteAttempt(ctx, a, e, next)
	if !w.cfg.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	w.cfg.Log.InfoContext(ctx, LineAttempt, "job", a.Job.ID, "batch", a.Job.Batch, "route", a.Job.Route, "generation", a.Generation, "spent", a.Spent,
		"verdict", e.Verdict, "status", e.Status, "took", e.Took.Round(time.Millisecond), "next", next, "wait", wait)
}
