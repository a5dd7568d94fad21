package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// crowdText is a gateway for each line of a merchants file, and their one template.
const crowdText = `redis: redis://%s/0
templates:
  base:
    request: {url: "%s/{name}", idempotency_prefix: "{name}:"}
    leak: {limits: [%d/s]}
merchants: {like: base, file: merchants.csv}
`

const (
	crowdWarms = 10 * time.Second // after the first call, before anything is counted
	crowdFor   = 20 * time.Second
	crowdIdle  = 20 * time.Second // how long the processor time of an idle process is measured
)

// crowd is so many gateways with a limit of perSecond each. Some of them are busy, the first ones.
type crowd struct{ gateways, perSecond, busy int }

func (c crowd) String() string {
	switch {
	case c.gateways == 1:
		return fmt.Sprintf("one gateway of %d/s", c.perSecond)
	case c.busy == c.gateways:
		return fmt.Sprintf("%d gateways of %d/s, all busy", c.gateways, c.perSecond)
	}
	return fmt.Sprintf("%d gateways of %d/s, %d busy", c.gateways, c.perSecond, c.busy)
}

// Each crowd comes with the one gateway that it is compared with.
var crowds = [][2]crowd{
	{{1, 1500, 1}, {300, 5, 300}},
	{{1, 1000, 1}, {1000, 1, 1000}},
	{{1, 250, 1}, {3000, 5, 50}},
	{{1, 15000, 1}, {3000, 5, 3000}},
}

// crowded is what a trial of a crowd came to.
type crowded struct {
	rate    float64 // calls a second
	fullest int     // calls of one gateway within a second, at most
	back    float64 // the share of slots that were given back or came too late
	mib     float64 // of the process's memory, at most
	idle    float64 // processor time of the process before there were jobs, as a share of one processor
	status  time.Duration
}

// crowding compares crowds of gateways with one that allows as much.
func crowding(ctx context.Context, runs int) error {
	dir, err := os.MkdirTemp("", "spillway-crowd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildInto(dir); err != nil {
		return err
	}
	fmt.Println("| | calls/s | of what is allowed | to one gateway | fullest second | slots unused | MiB | idle | status |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for range runs {
		for _, pair := range crowds {
			var one float64
			for _, c := range pair {
				got, err := c.trial(ctx, dir)
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				if c.gateways == 1 {
					one = got.rate
				}
				fmt.Printf("| %s | %.0f | %.1f %% | %.2f | %d of %d | %.2f %% | %.0f | %.1f %% | %.2f s |\n", c, got.rate, 100*got.rate/float64(c.busy*c.perSecond),
					got.rate/one, got.fullest, c.perSecond, 100*got.back, got.mib, 100*got.idle, got.status.Seconds())
			}
		}
	}
	return nil
}

func (c crowd) trial(ctx context.Context, dir string) (got crowded, err error) {
	redis, err := startRedis()
	if err != nil {
		return got, err
	}
	defer redis.stop()
	gw, err := newGateways()
	if err != nil {
		return got, err
	}
	defer gw.srv.Close()
	names := strings.Builder{}
	names.WriteString("name\n")
	for i := range c.gateways {
		fmt.Fprintf(&names, "m%04d\n", i)
	}
	config := filepath.Join(redis.dir, "dispatcher.yaml")
	err = errors.Join(os.WriteFile(config, fmt.Appendf(nil, crowdText, redis.addr, gw.url, c.perSecond), 0o600),
		os.WriteFile(filepath.Join(redis.dir, "merchants.csv"), []byte(names.String()), 0o600))
	if err != nil {
		return got, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return got, err
	}
	listen := ln.Addr().String()
	_ = ln.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "dispatcher"), "run", "-c", config, "--listen", listen, "-q", "--log-level", "error")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+redis.dir)
	if err := cmd.Start(); err != nil {
		return got, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	if err := ready(ctx, listen); err != nil {
		return got, err
	}
	before := processorTime(cmd.Process.Pid)
	if err := pause(ctx, crowdIdle); err != nil {
		return got, err
	}
	got.idle = (processorTime(cmd.Process.Pid) - before).Seconds() / crowdIdle.Seconds()
	if err := c.enqueue(ctx, dir, config); err != nil {
		return got, err
	}
	if err := pause(ctx, crowdWarms); err != nil {
		return got, err
	}
	from := time.Now()
	if err := pause(ctx, crowdFor); err != nil {
		return got, err
	}
	got.rate, got.fullest = gw.seen(from, time.Now())
	start := time.Now()
	if err := exec.CommandContext(ctx, filepath.Join(dir, "dispatcher"), "status", "-c", config, "-o", "json").Run(); err != nil {
		return got, fmt.Errorf("dispatcher status: %w", err)
	}
	got.status = time.Since(start)
	got.mib = most(cmd.Process.Pid)
	got.back, err = unused(ctx, listen)
	return got, err
}

// crowdJobs is how many jobs there are in a trial, at most: more than any machine calls in it.
const crowdJobs = 200_000

// enqueue gives each busy gateway enough for the trial.
func (c crowd) enqueue(ctx context.Context, dir, config string) error {
	var text strings.Builder
	for i := range min(int((crowdWarms+crowdFor).Seconds()+15)*c.perSecond, crowdJobs/c.busy) {
		for g := range c.busy {
			fmt.Fprintf(&text, "{\"id\":%q,\"gateway\":\"m%04d\",\"payload\":%s}\n", id(i), g, payload(i))
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "enqueue"), "-c", config, "-f", "-", "-q")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue: %w\n%s", err, out)
	}
	return nil
}

// gateways answer every call at once and note when each was called.
type gateways struct {
	srv *http.Server
	url string

	mu    sync.Mutex
	calls map[string][]time.Time
}

func newGateways() (*gateways, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gateways{url: "http://" + ln.Addr().String(), calls: map[string][]time.Time{}}
	g.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
		g.mu.Lock()
		g.calls[r.URL.Path] = append(g.calls[r.URL.Path], now)
		g.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"pay_1"}`))
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = g.srv.Serve(ln) }()
	return g, nil
}

// seen returns the calls a second between two moments, and the most of one gateway within any second.
func (g *gateways) seen(from, to time.Time) (rate float64, fullest int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, calls := range g.calls {
		slices.SortFunc(calls, time.Time.Compare)
		first := 0
		for i, at := range calls {
			if at.After(from) && at.Before(to) {
				n++
			}
			for at.Sub(calls[first]) >= time.Second {
				first++
			}
			fullest = max(fullest, i-first+1)
		}
	}
	return float64(n) / to.Sub(from).Seconds(), fullest
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ready waits until a dispatcher serves.
func ready(ctx context.Context, listen string) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		res, err := http.Get("http://" + listen + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the dispatcher was not ready within a minute")
}

// processorTime is what a process has taken, in Linux's hundredths of a second.
func processorTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		_, _ = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// most is the most memory that a process has had, in MiB.
func most(pid int) (mib float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(size, &mib)
		}
	}
	return mib / 1024
}

// unused is the share of the slots granted that no call was made in.
func unused(ctx context.Context, listen string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sums := map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), "{")
		var n float64
		if _, value, ok := strings.Cut(rest, "} "); ok {
			_, _ = fmt.Sscan(value, &n)
		}
		sums[name] += n
	}
	granted := sums["spillway_slots_granted_total"]
	if granted == 0 {
		return 0, errors.New("/metrics tells of no slot")
	}
	return (sums["spillway_slots_released_total"] + sums["spillway_slots_lost_total"]) / granted, nil
}
