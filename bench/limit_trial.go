package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	strict "spillway/internal/provider"
)

const (
	lookEvery = 200 * time.Millisecond // whether all jobs are done
	deadEvery = 10                     // looks, one of which asks for dead jobs too
	stopGrace = 15 * time.Second       // for a worker to end by itself
)

// trial is one contender at work.
type trial struct {
	contender
	c      *redis.Client
	server *server
	jobs   int
	dir    string // its own

	provider *strict.Provider
	url      string
}

// run queues the jobs, starts the workers and waits until the jobs are through.
func (t *trial) run(ctx context.Context) (f finish, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := t.prepare(ctx); err != nil {
		return f, err
	}
	if err := t.fill(ctx, t); err != nil {
		return f, fmt.Errorf("queue the jobs: %w", err)
	}
	w, err := t.start(ctx)
	if err != nil {
		return f, err
	}
	dead, err := t.wait(ctx, w)
	if err := errors.Join(err, w.stop()); err != nil {
		return f, err
	}
	return t.finish(dead), nil
}

// prepare empties Redis and starts a provider, which is new for each contender: a late call of the one before reaches nobody.
func (t *trial) prepare(ctx context.Context) error {
	if err := t.c.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return err
	}
	ln, err := strict.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	t.provider = strict.New(strict.Config{Limits: []strict.Limit{{N: limitN, Window: time.Second}}, Service: limitService})
	t.url = "http://" + ln.Addr().String() + "/charges"
	go func() { _ = t.provider.Serve(ctx, ln) }()
	return nil
}

// workers are the processes of one trial.
type workers struct {
	running []*exec.Cmd
	log     *os.File
	ended   chan error // of each
}

// start starts the workers together.
func (t *trial) start(ctx context.Context) (*workers, error) {
	log, err := os.Create(filepath.Join(t.dir, "workers.log"))
	if err != nil {
		return nil, err
	}
	w := &workers{log: log, ended: make(chan error, limitWorkers)}
	for range limitWorkers {
		cmd, err := t.worker(ctx, t)
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, w.stop())
		}
		w.running = append(w.running, cmd)
		go func() { w.ended <- cmd.Wait() }()
	}
	return w, nil
}

// stop ends the workers, and those that don't listen by force. What they say at their end is no concern of the trial.
func (w *workers) stop() error {
	for _, cmd := range w.running {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	limit := time.After(stopGrace)
	for left := len(w.running); left > 0; left-- {
		select {
		case <-w.ended:
		case <-limit:
			for _, cmd := range w.running {
				_ = cmd.Process.Kill()
			}
			limit = nil
			left++
		}
	}
	w.running = nil
	return w.log.Close()
}

// wait returns how many jobs are dead, as soon as every job is done or dead or the time is up.
func (t *trial) wait(ctx context.Context, w *workers) (dead int, err error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	limit := time.After(limitFor)
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case err := <-w.ended:
			w.ended <- err // stop counts it too
			return 0, t.died(err)
		case <-limit:
			return t.dead(ctx, t)
		case <-tick.C:
		}
		done := t.provider.Stats().Charged
		if looks%deadEvery == 0 {
			if dead, err = t.dead(ctx, t); err != nil {
				return 0, err
			}
		}
		if done+dead >= t.jobs {
			return dead, nil
		}
	}
}

// died shows the last words of a worker.
func (t *trial) died(err error) error {
	words, _ := os.ReadFile(filepath.Join(t.dir, "workers.log"))
	return fmt.Errorf("a worker ended before the jobs did: %v\n%s", err, words[max(len(words)-2000, 0):])
}

func (t *trial) finish(dead int) finish {
	f := finish{name: t.name, ours: t.ours, jobs: t.jobs, dead: dead, stats: t.provider.Stats(), calls: t.provider.Calls()}
	var first, last int64
	for _, c := range f.calls {
		if c.Status != http.StatusOK {
			continue
		}
		if first == 0 {
			first = c.At
		}
		last = c.At
	}
	f.seconds = float64(last-first) / 1e6
	return f
}
