package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"spillway/internal/cli"
	"spillway/internal/tracing"
)

// flushTime bounds the sending of the remaining traces at the end.
const flushTime = 5 * time.Second

// traced opens the tracing that the environment configures and starts the span of this run, as a child of the
// one in TRACEPARENT. The returned function ends both.
func traced(ctx context.Context, s cli.Streams) (context.Context, *tracing.Tracer, func(), error) {
	traces, err := tracing.Open(ctx, "spillway-enqueue", os.Getenv, slog.New(slog.NewTextHandler(s.Err, nil)))
	if err != nil || traces == nil {
		return ctx, nil, func() {}, err
	}
	ctx, span := traces.Begin(tracing.Within(ctx, os.Getenv("TRACEPARENT")), "enqueue file", trace.SpanKindInternal)
	return ctx, traces, func() {
		span.End()
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		_ = traces.Close(flushing) // the error handler has reported it
	}, nil
}
