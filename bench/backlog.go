package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	backlogJobs  = 10_000_000
	backlogLimit = 100              // calls a second
	backlogFor   = 20 * time.Second // calls at that rate
	backlogFirst = 5 * time.Minute  // at most until the first call
)

// waiting is a gateway with a large backlog.
type waiting struct {
	*bulk
	gw *gateways
}

// backlog measures what a backlog of o.jobs jobs costs whoever looks at it.
func backlog(ctx context.Context, o options) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: server.addr, MaxRetries: -1})
	defer c.Close()
	gw, err := newGateways(ctx)
	if err != nil {
		return err
	}
	w := &waiting{&bulk{c: c, server: server, dir: server.dir, jobs: o.jobs, config: filepath.Join(server.dir, "dispatcher.yaml"), file: "-", gateway: "bench"}, gw}
	if err := buildInto(w.dir); err != nil {
		return err
	}
	text := limitConfig + "    amount: {field: amount, currency: currency}\n    " + wide + "\n"
	if err := os.WriteFile(w.config, fmt.Appendf(nil, text, server.addr, gw.url, backlogLimit), 0o600); err != nil {
		return err
	}
	fmt.Printf("%s\n%d jobs of %d bytes in one batch of one gateway of %d/s\n\n| | |\n|---|---|\n", machine(ctx, c), w.jobs, payloadBytes, backlogLimit)
	for _, step := range []func(context.Context) error{w.comeIn, w.views, w.restarts} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// say prints a row.
func say(what, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

// comeIn takes the jobs in.
func (w *waiting) comeIn(ctx context.Context) error {
	before, err := w.memory(ctx)
	if err != nil {
		return err
	}
	worked, err := w.server.worked(ctx)
	if err != nil {
		return err
	}
	in, err := w.enqueue(ctx)
	if err != nil {
		return err
	}
	if in.Enqueued != w.jobs {
		return fmt.Errorf("of %d jobs %d went in", w.jobs, in.Enqueued)
	}
	after, err := w.memory(ctx)
	if err != nil {
		return err
	}
	workedAfter, err := w.server.worked(ctx)
	if err != nil {
		return err
	}
	say("in, through `enqueue`", "%.0f s, %.0f/s, in %.0f MiB; Redis works %.1f µs on a job", float64(w.jobs)/in.rate, in.rate, in.mib, (workedAfter-worked)/float64(w.jobs))
	say("Redis's memory", "%.0f bytes a job, %.2f GB in all, %.2f GB resident", float64(after-before)/float64(w.jobs), float64(after)/1e9, most(w.server.cmd.Process.Pid)*1024*1024/1e9)
	return nil
}

// views has the commands look at the backlog.
func (w *waiting) views(ctx context.Context) error {
	for _, args := range [][]string{{"status"}, {"job", id(w.jobs / 2), "-g", w.gateway}, {"batch", "list"}, {"batch", "november"}, {"dlq", "stats"}, {"dlq", "list"}, {"audit"}} {
		worked, err := w.server.worked(ctx)
		if err != nil {
			return err
		}
		took, mib, err := command(ctx, filepath.Join(w.dir, "dispatcher"), w.config, args...)
		if err != nil {
			return err
		}
		after, err := w.server.worked(ctx)
		if err != nil {
			return err
		}
		say("`dispatcher "+strings.Join(args, " ")+"`", "%.2f s, %.0f MiB; Redis works %.2f s", took.Seconds(), mib, (after-worked)/1e6)
	}
	return nil
}

// restarts has a dispatcher begin with the backlog, end, and begin again; and looks at what it shows.
func (w *waiting) restarts(ctx context.Context) error {
	for _, r := range []struct {
		name string
		end  syscall.Signal
		with func(context.Context, *running) error
	}{
		{"first start of `dispatcher run`", syscall.SIGTERM, w.pages},
		{"start after SIGTERM", syscall.SIGKILL, nil},
		{"start after kill -9", syscall.SIGTERM, nil},
	} {
		begun := time.Now()
		d, err := runDispatcher(ctx, w.dir, w.config)
		if err != nil {
			return err
		}
		first, err := w.firstCall(ctx, begun)
		if err == nil {
			say(r.name, "ready after %.2f s, first call after %.2f s", d.ready.Seconds(), first.Seconds())
		}
		if err == nil && r.with != nil {
			err = r.with(ctx, d)
		}
		ended := time.Now()
		_ = d.cmd.Process.Signal(r.end)
		_ = d.cmd.Wait()
		if err != nil {
			return err
		}
		if r.end == syscall.SIGTERM {
			say("end of it", "%.2f s", time.Since(ended).Seconds())
		}
	}
	return nil
}

// firstCall waits for the first call after a moment, and returns how long after it that came.
func (w *waiting) firstCall(ctx context.Context, begun time.Time) (time.Duration, error) {
	for time.Since(begun) < backlogFirst {
		if came := w.gw.between(begun, time.Now()); len(came) > 0 {
			return came[0].Sub(begun), nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no call within %s", backlogFirst)
}

// pages has the process call for a while, and looks at its pages then.
func (w *waiting) pages(ctx context.Context, d *running) error {
	from, worked := time.Now(), d.worked()
	if err := pause(ctx, backlogFor); err != nil {
		return err
	}
	until := time.Now()
	calls := float64(len(w.gw.between(from, until)))
	say("calls then", "%.1f of %d/s; %.0f µs of the dispatcher for each", calls/until.Sub(from).Seconds(), backlogLimit, float64((d.worked()-worked).Microseconds())/max(calls, 1))
	for _, path := range []string{"/", "/gateways/" + w.gateway, "/batches", "/batches/november", "/v1/status", "/metrics"} {
		took, err := page(ctx, d.url+path, nothing)
		if err != nil {
			return err
		}
		say("`"+path+"`", "%.2f s", took.Seconds())
	}
	say("memory of the dispatcher, at most", "%.0f MiB", most(d.cmd.Process.Pid))
	return nil
}
