// Package tracing makes OpenTelemetry traces of jobs if the environment asks for them; otherwise a nil Tracer
// does nothing. Every step may record what it did.
//
// A job has one trace, from its acceptance through every attempt, parking and replay until it is done, across
// restarts: the ids of the trace and of its root, the span "enqueue", are derived from the gateway and the
// job's id. So nothing of a trace is stored with the job, and no step can lose it. Spans carry ids, times,
// states and statuses: never a payload, an answer or a secret.
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

// scope is the program's name in its spans.
const scope = "spillway"

// Tracer makes spans. Nil: none. It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

func newTracer(options ...sdk.TracerProviderOption) *Tracer {
	p := sdk.NewTracerProvider(append(options, sdk.WithIDGenerator(ids{}))...)
	return &Tracer{provider: p, tracer: p.Tracer(scope)}
}

// Close sends the remaining spans, until ctx ends.
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

// parent returns the root of a job's trace as parent of further spans. It asks the sampler as for the root
// itself, which is not available, so that every process decides the same. The span started for that is never
// ended, and so never exported.
func (t *Tracer) parent(gateway, id string) trace.SpanContext {
	_, asked := t.tracer.Start(withRoot(context.Background(), root(gateway, id)), "enqueue", trace.WithNewRoot())
	return asked.SpanContext().WithRemote(true)
}

// Accepted makes the root spans of accepted jobs, for those whose outcome is that they were enqueued or parked
// now. They are linked to a span in ctx.
func (t *Tracer) Accepted(ctx context.Context, jobs []job.Job, outcome func(i int) job.Admittance, begun, ended time.Time) {
	if t == nil {
		return
	}
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindProducer)}
	if from := trace.SpanContextFromContext(ctx); from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	if len(jobs) == 1 { // so that the job's trace can be found from the caller's
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

// Job returns a context in which spans belong to a job's trace. The sampler decides whether it has one.
func (t *Tracer) Job(ctx context.Context, gateway, id string) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, t.parent(gateway, id))
}

// Attempt starts the span of one delivery of a job to a worker. The context is for Step, Note and the log.
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

// Replayed records that parked jobs were admitted again, and how.
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

// Begin starts a span of the process's own, as a child of the one in ctx, or a trace if there is none.
func (t *Tracer) Begin(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
}

// Step records a finished part of the work of the span in ctx. client marks a call to another system.
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

// Note adds attributes to the span in ctx; failed marks it as an error.
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

// Traced reports whether the work in ctx is traced, so that gathering attributes is worthwhile.
func Traced(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

func of(gateway, id string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("spillway.gateway", gateway), attribute.String("spillway.job", id)}
}
