package main

import (
	"context"
	"log/slog"
	"os"

	"spillway/internal/tracing"
)

// traces opens the tracing that the environment configures, for a command that admits jobs. The caller must
// close it.
func (p *program) traces(ctx context.Context) (*tracing.Tracer, error) {
	return tracing.Open(ctx, "spillway-dispatcher", os.Getenv, slog.New(slog.NewTextHandler(p.Err, nil)))
}
