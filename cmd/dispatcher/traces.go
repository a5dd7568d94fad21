package main

import (
	"context"
	"log/slog"
	"os"

	"spillway/internal/tracing"
)

// traces opens the traces that the environment asks for, for a command that takes jobs in. Close them.
func (p *program) traces(ctx context.Context) (*tracing.Tracer, error) {
	return tracing.Open(ctx, "spillway-dispatcher", os.Getenv, slog.New(slog.NewTextHandler(p.Err, nil)))
}
