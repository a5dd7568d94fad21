// Package tracing makes OpenTelemetry traces of jobs, where the environment asks for them; else there is nothing of it, and a nil Tracer
// does nothing. It is beside the walk: every step may tell it what it did.
//
// A job has one trace, from its acceptance through every attempt, parking and replay until it is done, whatever restarts in between:
// the trace's id, and that of its root, the span "enqueue", follow from the gateway and the job's id. So nothing is kept of a trace with the
// job, in its record or in the queue, and no step can lose it. Spans carry ids, times, states and statuses: never a payload,
// an answer or a secret.
package tracing

import (
	"context"
	"crypto/sha256"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"spillway/internal/job"
)

// scope names the program in its spans.
const scope = "spillway"

// Tracer makes spans. Nil: there are none. Safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

func newTracer(options ...sdk.TracerProviderOption) *Tracer {
	p := sdk.NewTracerProvider(append(options, sdk.WithIDGenerator(ids{}))...)
	return &Tracer{provider: p, tracer: p.Tracer(scope)}
}

// Close sends what was not sent yet, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// root returns the ids of a job's trace and of its first span.
func root(gateway, id string) trace.SpanContextConfig {
	sum := sha256.Sum256([]byte(gateway + "\x00" + id))
	c := trace.SpanContextConfig{}
	copy(c.TraceID[:], sum[:16])
	copy(c.SpanID[:], sum[16:24])
	return c
}

// parent returns the root of a job's trace for spans to go below it. The sampler is asked as it was when the root itself was made, for
// the root is not at hand: so every process decides the same. What is begun for that is never ended, so nobody hears of it.
func (t *Tracer) parent(gateway, id string) trace.SpanContext {
	_, asked := t.tracer.Start(withRoot(context.Background(), root(gateway, id)), "enqueue", trace.WithNewRoot())
	return asked.SpanContext().WithRemote(true)
}

// Accepted makes the roots of the traces of jobs that were taken in, between two moments: those whose outcome is that they are enqueued or
// parked now. A span in ctx is linked to.
func (t *Tracer) Accepted(ctx context.Context, jobs []job.Job, outcome func(i int) job.Admittance, begun, ended time.Time) {
	if t == nil {
		return
	}
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer)}
	if from := trace.SpanContextFromContext(ctx); from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	if len(jobs) == 1 { // whoever reads the caller's trace finds the job's
		trace.SpanFromContext(ctx).AddLink(trace.Link{SpanContext: trace.NewSpanContext(root(jobs[0].Gateway, jobs[0].ID))})
	}
	for i, j := range jobs {
		became := outcome(i)
		if became != job.Enqueued && became != job.ParkedNow {
			continue
		}
		_, span := t.tracer.Start(withRoot(context.Background(), root(j.Gateway, j.ID)), "enqueue", options...)
		if span.IsRecording() {
			span.SetAttributes(of(j.Gateway, j.ID)...)
			span.SetAttributes(attribute.String("spillway.batch", j.Batch), attribute.String("spillway.result", string(became)))
		}
		span.End(trace.WithTimestamp(ended))
	}
}

// Job returns a context in which spans belong to a job's trace. Whether it has one is asked of its sampler.
func (t *Tracer) Job(ctx context.Context, gateway, id string) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, t.parent(gateway, id))
}

// Attempt begins the span of one delivery of a job to a worker. The context is for Step, Note and the log.
func (t *Tracer) Attempt(ctx context.Context, gateway, id string, generation int64) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx, span := t.tracer.Start(t.Job(ctx, gateway, id), "attempt", trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		span.SetAttributes(of(gateway, id)...)
		span.SetAttributes(attribute.Int64("spillway.generation", generation))
	}
	return ctx, span
}

// Replayed tells of parked jobs that were taken in again, and what for.
func (t *Tracer) Replayed(ctx context.Context, gateway string, jobs []job.Return, answers []job.Admittance, begun time.Time) {
	if t == nil {
		return
	}
	for i, r := range jobs {
		if i >= len(answers) || answers[i] != job.Enqueued {
			continue
		}
		_, span := t.tracer.Start(t.Job(ctx, gateway, r.ID), "replay", trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer))
		if span.IsRecording() {
			span.SetAttributes(of(gateway, r.ID)...)
			span.SetAttributes(attribute.String("spillway.reason", string(r.Reason)), attribute.Int64("spillway.generation", r.Generation+1))
		}
		span.End()
	}
}

// Begin begins a span of the process's own, below the one in ctx, or a trace if there is none.
func (t *Tracer) Begin(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
}

// Step tells of a part of what the span in ctx is about, when it is over. A client is a call to somebody else.
func Step(ctx context.Context, name string, client bool, begun, ended time.Time, about ...attribute.KeyValue) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return
	}
	kind := trace.SpanKindInternal
	if client {
		kind = trace.SpanKindClient
	}
	_, span := above.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithTimestamp(begun), trace.WithSpanKind(kind), trace.WithAttributes(about...))
	span.End(trace.WithTimestamp(ended))
}

// Note says more of the span in ctx; failed marks it as an error.
func Note(ctx context.Context, failed bool, about ...attribute.KeyValue) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(about...)
	if failed {
		span.SetStatus(codes.Error, "")
	}
}

// Traced says whether what ctx is about is traced: then it is worth gathering what to say of it.
func Traced(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

func of(gateway, id string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("spillway.gateway", gateway), attribute.String("spillway.job", id)}
}
