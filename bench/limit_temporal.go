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
	partitions int  // of a task queue; 0: as many as by default
	rate       int  // TaskQueueActivitiesPerSecond; 0: no limit
	fair       bool // with fairness keys

	addr, namespace string
}

// temporalContenders have Temporal's limit of a task queue as it stands in its documents, and with one partition, so that the rate isn't divided, and nine tenths of the rate, as its guide
// advises.
func temporalContenders(ctx context.Context, s *server) ([]contender, func(), error) {
	return temporals(ctx, s, "Temporal", false)
}

// fairContenders are the same with fairness keys.
func fairContenders(ctx context.Context, s *server) ([]contender, func(), error) {
	return temporals(ctx, s, "Temporal with fairness keys", true)
}

func temporals(ctx context.Context, s *server, name string, fair bool) (all []contender, stop func(), err error) {
	program, err := buildTemporal(ctx, s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range []struct {
		name string
		temporalPeer
	}{
		{fmt.Sprintf("%s, TaskQueueActivitiesPerSecond %d", name, limitN), temporalPeer{program: program, rate: limitN, fair: fair}},
		{fmt.Sprintf("%s, tuned by hand: %d, one partition", name, limitN*9/10), temporalPeer{program: program, rate: limitN * 9 / 10, partitions: 1, fair: fair}},
	} {
		p := one.temporalPeer
		all = append(all, contender{name: one.name, fill: p.fill, worker: p.worker, left: p.left})
	}
	return all, nil, nil
}

// buildTemporal returns the program of bench/temporal.
func buildTemporal(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "temporal")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	build.Dir = "temporal"
	if out, err := build.CombinedOutput(); err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("go build in bench/temporal: %s (%w)", said, err)
	}
	return program, nil
}

// fill starts the server and adds the jobs.
func (p *temporalPeer) fill(ctx context.Context, t *trial) error {
	if err := p.serve(ctx); err != nil {
		return err
	}
	if p.fair {
		_, err := rateOf(p.adds(ctx, t.text()))
		return err
	}
	add := exec.CommandContext(ctx, p.program, "add", p.addr, p.namespace)
	add.Stdin, add.Stderr = strings.NewReader(t.text()), os.Stderr
	return add.Run()
}

// serve starts the server, which ends with ctx.
func (p *temporalPeer) serve(ctx context.Context) error {
	serve := exec.CommandContext(ctx, p.program, "serve", strconv.Itoa(p.partitions), strconv.FormatBool(p.fair))
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
	return nil
}

// adds adds jobs with their fairness keys, and says how many in a second.
func (p *temporalPeer) adds(ctx context.Context, jobs string) *exec.Cmd {
	add := exec.CommandContext(ctx, p.program, "keyed", p.addr, p.namespace)
	add.Stdin, add.Stderr = strings.NewReader(jobs), os.Stderr
	return add
}

func (p *temporalPeer) works(ctx context.Context, url string, atOnce int) *exec.Cmd {
	return exec.CommandContext(ctx, p.program, "work", p.addr, p.namespace, url, strconv.Itoa(p.rate), strconv.Itoa(atOnce))
}

func (p *temporalPeer) worker(ctx context.Context, t *trial, _ int) (*exec.Cmd, error) {
	return p.works(ctx, t.url, limitAtOnce), nil
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
