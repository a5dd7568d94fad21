package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// BatchGlance is a snapshot of a batch at one gateway.
type BatchGlance struct {
	record.Batch
	Now time.Time // on Redis's clock
	// ETA is when the last of its jobs that continue by themselves will have been called, assuming that
	// everything waiting at the gateway goes first. It is negative if unknown; Stopped then says why.
	ETA time.Duration
	// FromNow is ETA, or what ETA would be if a dispatcher started now, if none has ever served the gateway.
	FromNow time.Duration
	// NextLook is when the next look-up of one of its jobs is due; zero if unknown, and in lists.
	NextLook time.Time
	// Stopped says why ETA is unknown: the batch is paused or cancelled, or the gateway's Glance.Stopped. It is
	// empty if ETA is known.
	Stopped string
}

// LookBatch returns a snapshot of a batch at a gateway. ok is false if the gateway knows no such batch.
func LookBatch(ctx context.Context, c redis.UniversalClient, g config.Gateway, name string) (v BatchGlance, ok bool, err error) {
	b, ok, err := Books(c, g).Batch(ctx, name)
	if err != nil || !ok {
		return v, ok, err
	}
	l, err := NewBatchLooker(ctx, c, g)
	if err != nil {
		return v, ok, err
	}
	if v, err = l.Glance(ctx, b); err == nil && jobsIn(b, record.Place{State: job.Pending}) > 0 {
		v.NextLook, err = l.books.NextLook(ctx, name)
	}
	return v, ok, err
}

// BatchLooker takes snapshots of batches at one gateway, and reads the gateway's state only once. It is for use
// by one goroutine.
type BatchLooker struct {
	c       redis.UniversalClient
	g       config.Gateway
	books   *ledger.Books
	gateway Glance
	// begun is the gateway as it would be if a dispatcher started now, for one that was never served; nil until
	// needed.
	begun *Glance
	due   map[job.State]time.Time // cached results of LastDue
}

// NewBatchLooker reads a gateway's state.
func NewBatchLooker(ctx context.Context, c redis.UniversalClient, g config.Gateway) (*BatchLooker, error) {
	gateway, err := Look(ctx, c, g)
	return &BatchLooker{c: c, g: g, books: Books(c, g), gateway: gateway, due: map[job.State]time.Time{}}, err
}

// Glance returns a snapshot of the batch with these totals.
func (l *BatchLooker) Glance(ctx context.Context, b record.Batch) (v BatchGlance, err error) {
	v = BatchGlance{Batch: b, Now: l.gateway.Now}
	if v.ETA, err = l.eta(ctx, b, l.gateway); err != nil {
		return v, err
	}
	if v.ETA < 0 {
		v.Stopped = batchStopped(b, l.gateway)
	}
	v.FromNow = v.ETA
	if l.gateway.Stopped == neverServed {
		v.FromNow, err = l.fromNow(ctx, b)
	}
	return v, err
}

// fromNow returns the ETA of a batch if a dispatcher started now.
func (l *BatchLooker) fromNow(ctx context.Context, b record.Batch) (time.Duration, error) {
	if l.begun == nil {
		begun := l.gateway
		begun.Stopped = ""
		var err error
		if begun.ETA, _, err = lastCall(ctx, l.c, l.g, begun); err != nil {
			return 0, err
		}
		l.begun = &begun
	}
	return l.eta(ctx, b, *l.begun)
}

// UnlookedBatch returns a snapshot of a batch without reading its gateway's state. known is false if the ETA
// requires it.
func UnlookedBatch(g config.Gateway, b record.Batch) (v BatchGlance, known bool) {
	v.Batch = b
	if v.ETA, known = etaByBooks(g, b); v.ETA < 0 {
		v.Stopped = batchStopped(b, Glance{})
	}
	v.FromNow = v.ETA
	return v, known
}

func batchStopped(b record.Batch, gateway Glance) string {
	switch {
	case !b.Paused.IsZero():
		return "the batch is paused: " + b.Why
	case !b.Awaits.Since.IsZero() && b.Cancelled.IsZero():
		return "the batch awaits an approval: " + b.Awaits.Why
	case !b.Cancelled.IsZero():
		return "the batch is cancelled: " + b.Why
	case b.Canary.Waits:
		return fmt.Sprintf("the rest waits until the first %d jobs are done", b.Canary.Jobs)
	}
	return gateway.Stopped
}

// jobsIn counts the jobs of a batch in some places.
func jobsIn(b record.Batch, places ...record.Place) (n int64) {
	for _, p := range places {
		n += b.Places[p].Jobs
	}
	return n
}

// goingJobs returns how many jobs of a batch continue by themselves.
func goingJobs(g config.Gateway, b record.Batch) int64 {
	n := jobsIn(b, record.Place{State: job.Queued}, record.Place{State: job.InFlight}, record.Place{State: job.Scheduled}, record.Place{State: job.Retrying})
	if g.Replay == config.ReplayAuto {
		n += jobsIn(b, record.Place{State: job.Parked, Reason: job.Rejected})
	}
	return n
}

// etaByBooks returns a batch's ETA if it follows from its totals alone.
func etaByBooks(g config.Gateway, b record.Batch) (left time.Duration, known bool) {
	stopped := !b.Paused.IsZero() || !b.Cancelled.IsZero() || !b.Awaits.Since.IsZero()
	going, asked := goingJobs(g, b), jobsIn(b, record.Place{State: job.Pending})
	if b.Canary.Waits && jobsIn(b, record.Place{State: job.Parked, Reason: job.Paused}) > 0 {
		return -1, true
	}
	if stopped && going+jobsIn(b, record.Place{State: job.Parked, Reason: job.Paused}, record.Place{State: job.Parked, Reason: job.Cancelled}, record.Place{State: job.Parked, Reason: job.AwaitsApproval}) > 0 {
		return -1, true
	}
	return 0, going+asked == 0
}

func (l *BatchLooker) eta(ctx context.Context, b record.Batch, gateway Glance) (time.Duration, error) {
	if left, known := etaByBooks(l.g, b); known {
		return left, nil
	}
	left := gateway.ETA
	// Count the times for which its jobs wait, including the next look-up. Jobs of other batches may wait for a
	// much later time.
	for _, state := range []job.State{job.Scheduled, job.Retrying, job.Pending} {
		if left < 0 || jobsIn(b, record.Place{State: state}) == 0 {
			continue
		}
		last, err := l.lastDue(ctx, state)
		if err != nil {
			return left, err
		}
		left = max(left, last.Sub(gateway.Now))
	}
	return left, nil
}

func (l *BatchLooker) lastDue(ctx context.Context, state job.State) (time.Time, error) {
	if at, known := l.due[state]; known {
		return at, nil
	}
	at, err := l.books.LastDue(ctx, state)
	l.due[state] = at
	return at, err
}
