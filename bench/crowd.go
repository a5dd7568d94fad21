package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	crowdIdle  = 20 * time.Second // how long the processor time of an idle process is measured,
	crowdCalms = 5 * time.Second  // so long after it is ready: it looks at all gateways once at the start
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
	rate    float64       // calls a second
	fullest int           // calls of one gateway within a second, at most
	back    float64       // the share of slots that were given back or came too late
	mib     float64       // of the process's memory, at most
	idle    float64       // processor time of the process before there were jobs, as a share of one processor,
	quiet   float64       // and of Redis
	own     float64       // µs of a processor that the process took for a call
	redis   float64       // and Redis
	ready   time.Duration // from the start of the process
	views   views
}

// crowding compares crowds of gateways with one that allows as much: those of these numbers, or all of them where which is empty.
func crowding(ctx context.Context, runs int, which string) error {
	dir, err := os.MkdirTemp("", "spillway-crowd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := buildInto(dir); err != nil {
		return err
	}
	fmt.Println("| | calls/s | of what is allowed | to one gateway | fullest second | slots unused | µs a call: dispatcher | Redis | MiB | idle: dispatcher | Redis | ready | status | job | console | /metrics |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for range runs {
		for i, pair := range crowds {
			if which != "" && !strings.Contains(which, fmt.Sprint(i+1)) {
				continue
			}
			var one float64
			for _, c := range pair {
				got, err := c.trial(ctx, dir)
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				if c.gateways == 1 {
					one = got.rate
				}
				v := got.views
				fmt.Printf("| %s | %.0f | %.1f %% | %.2f | %d of %d | %.2f %% | %.0f | %.0f | %.0f | %.1f %% | %.1f %% | %.1f s | %.2f s | %.2f s | %.2f s | %.2f s |\n", c, got.rate,
					100*got.rate/float64(c.busy*c.perSecond), got.rate/one, got.fullest, c.perSecond, 100*got.back, got.own, got.redis, got.mib, 100*got.idle, 100*got.quiet,
					got.ready.Seconds(), v.status.Seconds(), v.job.Seconds(), v.console.Seconds(), v.metrics.Seconds())
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gw, err := newGateways(ctx)
	if err != nil {
		return got, err
	}
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
	d, err := runDispatcher(ctx, dir, config)
	if err != nil {
		return got, err
	}
	defer d.stop()
	got.ready = d.ready
	if err := pause(ctx, crowdCalms); err != nil {
		return got, err
	}
	before, quiet := d.worked(), processorTime(redis.cmd.Process.Pid)
	if err := pause(ctx, crowdIdle); err != nil {
		return got, err
	}
	got.idle = (d.worked() - before).Seconds() / crowdIdle.Seconds()
	got.quiet = (processorTime(redis.cmd.Process.Pid) - quiet).Seconds() / crowdIdle.Seconds()
	if err := c.enqueue(ctx, dir, config); err != nil {
		return got, err
	}
	if err := pause(ctx, crowdWarms); err != nil {
		return got, err
	}
	from, own, server := time.Now(), d.worked(), processorTime(redis.cmd.Process.Pid)
	if err := pause(ctx, crowdFor); err != nil {
		return got, err
	}
	until := time.Now()
	got.rate, got.fullest = gw.seen(from, until)
	calls := max(got.rate*until.Sub(from).Seconds(), 1)
	got.own = float64((d.worked() - own).Microseconds()) / calls
	got.redis = float64((processorTime(redis.cmd.Process.Pid) - server).Microseconds()) / calls
	if got.views, err = look(ctx, filepath.Join(dir, "dispatcher"), config, d.url); err != nil {
		return got, err
	}
	got.mib, got.back = most(d.cmd.Process.Pid), got.views.unused
	return got, nil
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
	return enqueueFrom(ctx, dir, config, strings.NewReader(text.String()))
}
