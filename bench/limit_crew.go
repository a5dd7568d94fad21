package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	stopGrace = 15 * time.Second       // for a worker to end by itself
	pauseFor  = 300 * time.Millisecond // of the worker that is stopped
)

// worker is one process of a trial.
type worker struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed at its end
	err    error         // then
}

// crew are the worker processes of one trial.
type crew struct {
	trial   *trial
	running []*worker
	log     *os.File
}

// self is this program as a worker process, which gets args as one text.
func (t *trial) self(ctx context.Context, args ...any) (*exec.Cmd, error) {
	path, err := os.Executable()
	return exec.CommandContext(ctx, path, "-limit-worker", fmt.Sprintln(args...)), err
}

// start starts the workers together.
func (t *trial) start(ctx context.Context) (*crew, error) {
	log, err := os.Create(filepath.Join(t.dir, "workers.log"))
	if err != nil {
		return nil, err
	}
	c := &crew{trial: t, log: log, running: make([]*worker, t.workers)}
	for i := range c.running {
		if err := c.launch(ctx, i); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *crew) launch(ctx context.Context, i int) error {
	cmd, err := c.trial.worker(ctx, c.trial, i)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := cmd.Start(); err != nil {
		return err
	}
	w := &worker{cmd: cmd, exited: make(chan struct{})}
	c.running[i] = w
	go func() {
		w.err = cmd.Wait()
		close(w.exited)
	}()
	return nil
}

// died is the error of a worker that ended by itself, with its last words.
func (c *crew) died() error {
	for _, w := range c.running {
		select {
		case <-w.exited:
			words, _ := os.ReadFile(c.log.Name())
			return fmt.Errorf("a worker ended before the jobs did: %v\n%s", w.err, words[max(len(words)-2000, 0):])
		default:
		}
	}
	return nil
}

// crash kills the first worker as a machine that loses its power does, and starts it again.
func (c *crew) crash(ctx context.Context) error {
	if err := c.running[0].cmd.Process.Kill(); err != nil {
		return err
	}
	<-c.running[0].exited
	return c.launch(ctx, 0)
}

// pause has the last worker stand still.
func (c *crew) pause(ctx context.Context) error {
	p := c.running[len(c.running)-1].cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(pauseFor):
	}
	return p.Signal(syscall.SIGCONT)
}

// stop ends the workers, and those that don't listen by force. What they say at their end is no concern of the trial.
func (c *crew) stop() error {
	for _, w := range c.running {
		if w != nil {
			_ = w.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	limit := time.After(stopGrace)
	for _, w := range c.running {
		if w == nil {
			continue
		}
		select {
		case <-w.exited:
		case <-limit:
			limit = time.After(0)
			_ = w.cmd.Process.Kill()
			<-w.exited
		}
	}
	return c.log.Close()
}
