package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"spillway/internal/job"
	"spillway/internal/tracing"
)

// traceOpen records how long it took to open the attempt.
func (w *Worker) traceOpen(ctx context.Context, begun time.Time, opening job.Opening) {
	if tracing.Traced(ctx) {
		tracing.Step(ctx, "open", false, begun, w.cfg.Clock.Now(), attribute.String("spillway.opening", string(opening)))
	}
}

// traceCall records how long the job then waited for its slot, and the call. The span has the status, never the
// answer's body.
func (w *Worker) traceCall(ctx context.Context, begun time.Time, res job.Result) {
	if !tracing.Traced(ctx) {
		return
	}
	if res.Wrote.IsZero() {
		tracing.Step(ctx, "slot", false, begun, w.cfg.Clock.Now(), attribute.String("spillway.stage", string(res.Stage)))
		return
	}
	tracing.Step(ctx, "slot", false, begun, res.Wrote)
	tracing.Step(ctx, "call", true, res.Wrote, res.Wrote.Add(res.Took),
		attribute.String("spillway.stage", string(res.Stage)), attribute.Int("http.response.status_code", res.Status))
}

// traceOutcome records how long it took to record the job's outcome: that of a call, or its parking.
func (w *Worker) traceOutcome(ctx context.Context, name string, begun time.Time, what string) {
	if tracing.Traced(ctx) {
		tracing.Step(ctx, name, false, begun, w.cfg.Clock.Now(), attribute.String("spillway.outcome", what))
	}
}

// noteAttempt adds to the attempt's span what its log line says.
func noteAttempt(ctx context.Context, a job.Attempt, e job.Ending, next string) {
	if !tracing.Traced(ctx) {
		return
	}
	tracing.Note(ctx, e.Verdict != job.VerdictDone, attribute.String("spillway.batch", a.Job.Batch), attribute.String("spillway.route", a.Job.Route), attribute.Int("spillway.attempt", a.Calls+1),
		attribute.String("spillway.verdict", string(e.Verdict)), attribute.Int("http.response.status_code", e.Status), attribute.String("spillway.next", next))
}
