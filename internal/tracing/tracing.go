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
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
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

// LogHandler returns a handler that adds the trace to lines whose context has one.
func (t *Tracer) LogHandler(next slog.Handler) slog.Handler {
	if t == nil {
		return next
	}
	return naming{next}
}

type naming struct{ slog.Handler }

// Handle implements slog.Handler.
func (n naming) Handle(ctx context.Context, r slog.Record) error {
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()))
	}
	return n.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (n naming) WithAttrs(attrs []slog.Attr) slog.Handler { return naming{n.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (n naming) WithGroup(name string) slog.Handler { return naming{n.Handler.WithGroup(name)} }

// Request starts the span of a received HTTP request, as a child of the caller's own if there is one
// (traceparent).
func (t *Tracer) Request(r *http.Request) (context.Context, trace.Span) {
	if t == nil {
		return r.Context(), trace.SpanFromContext(r.Context())
	}
	return t.Begin(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), r.Method, trace.SpanKindServer)
}

// Answered ends the span of a request.
func Answered(span trace.Span, method, route string, status int) {
	if span.IsRecording() {
		span.SetName(method + " " + route)
		span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
	}
	span.End()
}

// Within returns ctx with the span of a traceparent, as programs get it in the environment; ctx itself if it is
// invalid.
func Within(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

type rootKey struct{}

// withRoot makes the next trace started in ctx get these ids.
func withRoot(ctx context.Context, c trace.SpanContextConfig) context.Context {
	return context.WithValue(ctx, rootKey{}, c)
}

// ids generates span ids: those derived from a job for the root of its trace, random ones for all others.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(rootKey{}).(trace.SpanContextConfig); ok {
		return c.TraceID, c.SpanID
	}
	var id trace.TraceID
	rand.Read(id[:])
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	rand.Read(id[:])
	return id
}

// queued is the most spans waiting to be sent, unless OTEL_BSP_MAX_QUEUE_SIZE is set; others are dropped.
const queued = 16384

// Open returns the tracer configured by OpenTelemetry's environment variables, or nil if neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set: then nothing is set up. service is
// the service name unless OTEL_SERVICE_NAME is set. log logs what could not be sent. An error is a usage error.
func Open(ctx context.Context, service string, getenv func(string) string, log *slog.Logger) (*Tracer, error) {
	if on, err := wanted(getenv); err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, usage("OTEL_EXPORTER_OTLP_ENDPOINT: the exporter of traces can't be set up", "write a URL like http://collector:4318")
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, usage("OTEL_RESOURCE_ATTRIBUTES: "+err.Error(), "write key=value,key=value")
	}
	otel.SetErrorHandler(&complaints{log: log})
	var batch []sdk.BatchSpanProcessorOption
	if getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		batch = append(batch, sdk.WithMaxQueueSize(queued))
	}
	return newTracer(sdk.WithBatcher(exporter, batch...), sdk.WithResource(about)), nil
}

// wanted reports whether the environment asks for traces. Unsupported settings are an error, because silently
// missing traces would not be noticed.
func wanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, usage(fmt.Sprintf("OTEL_TRACES_EXPORTER is %q", exporter), "otlp and none are all there is")
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		// The exporter would take an invalid one for localhost.
		if u, err := url.Parse(getenv(name)); getenv(name) != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return false, usage(name+" is not a URL", "write one like http://collector:4318")
		}
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, usage(fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL is %q", protocol), "traces go out as http/protobuf alone: a collector takes it on port 4318")
	}
	return true, nil
}

func usage(message, hint string) error {
	return &job.Error{Code: job.CodeUsage, Message: message, Hint: hint}
}

// complainEvery is how often failures to send traces are logged.
const complainEvery = time.Minute

// complaints logs failures to send, rarely enough that an unreachable collector does not fill the log.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.last) >= complainEvery {
		c.last = now
		c.log.Warn("traces can't be sent: they are lost, jobs are not", "error", err)
	}
}
