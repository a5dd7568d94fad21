package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

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
