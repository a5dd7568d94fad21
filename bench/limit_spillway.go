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

// spillwayContenders is the programs as they are built.
func spillwayContenders(context.Context, *server) ([]contender, func(), error) {
	return []contender{{name: "Spillway", ours: true, fill: fillSpillway, worker: spillwayWorker, left: spillwayLeft}}, nil, nil
}

func (t *trial) config() string { return filepath.Join(t.dir, "dispatcher.yaml") }

func (t *trial) program(name string) string { return filepath.Join(t.server.dir, name) }

// fillSpillway queues the jobs with enqueue. What admission has no room for at once is parked, and goes in by itself.
func fillSpillway(ctx context.Context, t *trial) error {
	config := fmt.Appendf(nil, limitConfig, t.server.addr, t.url, limitN)
	if t.lanes {
		config = append(config, "    lanes: {key: lane}\n"...)
	}
	if err := os.WriteFile(t.config(), config, 0o600); err != nil {
		return err
	}
	return enqueueFrom(ctx, t.server.dir, t.config(), strings.NewReader(t.text()), "-g", limitQueue)
}

// spillwayWorker has a state of its own for each process, as on a machine of its own. One that is started again finds that of before.
func spillwayWorker(ctx context.Context, t *trial, i int) (*exec.Cmd, error) {
	state := filepath.Join(t.dir, fmt.Sprint("state-", i))
	cmd := exec.CommandContext(ctx, t.program("dispatcher"), "run", "-c", t.config(), "--listen", "", "-q")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+state)
	return cmd, os.MkdirAll(state, 0o700)
}

// spillwayLeft counts the jobs that wait for no person: those that were rejected at the door go in by themselves.
func spillwayLeft(ctx context.Context, t *trial) (left int, err error) {
	out, err := exec.CommandContext(ctx, t.program("dispatcher"), "status", "-c", t.config(), "-o", "json").Output()
	if err != nil {
		return 0, fmt.Errorf("dispatcher status: %w", err)
	}
	var status struct {
		Gateways []struct {
			Queued, Scheduled, Retrying, Pending int
			InFlight                             int `json:"in_flight"`
			Parked                               struct{ Rejected int }
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return 0, err
	}
	for _, g := range status.Gateways {
		left += g.Queued + g.Scheduled + g.Retrying + g.Pending + g.InFlight + g.Parked.Rejected
	}
	return left, nil
}
