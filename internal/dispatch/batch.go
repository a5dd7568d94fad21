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

// BatchGlance is what one gateway knows of a batch.
type BatchGlance struct {
	record.Batch
	Now time.Time // on Redis's clock
	// ETA is when the last of its jobs that go by themselves will have been called, counting on all that waits at the gateway going
	// first; negative when nobody can say, as Stopped does then.
	ETA time.Duration
	// FromNow is ETA; or, where no dispatcher has ever served the gateway, what it will be if one begins now.
	FromNow time.Duration
	// Stopped says why nobody can say: the batch is paused or cancelled, or the gateway's Glance.Stopped. Empty where ETA is known.
	Stopped string
}

// LookBatch returns a gateway's glance of a batch; ok is false if it knows none of that name.
func LookBatch(ctx context.Context, c redis.UniversalClient, g config.Gateway, name string) (v BatchGlance, ok bool, err error) {
	books := Books(c, g)
	if v.Batch, ok, err = books.Batch(ctx, name); err != nil || !ok {
		return v, ok, err
	}
	gateway, err := Look(ctx, c, g)
	if err != nil {
		return v, ok, err
	}
	v.Now = gateway.Now
	v.ETA, err = batchETA(ctx, books, g, v.Batch, gateway)
	if v.ETA < 0 {
		v.Stopped = batchStopped(v.Batch, gateway)
	}
	v.FromNow = v.ETA
	if err == nil && gateway.Stopped == neverServed {
		gateway.Stopped = ""
		if gateway.ETA, err = lastCall(ctx, c, g, gateway); err == nil {
			v.FromNow, err = batchETA(ctx, books, g, v.Batch, gateway)
		}
	}
	return v, ok, err
}

func batchStopped(b record.Batch, gateway Glance) string {
	switch {
	case !b.Paused.IsZero():
		return "the batch is paused: " + b.Why
	case !b.Cancelled.IsZero():
		return "the batch is cancelled: " + b.Why
	case b.Canary.Waits:
		return fmt.Sprintf("the rest waits until the first %d jobs are done", b.Canary.Jobs)
	}
	return gateway.Stopped
}

func batchETA(ctx context.Context, books *ledger.Books, g config.Gateway, b record.Batch, gateway Glance) (time.Duration, error) {
	in := func(states ...record.Place) int64 {
		var n int64
		for _, p := range states {
			n += b.Places[p].Jobs
		}
		return n
	}
	var timed []job.State // in which its jobs wait for a moment; those of other batches may wait for a much later one
	for _, state := range []job.State{job.Scheduled, job.Retrying} {
		if in(record.Place{State: state}) > 0 {
			timed = append(timed, state)
		}
	}
	waiting := in(record.Place{State: job.Queued}, record.Place{State: job.InFlight}, record.Place{State: job.Scheduled}, record.Place{State: job.Retrying})
	if g.Replay == config.ReplayAuto {
		waiting += in(record.Place{State: job.Parked, Reason: job.Rejected})
	}
	switch {
	case b.Canary.Waits && in(record.Place{State: job.Parked, Reason: job.Paused}) > 0:
		return -1, nil
	case !(b.Paused.IsZero() && b.Cancelled.IsZero()) && waiting+in(record.Place{State: job.Parked, Reason: job.Paused}, record.Place{State: job.Parked, Reason: job.Cancelled}) > 0:
		return -1, nil
	case waiting == 0:
		return 0, nil
	case gateway.ETA < 0 || len(timed) == 0:
		return gateway.ETA, nil
	}
	last, err := books.LastDue(ctx, timed...)
	return max(gateway.ETA, last.Sub(gateway.Now)), err
}
