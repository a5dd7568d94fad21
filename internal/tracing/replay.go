package tracing

import (
	"context"
	"time"

	"spillway/internal/job"
)

// Readmitter takes parked jobs in again.
type Readmitter interface {
	Readmit(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error)
}

// Replays returns a Readmitter that tells the traces of a gateway's jobs what it took in.
func (t *Tracer) Replays(gateway string, to Readmitter) Readmitter {
	if t == nil {
		return to
	}
	return replays{to, t, gateway}
}

type replays struct {
	to      Readmitter
	traces  *Tracer
	gateway string
}

// Readmit implements Readmitter.
func (r replays) Readmit(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	begun := time.Now()
	answers, retry, err := r.to.Readmit(ctx, jobs)
	r.traces.Replayed(ctx, r.gateway, jobs, answers, begun)
	return answers, retry, err
}
