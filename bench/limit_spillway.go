package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// limitConfig names the gateway and its limit, and leaves all else as it is by default.
const limitConfig = `redis: redis://%s/0
gateways:
  bench:
    request: {url: "%s"}
    leak: {limits: [%d/s]}
`

func (t *trial) config() string { return filepath.Join(t.dir, "dispatcher.yaml") }

func (t *trial) program(name string) string { return filepath.Join(t.server.dir, name) }

// fillSpillway queues the jobs with enqueue. What admission has no room for at once is parked, and goes in by itself.
func fillSpillway(ctx context.Context, t *trial) error {
	if err := os.WriteFile(t.config(), fmt.Appendf(nil, limitConfig, t.server.addr, t.url, limitN), 0o600); err != nil {
		return err
	}
	return enqueueFrom(ctx, t.server.dir, t.config(), strings.NewReader(lines(t.jobs)), "-g", limitQueue)
}

func spillwayWorker(ctx context.Context, t *trial) (*exec.Cmd, error) {
	state, err := os.MkdirTemp(t.dir, "state-") // each process is as on a machine of its own
	cmd := exec.CommandContext(ctx, t.program("dispatcher"), "run", "-c", t.config(), "--listen", "", "-q")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	return cmd, err
}

// parked counts the jobs that wait for a person: those that were rejected at the door go in by themselves.
func parked(ctx context.Context, t *trial) (jobs int, err error) {
	out, err := exec.CommandContext(ctx, t.program("dispatcher"), "dlq", "stats", "-c", t.config(), "-o", "json").Output()
	if err != nil {
		return 0, fmt.Errorf("dispatcher dlq stats: %w", err)
	}
	var stats struct {
		Gateways []struct {
			ByReason map[string]struct{ Jobs int } `json:"by_reason"`
		}
	}
	if err := json.Unmarshal(out, &stats); err != nil {
		return 0, err
	}
	for _, g := range stats.Gateways {
		for reason, r := range g.ByReason {
			if reason != "rejected" {
				jobs += r.Jobs
			}
		}
	}
	return jobs, nil
}
