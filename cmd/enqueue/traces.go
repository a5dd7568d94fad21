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

// flushTime bounds the sending of what is left of the traces at the end.
const flushTime = 5 * time.Second

// traced opens the traces that the environment asks for, and begins the span of this run, below the one that TRACEPARENT names. What it
// returns at last ends both.
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
		_ = traces.Close(flushing) // the handler of its errors has told
	}, nil
}
