package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	strict "spillway/internal/provider"
)

const (
	scaleProcesses = 4
	scaleWarms     = 5 * time.Second // after the first call, before anything is counted
	scaleFor       = 20 * time.Second
	scaleSpare     = 5 * time.Second // jobs for so much longer
	scaleFirst     = time.Minute     // at most until the first call
)

// scaleLimits are the calls a second of the one gateway.
var scaleLimits = []int{1000, 2500, 5000}

// scaled is what one gateway came to.
type scaled struct {
	limit       int
	rate        float64 // calls a second
	fullest     int     // calls in any rolling second
	refused     int     // answered 429
	unused      float64 // the share of slots in which no call was made
	own         float64 // µs of a processor for a call: all dispatchers together,
	redis, gate float64 // Redis, and what stands for the gateway with this program
	busy        float64 // share of all processors that these took together,
	others      float64 // and whatever else ran
}

const scaleHead = "| | calls/s | of the limit | fullest rolling second | 429s | slots unused | µs a call: dispatchers | Redis | the gateway's double | of all processors: these | other work |\n" +
	"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"

func (s scaled) row() string {
	return fmt.Sprintf("| %d/s | %.0f | %.1f %% | %d | %d | %.2f %% | %.0f | %.0f | %.0f | %.0f %% | %.0f %% |", s.limit, s.rate, 100*s.rate/float64(s.limit), s.fullest, s.refused,
		100*s.unused, s.own, s.redis, s.gate, 100*s.busy, 100*s.others)
}

// scale has four processes keep one gateway's limit, which grows from row to row.
func scale(ctx context.Context, o options) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	c := redis.NewClient(&redis.Options{Addr: server.addr, MaxRetries: -1})
	defer c.Close()
	if err := buildInto(server.dir); err != nil {
		return err
	}
	fmt.Printf("%s\none gateway, %d processes of dispatcher run, for %s each\n\n%s\n", machine(ctx, c), scaleProcesses, scaleFor, scaleHead)
	for range o.runs {
		for i, limit := range scaleLimits {
			if err := c.FlushAll(ctx).Err(); err != nil {
				return err
			}
			got, err := scaleOnce(ctx, server, filepath.Join(server.dir, fmt.Sprintf("scale-%d.yaml", i)), limit)
			if err != nil {
				return fmt.Errorf("%d/s: %w", limit, err)
			}
			fmt.Println(got.row())
		}
	}
	return nil
}

func scaleOnce(ctx context.Context, server *server, config string, limit int) (got scaled, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ln, err := strict.Listen("127.0.0.1:0")
	if err != nil {
		return got, err
	}
	gate := strict.New(strict.Config{Limits: []strict.Limit{{N: limit, Window: time.Second}}})
	go func() { _ = gate.Serve(ctx, ln) }()
	if err := os.WriteFile(config, fmt.Appendf(nil, limitConfig+"    "+wide+"\n", server.addr, "http://"+ln.Addr().String()+"/charges", limit), 0o600); err != nil {
		return got, err
	}
	jobs := limit * int((scaleWarms + scaleFor + scaleSpare).Seconds())
	if err := enqueueFrom(ctx, server.dir, config, strings.NewReader(lines(jobs)), "-g", limitQueue); err != nil {
		return got, err
	}
	all, err := runDispatchers(ctx, scaleProcesses, server.dir, config)
	if err != nil {
		return got, err
	}
	defer stopAll(all)
	if err := pause(ctx, scaleWarms); err != nil {
		return got, err
	}
	got = scaled{limit: limit}
	if err := got.measure(ctx, server, gate, all); err != nil {
		return got, err
	}
	return got, got.slots(ctx, all)
}

// measure looks at what is done in a while.
func (s *scaled) measure(ctx context.Context, server *server, gate *strict.Provider, all []*running) error {
	worked := func() (own, redis, gate, machine time.Duration) {
		for _, r := range all {
			own += r.worked()
		}
		return own, processorTime(server.cmd.Process.Pid), processorTime(os.Getpid()), machineTime()
	}
	from := time.Now()
	own, redis, double, machine := worked()
	if err := pause(ctx, scaleFor); err != nil {
		return err
	}
	until := time.Now()
	ownAfter, redisAfter, doubleAfter, machineAfter := worked()
	calls := 0
	for _, c := range gate.Calls() {
		if c.At >= from.UnixMicro() && c.At < until.UnixMicro() {
			calls++
		}
	}
	stats := gate.Stats()
	s.fullest, s.refused, s.rate = stats.MaxInWindow[0], stats.TooMany, float64(calls)/until.Sub(from).Seconds()
	each := func(before, after time.Duration) float64 {
		return float64((after - before).Microseconds()) / float64(max(calls, 1))
	}
	s.own, s.redis, s.gate = each(own, ownAfter), each(redis, redisAfter), each(double, doubleAfter)
	possible := until.Sub(from).Seconds() * processors()
	s.busy = (ownAfter - own + redisAfter - redis + doubleAfter - double).Seconds() / possible
	s.others = max((machineAfter-machine).Seconds()/possible-s.busy, 0)
	return nil
}

// slots asks each process what became of its slots.
func (s *scaled) slots(ctx context.Context, all []*running) error {
	var sum slots
	for _, r := range all {
		_, err := page(ctx, r.url+"/metrics", func(metrics io.Reader) error {
			one, err := slotsOf(metrics)
			sum.granted, sum.unused = sum.granted+one.granted, sum.unused+one.unused
			return err
		})
		if err != nil {
			return err
		}
	}
	s.unused = sum.unused / sum.granted
	return nil
}
