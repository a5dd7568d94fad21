package tracing

import (
	"context"
	"time"

	"spillway/internal/job"
)

// Replays returns a job.Readmitter that records in the traces of a gateway's jobs that they were admitted
// again.
func (t *Tracer) Replays(gateway string, to job.Readmitter) job.Readmitter {
	if t == nil {
		return to
	}
	return replays{to, t, gateway}
}

type replays struct {
	to      job.Readmitter
	traces  *Tracer
	gateway string
}

// Readmit implements job.Readmitter.
func (r replays) Readmit(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	begun := time.Now()
	answers, retry, err := r.to.Readmit(ctx, jobs)
	r.traces.Replayed(ctx, r.gateway, jobs, answers, begun)
	return answers, retry, err
}
