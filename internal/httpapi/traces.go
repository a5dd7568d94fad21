package httpapi

import (
	"context"
	"time"

	"spillway/internal/admission"
	"spillway/internal/job"
)

// accepted tells the traces of jobs what became of them at the door, which they came to at begun.
func (a *API) accepted(ctx context.Context, jobs []job.Job, answers []admission.Answer, begun time.Time) {
	n := min(len(jobs), len(answers))
	a.cfg.Traces.Accepted(ctx, jobs[:n], func(i int) job.Admittance { return answers[i].Outcome }, begun, time.Now())
}
