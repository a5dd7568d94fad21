package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// shut is admission's part of the configuration when there is room for a single job.
const (
	wide = "admission: {limits: [1000000000/s], burst: 1000000000}"
	shut = "admission: {limits: [1/d], burst: 1}"
)

// parkOnce has enqueue park the whole file, but for one job, and then, with room again, has it replayed.
func (b *bulk) parkOnce(ctx context.Context, r results) error {
	if _, err := b.fresh(ctx); err != nil {
		return err
	}
	config := filepath.Join(b.dir, "shut.yaml")
	text, err := os.ReadFile(b.config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(strings.Replace(string(text), wide, shut, 1)), 0o600); err != nil {
		return err
	}
	parked, err := b.enqueueBy(ctx, config)
	if err != nil {
		return err
	}
	if parked.Parked != b.jobs-1 {
		return fmt.Errorf("of %d jobs enqueue parked %d, without room for more than one", b.jobs, parked.Parked)
	}
	r.note(parkName, parked.rate)
	rate, err := b.replay(ctx, parked.Parked)
	r.note(replayName, rate)
	return err
}

// replay runs the program on all that is parked: jobs a second from its start to its end, its preview included.
func (b *bulk) replay(ctx context.Context, parked int) (float64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "dispatcher"), "dlq", "replay", "-c", b.config, "-g", b.gateway, "--yes", "-q", "-o", "json")
	start := time.Now()
	out, err := cmd.Output()
	rate := float64(parked) / time.Since(start).Seconds()
	if err != nil {
		return 0, fmt.Errorf("dispatcher dlq replay: %w", err)
	}
	var did struct {
		Replayed int `json:"replayed"`
	}
	if err := json.Unmarshal(out, &did); err != nil {
		return 0, fmt.Errorf("dispatcher dlq replay: %w", err)
	}
	if did.Replayed != parked {
		return 0, fmt.Errorf("of %d parked jobs dispatcher dlq replay took %d in", parked, did.Replayed)
	}
	return rate, nil
}
