package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

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
