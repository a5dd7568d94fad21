// Package worker joins steps 4 to 7 of 8 for one job: the slot, the gateway call, its outcome, and the finish
// or the dead letter. It makes no decisions of its own: the pacer decides when, the outcome table what, the
// ledger who.
//
//	delivery (with its slot) → open the attempt → call at the slot → judge → finish
//	                              │                                           ├─ done
//	                              ├─ stale, busy: nothing to do               ├─ back to the head of the queue (hold)
//	                              └─ expired, cut off: park                   ├─ back-off
//	                                                                          └─ park
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/outcome"
	"spillway/internal/tracing"
)

// errHeld is for the queue only: it delivers the task again when calls may be made.
var errHeld = errors.New("nothing is called: Redis's data is not what was seen of it")

// Pacer grants slots, keeps holds, and counts failures.
type Pacer interface {
	// Take waits for a slot of that cost for the job of that id. An empty id means a job that is not in the
	// queue. It returns job.ErrCost if there can be no such slot.
	Take(ctx context.Context, cost int64, id string) (job.Slot, error)
	// Retake is Take for a ready job whose slot has passed. It returns an error instead of waiting longer than
	// its time.
	Retake(ctx context.Context, cost int64, id string) (job.Slot, error)
	// Passed reports whether the slot is too old to be used.
	Passed(s job.Slot, now time.Time) bool
	// Behind returns how long ago the slot was, on the clock that attempts' deadlines use, including the time
	// for which this machine was suspended. ok is false if that clock has been set since.
	Behind(s job.Slot, now time.Time) (d time.Duration, ok bool)
	// Due returns the local time before which nothing may be written.
	Due(s job.Slot) time.Time
	// TooLate reports whether the slot passed too long before now: release it and send nothing.
	TooLate(s job.Slot, now time.Time) bool
	// Ready reports how early the job was ready for its slot.
	Ready(s job.Slot, at time.Time)
	// Written reports when the call was written.
	Written(s job.Slot, at time.Time)
	// Release gives unused slots back. A slot that can't be given back stays charged, which wastes it but
	// breaks no limit.
	Release(ctx context.Context, slots ...job.Slot) error
	// Trim gives back what a slot costs more than its job needs, and returns the slot with its new cost. After an
	// error the slot that it returns can't be used, only released.
	Trim(ctx context.Context, s job.Slot, need int64) (job.Slot, error)
	// End reports the end of the call.
	End(ctx context.Context, s job.Slot)
	// Succeeded reports that the slot's call succeeded, and returns whether this closed the circuit. first: the
	// job had never been called before.
	Succeeded(ctx context.Context, s job.Slot, first bool) (closed bool)
	// Failed counts a call that met trouble, over all processes, and stops all calls if the trouble is the
	// gateway's.
	Failed(ctx context.Context, f job.Failure) (job.Fallout, error)
	// Fewer lowers the maximum of calls in flight, and returns it; 0 if one was too many already.
	Fewer(ctx context.Context) (int64, error)
}

// Ledger records attempts and their ends.
type Ledger interface {
	Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error)
	Done(ctx context.Context, a job.Attempt, e job.Ending) error
	// Back puts the job at the head of the queue (wait 0), or makes it wait for a back-off.
	Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error
}

// DeadLetters parks jobs.
type DeadLetters interface {
	// ParkOrAsk parks a job. asked says that it is pending instead, because look-ups will find out whether it
	// was charged.
	ParkOrAsk(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) (asked bool, err error)
	ParkUnreadable(ctx context.Context, id string, content []byte, why string) error
}

// Sender calls the gateway. It always returns a result that can be judged.
type Sender interface {
	Send(ctx context.Context, r job.Request) job.Result
}

// Config configures a Worker.
type Config struct {
	Gateway     string
	Pacer       Pacer
	Ledger      Ledger
	DeadLetters DeadLetters
	Sender      Sender
	Judge       outcome.Table
	// Routes say how to call jobs with a route, by the route's name. Jobs without one use Sender, Judge and
	// Sent. Nil: no routes.
	Routes  map[string]Route
	Backoff func(attempt int) time.Duration
	// Attempts is how many attempts a job may spend before it is parked as exhausted; at least 1.
	Attempts int
	// Timeout is the gateway's timeout for one call.
	Timeout time.Duration
	// Keys says that each call carries an idempotency key. KeyLifetime is how long after its first call another
	// call may use it. Zero: a key makes no second call safe.
	Keys        bool
	KeyLifetime time.Duration
	// Sent is the ledger's digest of how a call is formed.
	Sent string
	// Owner is the prefix of each attempt's fencing token, unique to this process.
	Owner string
	// Stopping is done when no new call may start.
	Stopping context.Context
	Clock    clock.Clock
	Metrics  *Metrics
	Log      *slog.Logger
	// Traces records each attempt. Nil: not traced.
	Traces *tracing.Tracer
}

// Route says how to call the jobs of one route.
type Route struct {
	Sender Sender
	Judge  outcome.Table
	// Sent is as in Config.
	Sent string
	// Circuit says that the route has its own circuit: a failed call of it says nothing about other routes.
	// OwnHost says that a call that could not be made doesn't either, because the route calls another host than
	// the gateway's own request.
	Circuit, OwnHost bool
}

// Worker handles one gateway's deliveries. It is safe for concurrent use.
type Worker struct {
	cfg     Config
	meters  meters
	next    counter
	alarmed atomic.Int64 // when a payload's missing key was last logged as an error (ns)
}

// New returns a worker.
func New(cfg Config) *Worker {
	cfg.Log = cfg.Log.With("gateway", cfg.Gateway)
	return &Worker{cfg: cfg, meters: cfg.Metrics.of(cfg.Gateway)}
}

// costlyWait is how long a job waits that costs more than a limit can grant; the limit may be raised by then.
const costlyWait = time.Minute

// margin is added to an attempt's deadline. No other process may judge the attempt before it, because this one
// may only be stalled, with the call still in flight.
const margin = 10 * time.Second

// Handle handles one delivery. It returns nil when what happens next is recorded. After an error the task must
// be delivered again.
func (w *Worker) Handle(ctx context.Context, d job.Delivery) error {
	if d.Foreign {
		w.handleForeign(ctx, d)
		return nil
	}
	ctx, span := w.cfg.Traces.Attempt(ctx, w.cfg.Gateway, d.JobID, d.Generation)
	defer span.End()
	return w.handle(ctx, d)
}

func (w *Worker) handle(ctx context.Context, d job.Delivery) error {
	slot, err := w.slot(d)
	if err != nil {
		return w.handBack(ctx, d)
	}
	begun, due := w.cfg.Clock.Now(), w.cfg.Pacer.Due(slot)
	a, opening, err := w.open(ctx, d, due)
	w.traceOpen(ctx, begun, opening)
	to, has := w.route(a.Job.Route)
	if err == nil && opening == job.OpenGo && !has {
		opening, a.LastError = job.OpenUnrouted, unrouted(a.Job.Route)
	}
	if err == nil && opening == job.OpenGo {
		w.call(ctx, a, to, slot, fenceOf(w.cfg.Pacer, slot, a, due.Sub(begun), begun))
		return nil
	}
	_ = w.cfg.Pacer.Release(ctx, slot)
	if err == nil {
		w.dontCall(ctx, a, opening, d)
	}
	return err
}

// route returns how to call the jobs of a route. has is false if it is not configured.
func (w *Worker) route(name string) (to Route, has bool) {
	if name == "" {
		return Route{Sender: w.cfg.Sender, Judge: w.cfg.Judge, Sent: w.cfg.Sent}, true
	}
	to, has = w.cfg.Routes[name]
	return to, has
}

func unrouted(name string) string {
	return fmt.Sprintf("%s%q at this gateway: put it back there, or take the job out with \"dispatcher park\"", job.Unrouted, name)
}

// handBack puts a job that gets no slot, because the worker is stopping, back at the head of the queue. After
// an error, asynq would put it aside until a sweep finds it.
func (w *Worker) handBack(ctx context.Context, d job.Delivery) error {
	a, opening, err := w.open(ctx, d, time.Time{})
	switch {
	case err != nil:
		return err
	case opening == job.OpenGo:
		w.giveBack(ctx, a)
	default:
		w.dontCall(ctx, a, opening, d)
	}
	return nil
}

// dontCall handles a job that must not be called.
func (w *Worker) dontCall(ctx context.Context, a job.Attempt, opening job.Opening, d job.Delivery) {
	if opening == job.OpenStale || opening == job.OpenBusy {
		w.cfg.Log.Debug("nothing to do for a task", "job", d.JobID, "generation", d.Generation, "because", opening)
		return
	}
	if opening == job.OpenBraked {
		w.giveBack(ctx, a)
		return
	}
	if opening == job.OpenSealed || opening == job.OpenUnrouted {
		w.postpone(ctx, a, opening)
		return
	}
	w.parkUnsent(ctx, a, opening)
}

// handleForeign parks a foreign task.
func (w *Worker) handleForeign(ctx context.Context, d job.Delivery) {
	_ = w.cfg.Pacer.Release(ctx, d.Slot)
	const why = "a task in this gateway's queue that Spillway did not put there"
	w.persist(ctx, d.TaskID, func() error { return w.cfg.DeadLetters.ParkUnreadable(ctx, d.TaskID, d.Payload, why) })
	w.cfg.Metrics.parked(w.cfg.Gateway, job.Unreadable)
	w.cfg.Log.Warn(LineParked, "job", d.TaskID, "reason", job.Unreadable, "error", why)
}

func (w *Worker) slot(d job.Delivery) (job.Slot, error) {
	if !d.Slot.Zero() {
		return d.Slot, nil
	}
	return w.cfg.Pacer.Take(w.cfg.Stopping, 1, d.JobID)
}

// open records the attempt, for a call due then. While Redis does not answer it retries, because nothing was
// sent yet.
func (w *Worker) open(ctx context.Context, d job.Delivery, due time.Time) (job.Attempt, job.Opening, error) {
	owner := w.cfg.Owner + "." + w.next.String()
	for wait := firstPersist; ; wait = min(2*wait, maxPersist) {
		until := max(due.Sub(w.cfg.Clock.Now()), 0) + w.cfg.Timeout + margin
		a, opening, err := w.cfg.Ledger.Open(ctx, d.JobID, d.Generation, owner, until)
		switch {
		case err == nil && opening == job.OpenHeld:
			return a, "", errHeld
		case err == nil:
			return a, opening, nil
		}
		w.cfg.Log.Warn("attempt not recorded, trying again", "job", d.JobID, "error", err)
		select {
		case <-w.cfg.Clock.After(wait):
		case <-w.cfg.Stopping.Done():
			w.retract(ctx, d, owner)
			return a, "", err
		}
	}
}

// retractWithin bounds a stop: Redis may be unreachable.
const retractWithin = 2 * time.Second

// retract puts a job back, if possible, whose attempt may have been recorded although the reply was lost, or
// whose attempt no replica has. If it were found cut off, it would be taken for called.
func (w *Worker) retract(ctx context.Context, d job.Delivery, owner string) {
	ctx, cancel := context.WithTimeout(ctx, retractWithin)
	defer cancel()
	a := job.Attempt{Job: job.Job{ID: d.JobID}, Generation: d.Generation, Owner: owner}
	if err := w.cfg.Ledger.Back(ctx, a, job.Ending{}, 0); err != nil {
		w.cfg.Log.Warn("an attempt that was not called may stand open until its deadline", "job", d.JobID, "error", err)
	}
}

const (
	firstPersist = 50 * time.Millisecond
	maxPersist   = 2 * time.Second
)

// persist records an outcome, and retries until that succeeds: an outcome not recorded would be found as an
// attempt that was cut off, and judged without the gateway's answer.
func (w *Worker) persist(ctx context.Context, id string, write func() error) {
	for wait := firstPersist; ; wait = min(2*wait, maxPersist) {
		err := write()
		if err == nil {
			return
		}
		w.cfg.Metrics.unrecorded(w.cfg.Gateway)
		w.cfg.Log.Warn("outcome not recorded, trying again", "job", id, "error", err)
		select {
		case <-w.cfg.Clock.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

type counter struct{ n atomic.Uint64 }

// String increments the counter and returns the new number.
func (c *counter) String() string { return strconv.FormatUint(c.n.Add(1), 36) }

// parkUnsent parks a job that must not be called (again), as the ledger found on opening the attempt.
func (w *Worker) parkUnsent(ctx context.Context, a job.Attempt, opening job.Opening) {
	reason, why := job.Expired, job.ExpiredUnsent
	to, _ := w.route(a.Job.Route)
	e := job.Ending{}
	switch opening {
	case job.OpenUnknown:
		reason, why = job.UnknownOutcome, job.Uncovered
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

// differs says why an unsure job is not called: the gateway would take another call with this key for another
// payment, or repeat its answer to the first.
func differs(then, now string) string {
	return "an earlier call may have charged, and another one would not be the same request: changed since, in the configuration: " +
		strings.Join(job.SentChanges(then, now), ", ") + `; put that back and replay the job, or look it up and use "dlq resolve"`
}
