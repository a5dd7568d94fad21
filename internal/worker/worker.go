// Package worker joins steps 4 to 7 of 8 for one job: the slot, the gateway call, its outcome, and the finish or the
// dead letter. It decides nothing itself: the pacer says when, the outcome table what, the ledger who.
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
	"sync/atomic"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/outcome"
	"spillway/internal/tracing"
)

// errHeld is for the queue alone: it delivers the task again, when calls may go.
var errHeld = errors.New("nothing is called: Redis's data is not what was seen of it")

// Pacer hands out slots, keeps holds, and counts failures.
type Pacer interface {
	// Take waits for a slot of that cost for the job of that id, or, with an empty one, for none that the queue has. It returns job.ErrCost if there can be none.
	Take(ctx context.Context, cost int64, id string) (job.Slot, error)
	// Retake is Take for a job that is ready and whose slot has passed. It returns an error where it would wait for more than its time.
	Retake(ctx context.Context, cost int64, id string) (job.Slot, error)
	// Passed says that the slot can't be used any more.
	Passed(s job.Slot, now time.Time) bool
	// Behind is how far back a slot lies by now, on the clock that attempts' deadlines go by, and also while this machine was suspended; ok is false where that clock has
	// been set since.
	Behind(s job.Slot, now time.Time) (d time.Duration, ok bool)
	// Due is the local moment before which nothing may be written.
	Due(s job.Slot) time.Time
	// TooLate says that the slot passed too long before now: release it and send nothing.
	TooLate(s job.Slot, now time.Time) bool
	// Ready tells how early the job was ready for its slot.
	Ready(s job.Slot, at time.Time)
	// Written tells when the call was written.
	Written(s job.Slot, at time.Time)
	// Release gives unused slots back. What can't be given back stays charged: that wastes it and breaks no limit.
	Release(ctx context.Context, slots ...job.Slot) error
	// End says that the call is over.
	End(ctx context.Context, s job.Slot)
	// Succeeded says that the slot's call succeeded, and reports whether this closed the circuit. first: its job had never been called before.
	Succeeded(ctx context.Context, s job.Slot, first bool) (closed bool)
	// Failed counts a call that met trouble, over all processes, and stops everybody's calls where it is the gateway's.
	Failed(ctx context.Context, f job.Failure) (job.Fallout, error)
	// Fewer lowers the number of calls that may be under way at once, and returns it; 0 if one was too many already.
	Fewer(ctx context.Context) (int64, error)
}

// Ledger writes down attempts and their ends.
type Ledger interface {
	Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error)
	Done(ctx context.Context, a job.Attempt, e job.Ending) error
	// Back puts the job at the head of the queue (wait 0) or lets it wait out a back-off.
	Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error
}

// DeadLetters parks jobs.
type DeadLetters interface {
	// ParkOrAsk parks a job; asked says that it is pending instead, since the gateway is asked whether it was charged.
	ParkOrAsk(ctx context.Context, a job.Attempt, e job.Ending, reason job.Reason) (asked bool, err error)
	ParkUnreadable(ctx context.Context, id string, content []byte, why string) error
}

// Sender calls the gateway. It always returns something to judge.
type Sender interface {
	Send(ctx context.Context, r job.Request) job.Result
}

// Config is what a worker works with.
type Config struct {
	Gateway     string
	Pacer       Pacer
	Ledger      Ledger
	DeadLetters DeadLetters
	Sender      Sender
	Judge       outcome.Table
	// Routes are how jobs of the gateway's routes are called, by their names; those that name none go by Sender, Judge and Sent. Nil: there are none.
	Routes  map[string]Route
	Backoff func(attempt int) time.Duration
	// Attempts is how many calls a job may use up before it is parked as exhausted; at least 1.
	Attempts int
	// Timeout is the gateway's: how long one call may take.
	Timeout time.Duration
	// Keys says that an idempotency key goes with each call; KeyLifetime is how long after its first call another one may begin with it. Zero: a key
	// covers no second call.
	Keys        bool
	KeyLifetime time.Duration
	// Sent is the ledger's digest of what a call is made of.
	Sent string
	// Owner starts the fencing token of each attempt: unique to this process.
	Owner string
	// Stopping ends when no new call may start any more.
	Stopping context.Context
	Clock    clock.Clock
	Metrics  *Metrics
	Log      *slog.Logger
	// Traces hears of each attempt. Nil: nobody does.
	Traces *tracing.Tracer
}

// Route is how the jobs of one route are called.
type Route struct {
	Sender Sender
	Judge  outcome.Table
	// Sent is as in Config.
	Sent string
	// Circuit says that the route has a circuit of its own: a call of it that fails says nothing of other routes. OwnHost says that neither does one that could not be
	// made, as the route calls another host than the gateway's own request.
	Circuit, OwnHost bool
}

// Worker deals with one gateway's deliveries. Safe for concurrent use.
type Worker struct {
	cfg     Config
	meters  meters
	next    counter
	alarmed atomic.Int64 // when the log last said, as an error, that a payload's key is missing (ns)
}

// New returns a worker.
func New(cfg Config) *Worker {
	cfg.Log = cfg.Log.With("gateway", cfg.Gateway)
	return &Worker{cfg: cfg, meters: cfg.Metrics.of(cfg.Gateway)}
}

// costlyWait is how long a job waits that costs more than a limit can grant: until then somebody may have raised it.
const costlyWait = time.Minute

// margin is added to an attempt's deadline: nobody may judge the attempt before it, since it may be a stall with the
// call still under way.
const margin = 10 * time.Second

// Handle deals with one delivery. It returns nil when what is to happen next is written down; with an error the
// task must be delivered again.
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
		w.call(ctx, a, to, slot, latest(begun, due))
		return nil
	}
	_ = w.cfg.Pacer.Release(ctx, slot)
	if err == nil {
		w.dontCall(ctx, a, opening, d)
	}
	return err
}

// route returns how the jobs of a route are called; has is false if the configuration does not have it.
func (w *Worker) route(name string) (to Route, has bool) {
	if name == "" {
		return Route{Sender: w.cfg.Sender, Judge: w.cfg.Judge, Sent: w.cfg.Sent}, true
	}
	to, has = w.cfg.Routes[name]
	return to, has
}

func unrouted(name string) string {
	return fmt.Sprintf("the configuration of the dispatcher has no route %q at this gateway: put it back there, or take the job out with \"dispatcher park\"", name)
}

// handBack puts a job that gets no slot any more, since we are stopping, back at the head of the queue. An error would have asynq put
// it aside, where it stays unseen until somebody sweeps.
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

// dontCall deals with a job that must not be called.
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
		w.putAside(ctx, a, opening)
		return
	}
	w.parkUnsent(ctx, a, opening)
}

// handleForeign parks something in the queue that is not a job.
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

// latest is when a call must have been written so that it ends within its attempt's deadline, which counts from the opening: a
// stall in between would otherwise let the call go out after others have judged the attempt.
func latest(begun, due time.Time) time.Time {
	return begun.Add(max(due.Sub(begun), 0) + margin/2)
}

// open writes the attempt down, for a call that is due then. While Redis does not answer it tries again: nothing was sent yet.
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
		w.cfg.Log.Warn("attempt not written down, trying again", "job", d.JobID, "error", err)
		select {
		case <-w.cfg.Clock.After(wait):
		case <-w.cfg.Stopping.Done():
			w.retract(ctx, d, owner)
			return a, "", err
		}
	}
}

// retractWithin bounds a stop: Redis may be away.
const retractWithin = 2 * time.Second

// retract puts a job back, if it can, whose attempt may be written down although its answer was lost, or no replica has it: whoever found
// it cut off would think that it was called.
func (w *Worker) retract(ctx context.Context, d job.Delivery, owner string) {
	ctx, cancel := context.WithTimeout(ctx, retractWithin)
	defer cancel()
	a := job.Attempt{Job: job.Job{ID: d.JobID}, Generation: d.Generation, Owner: owner}
	if err := w.cfg.Ledger.Back(ctx, a, job.Ending{}, 0); err != nil {
		w.cfg.Log.Warn("an attempt that was not called may stand open until its deadline", "job", d.JobID, "error", err)
	}
}
