package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lanedRows are the same gateway with lanes: all jobs in one, and in a thousand. Their limits are the gateway's alone, so what differs is the cost.
var lanedRows = []struct {
	lanes         int
	enqueue, send string
}{
	{1, "enqueue, one lane", "calls of dispatcher run, one lane"},
	{1000, "enqueue, 1,000 lanes", "calls of dispatcher run, 1,000 lanes"},
}

// lanedOnce takes the jobs in and has them sent where the gateway has lanes.
func (b *bulk) lanedOnce(ctx context.Context, p *provider, r results) error {
	for _, row := range lanedRows {
		l := *b
		if err := l.withLanes(row.lanes); err != nil {
			return err
		}
		if _, err := l.fresh(ctx); err != nil {
			return err
		}
		in, err := l.enqueue(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", row.enqueue, err)
		}
		if in.Enqueued != l.jobs {
			return fmt.Errorf("%s: of %d jobs %d went in", row.enqueue, l.jobs, in.Enqueued)
		}
		r.note(row.enqueue, in.rate)
		rate, err := l.dispatcher(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", row.send, err)
		}
		r.note(row.send, rate)
	}
	return nil
}

// withLanes gives the gateway lanes, and each job one of so many.
func (b *bulk) withLanes(lanes int) error {
	config, err := os.ReadFile(b.config)
	if err != nil {
		return err
	}
	b.config, b.file = filepath.Join(b.dir, "lanes.yaml"), filepath.Join(b.dir, "lanes.ndjson")
	text := strings.Replace(string(config), "    admission:", "    lanes: {key: lane}\n    admission:", 1)
	if err := os.WriteFile(b.config, []byte(text), 0o600); err != nil {
		return err
	}
	return os.WriteFile(b.file, []byte(linesOf(b.jobs, lanes)), 0o600)
}

// linesOf are so many jobs, which name so many lanes in turn.
func linesOf(jobs, lanes int) string {
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "{\"id\":%q,\"lane\":\"acct_%d\",\"payload\":%s}\n", id(i), 10_000_000+i%lanes, payload(i))
	}
	return text.String()
}
