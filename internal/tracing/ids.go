package tracing

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

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
