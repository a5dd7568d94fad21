package worker

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/outcome"
)

// takeCostly is how long a job waits here for a slot of its own cost before it goes back to the queue.
const takeCostly = 2 * time.Second

// call sends the job at its slot and handles the result.
func (w *Worker) call(ctx context.Context, a job.Attempt, to Route, slot job.Slot, fence fence) {
	slot, err := w.fit(ctx, a, slot)
	if err != nil {
		w.unfit(ctx, a, err)
		return
	}
	res, slot, begun := w.send(ctx, a, to.Sender, slot, fence)
	if res.Late || res.Stage == job.NotSent && errors.Is(res.Err, job.ErrLocal) { // a fault of this machine only: another process may call it
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
	if !out.Own { // it may turn out to be the start of an outage
		e.Failed = out.At
	}
	// By now the pacer knows the result: a probe that ends without news lets another one go.
	if res.Stage == job.NotSent && res.Wrote.IsZero() { // a proxy may have got what the gateway has not seen, and the pacer counts that
		_ = w.cfg.Pacer.Release(ctx, slot)
	} else {
		defer w.cfg.Pacer.End(ctx, slot)
	}
	w.finish(ctx, a, e, j, out)
	w.traceOutcome(ctx, "outcome", received, string(j.Verdict))
}

// send writes the call at its slot. On a busy machine, slots pass before their jobs are ready. A job that is
// ready by then takes another slot, because it would be late again after another pass through the queue. send
// returns the slot of the last try, and when that try began.
func (w *Worker) send(ctx context.Context, a job.Attempt, to Sender, slot job.Slot, fence fence) (job.Result, job.Slot, time.Time) {
	t := &turn{w: w, a: a, fence: fence, slot: slot}
	for {
		begun := w.cfg.Clock.Now()
		w.cfg.Pacer.Ready(slot, begun)
		res := job.Result{Stage: job.NotSent, Late: true}
		if !fence.over(begun) && !w.cfg.Pacer.Passed(slot, begun) {
			// The pacer hears of the write before the answer: a call that was sent late must be known while its
			// window lasts.
			res = to.Send(ctx, job.Request{Job: a.Job, Key: a.Key(), Due: w.cfg.Pacer.Due(slot),
				TooLate: func(now time.Time) bool { return fence.over(now) || w.cfg.Pacer.TooLate(t.now(), now) },
				Again:   func() (time.Time, bool) { return t.again(ctx) },
				Wrote:   func(at time.Time) { w.cfg.Pacer.Written(t.now(), at) }})
			slot = t.end()
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
		t = &turn{w: w, a: a, fence: fence, slot: slot}
	}
}

// retake takes another slot for a ready job, if one is available in time.
func (w *Worker) retake(a job.Attempt, within time.Duration) (job.Slot, error) {
	taking, cancel := context.WithTimeout(w.cfg.Stopping, within)
	defer cancel()
	return w.cfg.Pacer.Retake(taking, a.Job.Cost, a.Job.ID)
}

// fence keeps a job from being called after its expiry, or after other processes may have judged its attempt.
// They judge by Redis's clock, and this process's clock stands still while the machine is suspended. So the
// fence also uses the job's first slot, which is a time on Redis's clock.
type fence struct {
	pacer  Pacer
	first  job.Slot
	behind time.Duration // how long after that slot a call may be written; negative if the job expires before it
	latest time.Time
}

// fenceOf returns the fence of an attempt whose opening began then, with a slot that comes within ahead. The
// call must end within the attempt's deadline, which counts from the opening. A job that expires before that
// goes back to its line, and is parked when it is opened again.
func fenceOf(p Pacer, slot job.Slot, a job.Attempt, ahead time.Duration, begun time.Time) fence {
	within, behind := max(ahead, 0)+margin/2, margin/2
	if a.Left > 0 {
		within, behind = min(within, a.Left), min(behind, a.Left-ahead)
	}
	return fence{p, slot, behind, begun.Add(within)}
}

func (f fence) over(now time.Time) bool {
	behind, ok := f.pacer.Behind(f.first, now)
	return !ok || behind > f.behind || now.After(f.latest)
}

// fit makes a slot cost what this job costs, or replaces it by one that does.
func (w *Worker) fit(ctx context.Context, a job.Attempt, slot job.Slot) (job.Slot, error) {
	if slot.Cost >= a.Job.Cost {
		var err error
		if slot, err = w.cfg.Pacer.Trim(ctx, slot, a.Job.Cost); err == nil {
			return slot, nil
		}
	}
	_ = w.cfg.Pacer.Release(ctx, slot)
	taking, cancel := context.WithTimeout(w.cfg.Stopping, takeCostly)
	defer cancel()
	return w.cfg.Pacer.Take(taking, a.Job.Cost, a.Job.ID)
}

// unfit handles a job that got no slot of its cost, in time or at all with the present limits. In the latter
// case it is set aside so that it does not block the queue.
func (w *Worker) unfit(ctx context.Context, a job.Attempt, err error) {
	if !errors.Is(err, job.ErrCost) {
		w.giveBack(ctx, a)
		return
	}
	e := job.Ending{Error: err.Error() + ": raise it, or discard the job"}
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, e, costlyWait) })
	w.cfg.Log.Warn("a job costs too much", "job", a.Job.ID, "cost", a.Job.Cost, "wait", costlyWait, "error", err)
}

// giveBack puts an uncalled job back at the head of the queue. No attempt is spent.
func (w *Worker) giveBack(ctx context.Context, a job.Attempt) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, job.Ending{}, 0) })
	w.cfg.Metrics.givenBack(w.cfg.Gateway)
	w.cfg.Log.Debug("given back uncalled", "job", a.Job.ID)
}

// postpone makes a job wait that this process's configuration can't call: its key is missing, it is unsealed
// where sealing is required, or its route is missing. It is set aside so that it does not block others. No
// attempt is spent. It is not parked, because all other jobs may need the same fix.
func (w *Worker) postpone(ctx context.Context, a job.Attempt, opening job.Opening) {
	w.persist(ctx, a.Job.ID, func() error { return w.cfg.Ledger.Back(ctx, a, job.Ending{Error: a.LastError}, job.PostponedFor) })
	if opening == job.OpenUnrouted {
		w.Unrouted(1)
	} else {
		w.cfg.Metrics.unopened(w.cfg.Gateway, 1)
	}
	w.cfg.Log.Log(ctx, w.alarm(), "a job can't be called: put aside", "job", a.Job.ID, "wait", job.PostponedFor, "error", a.LastError)
}

// alarm returns the level of the log for a job that lacks something: an error once a minute, because a million jobs may
// lack the same key.
func (w *Worker) alarm() slog.Level {
	now := w.cfg.Clock.Now()
	if now.Sub(time.Unix(0, w.alarmed.Load())) < job.PostponedFor {
		return slog.LevelDebug
	}
	w.alarmed.Store(now.UnixNano())
	return slog.LevelError
}

// keyLives reports whether another call may still be made with this call's key.
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

// unsure reports whether the call may have charged although it is to be retried: only the same key makes that
// safe. A rule that treats a 408, a 499 or a 5xx as a wait does not change that; only a 503 says that nothing was
// tried.
func unsure(res job.Result, v job.Verdict) bool {
	switch {
	case v == job.VerdictUnknown || v == job.VerdictAccepted || res.Stage == job.Sent:
		return true
	case res.Stage == job.NotSent:
		return false
	case v == job.VerdictHold || v == job.VerdictFewer:
		return outcome.TimedOut(res.Status) || res.Status >= 500 && res.Status != 503
	case v == job.VerdictRetry: // below 400, and with 409 and 422, the rule waits for a call that has begun
		return res.Status < 400 || outcome.TimedOut(res.Status) || res.Status == 409 || res.Status == 422 || res.Status >= 500
	case v == job.VerdictDone || v == job.VerdictRefused || v == job.VerdictNewKey: // the answer is definite
		return false
	}
	return true
}

// finish records what becomes of the job.
func (w *Worker) finish(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement, out reaction) {
	if e.Unsure && !w.keyLives(a) { // whatever a rule says: another call might charge again
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
	case job.VerdictNewKey: // the script that ends the attempt takes the next key
		w.again(ctx, a, e, 0)
	case job.VerdictRefused:
		w.park(ctx, a, e, job.Refused)
	case job.VerdictUnknown, job.VerdictAccepted:
		fallthrough
	default:
		w.park(ctx, a, e, job.UnknownOutcome)
	}
}

// endless is an attempt number whose back-off has reached its maximum.
const endless = 64

// retry makes the job wait for a back-off, or parks it if its attempts are used up. An answer that spends no
// attempt ("too early") adds half of the wait so far; otherwise a job that always gets it would be called
// forever at the first back-off. If the last attempt failed because of the gateway, an outage may just have
// begun: then the ledger decides, when the job comes again, whether the attempt counts.
func (w *Worker) retry(ctx context.Context, a job.Attempt, e job.Ending, out job.Fallout) {
	if !e.Outage.IsZero() {
		e.Spent = false
		w.waitOut(ctx, a, e, "retry: the gateway is down", w.outageWait(out))
		return
	}
	if !e.Spent && e.Called && a.KeySent {
		w.waitOut(ctx, a, e, "retry", max(w.cfg.Backoff(1), min(a.KeyAge/2, w.cfg.Backoff(endless))))
		return
	}
	w.again(ctx, a, e, 0)
}

// outageWait returns how long a job that met an outage waits. It is called after jobs that were never called, so it
// need not wait for the end of the hold.
func (w *Worker) outageWait(out job.Fallout) time.Duration {
	if out.Held <= 0 { // others are called at once
		return w.cfg.Backoff(1)
	}
	return min(w.cfg.Backoff(1), max(out.Held, leastOutageWait))
}

// again makes the job wait for a back-off of at least least, or parks it if its attempts are used up.
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

// hold sets a job aside whose answer asked to wait or denied access, after all calls were stopped: no attempt
// is spent. If calls were not stopped, because the trouble is the job's own or not known to be the gateway's,
// the attempt counts.
func (w *Worker) hold(ctx context.Context, a job.Attempt, e job.Ending, j outcome.Judgement, out job.Fallout) {
	if out.Outage.IsZero() {
		e.Spent = true
		w.again(ctx, a, e, j.HoldFor)
		return
	}
	e.Spent = false
	w.waitOut(ctx, a, e, "hold", w.outageWait(out))
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

// Unrouted records that jobs wait on because their route is not configured.
func (w *Worker) Unrouted(n int64) { w.cfg.Metrics.unrouted(w.cfg.Gateway, n) }

// Unopened records that jobs wait on because their payload can't be opened.
func (w *Worker) Unopened(n int64) {
	w.cfg.Metrics.unopened(w.cfg.Gateway, n)
	w.cfg.Log.Log(context.Background(), w.alarm(), "the payloads of jobs can't be opened here: they wait on, uncalled", "jobs", n, "wait", job.PostponedFor)
}

// Exhausted records that a job without attempts left was parked at the end of its back-off.
func (w *Worker) Exhausted(id string) { w.Parked(id, job.Exhausted) }

// Parked records that a job was parked without an attempt.
func (w *Worker) Parked(id string, reason job.Reason) {
	w.cfg.Metrics.parked(w.cfg.Gateway, reason)
	w.cfg.Log.Info(LineParked, "job", id, "reason", reason)
}

// Log messages: one for each attempt, and one for each job parked without an attempt.
const (
	LineAttempt = "attempt"
	LineParked  = "parked"
)

// logCall logs an attempt, in one line. The line has the status, never the answer's body.
func (w *Worker) logCall(ctx context.Context, a job.Attempt, e job.Ending, next string, wait time.Duration) {
	noteAttempt(ctx, a, e, next)
	if !w.cfg.Log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	w.cfg.Log.InfoContext(ctx, LineAttempt, "job", a.Job.ID, "batch", a.Job.Batch, "route", a.Job.Route, "generation", a.Generation, "spent", a.Spent,
		"verdict", e.Verdict, "status", e.Status, "took", e.Took.Round(time.Millisecond), "next", next, "wait", wait)
}

// reaction is the pacer's reaction to the end of a call.
type reaction struct {
	job.Fallout
	few int64 // the new maximum of calls in flight; 0: not lowered
}

// worked reports whether the gateway itself did its work: it has paid, or refused. Any other answer may come
// from a proxy in front of it.
func worked(res job.Result) bool { return job.Ending{Status: res.Status}.Alive() }

// tell tells the pacer what a call says about the gateway: that it is in trouble, or that it works. In the
// latter case a hold ends. An answer that says neither is no news: during a hold, the next probe is sent at
// once. A gateway for which a single call is too many is busy with other clients: it is held.
func (w *Worker) tell(ctx context.Context, a job.Attempt, slot job.Slot, res job.Result, j outcome.Judgement) reaction {
	switch {
	case j.Fault:
		return reaction{Fallout: w.failed(ctx, a, w.failure(a, slot, res, j))}
	case j.Verdict == job.VerdictFewer:
		if few := w.fewer(ctx, a); few > 0 {
			return reaction{few: few}
		}
		return reaction{Fallout: w.failed(ctx, a, w.failure(a, slot, res, j))}
	case j.Verdict == job.VerdictHold:
		return reaction{Fallout: w.failed(ctx, a, w.failure(a, slot, res, j))}
	case worked(res) && w.cfg.Pacer.Succeeded(ctx, slot, res.Status != http.StatusPaymentRequired && !a.KeySent && a.Spent == 0 && a.Outages == 0):
		w.cfg.Log.Info("circuit closed: the gateway answers again", "job", a.Job.ID, "status", res.Status)
	}
	return reaction{}
}
