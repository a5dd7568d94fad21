package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// temporalPeer is a Temporal contender: its program, and the server of its trial.
type temporalPeer struct {
	program    string
	partitions int // of a task queue; 0: as many as by default
	rate       int // TaskQueueActivitiesPerSecond

	addr, namespace string
}

// temporalContenders have Temporal's limit of a task queue as it stands in its documents, and with one partition, so that the rate isn't divided, and nine tenths of the rate, as its guide
// advises.
func temporalContenders(ctx context.Context, s *server) (all []contender, stop func(), err error) {
	program := filepath.Join(s.dir, "temporal")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	build.Dir = "temporal"
	if out, err := build.CombinedOutput(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return nil, nil, fmt.Errorf("go build in bench/temporal: %s (%w)", said, err)
	}
	for _, one := range []struct {
		name string
		temporalPeer
	}{
		{fmt.Sprintf("Temporal, TaskQueueActivitiesPerSecond %d", limitN), temporalPeer{program: program, rate: limitN}},
		{fmt.Sprintf("Temporal, tuned by hand: %d, one partition", limitN*9/10), temporalPeer{program: program, rate: limitN * 9 / 10, partitions: 1}},
	} {
		p := one.temporalPeer
		all = append(all, contender{name: one.name, fill: p.fill, worker: p.worker, left: p.left})
	}
	return all, nil, nil
}

// fill starts the server, which ends with the trial, and adds the jobs.
func (p *temporalPeer) fill(ctx context.Context, t *trial) error {
	serve := exec.CommandContext(ctx, p.program, "serve", strconv.Itoa(p.partitions))
	in, inErr := serve.StdinPipe() // it ends with this program, too
	out, outErr := serve.StdoutPipe()
	serve.Stderr = os.Stderr
	if err := errors.Join(inErr, outErr, serve.Start()); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _, _ = in.Close(), serve.Wait() })
	if _, err := fmt.Fscan(bufio.NewReader(out), &p.addr, &p.namespace); err != nil {
		return fmt.Errorf("the Temporal server: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	add := exec.CommandContext(ctx, p.program, "add", p.addr, p.namespace)
	add.Stdin, add.Stderr = strings.NewReader(lines(t.jobs)), os.Stderr
	return add.Run()
}

func (p *temporalPeer) worker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	return exec.CommandContext(ctx, p.program, "work", p.addr, p.namespace, t.url, strconv.Itoa(p.rate), strconv.Itoa(limitAtOnce)), nil
}

// left is how many jobs the provider has not accepted, or 1 where the server does not know yet that it has: the server counts workflows, of many jobs each.
func (p *temporalPeer) left(ctx context.Context, t *trial) (int, error) {
	out, err := exec.CommandContext(ctx, p.program, "left", p.addr, p.namespace).Output()
	if err != nil {
		return 0, fmt.Errorf("temporal left: %w", err)
	}
	workflows, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if workflows == 0 {
		return 0, err
	}
	return max(t.jobs-t.provider.Stats().Charged, 1), err
}
