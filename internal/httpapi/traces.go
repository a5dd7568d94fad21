package httpapi

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
)

// accepted records in the jobs' traces what admission did with them, which started at begun.
func (a *API) accepted(ctx context.Context, jobs []job.Job, answers []admission.Answer, begun time.Time) {
	n := min(len(jobs), len(answers))
	a.cfg.Traces.Accepted(ctx, jobs[:n], func(i int) job.Admittance { return answers[i].Outcome }, begun, time.Now())
}
