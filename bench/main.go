// Bench measures what admission and the pacer cost, as ratios to a plain SET and beside redis_rate, and how fast jobs go in and out
// beside asynq's own client and server, BullMQ, groupmq and a raw pipeline: all in one run on one redis-server of its own. It is a module of its own, so
// that the program does not depend on what it is measured against. With -limit it compares ways to keep a provider's limit, with -lanes ways to have lanes; with -latency, -scale, -backlog and -crowd
// it measures what docs/capacity.md says.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"
)

// options is the command line.
type options struct {
	rounds, calls int
	jobs, runs    int
	svg           string
	cluster       bool
	asynq         string // set in the process that is the bare asynq server
	crowd         bool
	crowds        string
	limit, lanes  bool
	latency       bool
	scale         bool
	backlog       bool
	workers       int
	trouble       bool
	only          string
	limitWorker   string // set in a worker process of the comparison against a limit
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 31, "interleaved rounds of single calls; the median is shown; 0 leaves them out")
	flag.IntVar(&o.calls, "calls", 400, "calls of each operation in a round")
	flag.IntVar(&o.jobs, "jobs", 50_000, "jobs of a run in bulk")
	flag.IntVar(&o.runs, "runs", 3, "runs in bulk; the median is shown; 0 leaves them out")
	flag.StringVar(&o.svg, "svg", "", "write a plot of the runs in bulk to this `FILE`")
	flag.BoolVar(&o.cluster, "cluster", false, "measure one redis-server beside a cluster of three instead, -runs times")
	flag.BoolVar(&o.crowd, "crowd", false, "compare crowds of gateways with one that allows as much instead, -runs times")
	flag.StringVar(&o.crowds, "crowds", "", "with -crowd: only the crowds of these numbers, such as 14: 1 is 300 × 5/s, 2 is 1,000 × 1/s, 3 and 4 are 3,000 × 5/s, 50 of them busy and all")
	flag.BoolVar(&o.latency, "latency", false, "measure how soon a job is called, 500 times or -jobs, and how soon calls end after a 429, instead")
	flag.BoolVar(&o.scale, "scale", false, "have four processes keep the limit of one gateway, of up to 5,000 calls a second, instead, -runs times")
	flag.BoolVar(&o.backlog, "backlog", false, "measure a backlog of 10,000,000 jobs, or -jobs, instead; Redis takes 0.7 GB for each million")
	full := flag.Bool("full", false, "1,000,000 jobs")
	flag.StringVar(&o.asynq, "asynq", "", "for this program's own use")
	flag.BoolVar(&o.limit, "limit", false, "compare ways to keep a provider's limit instead, with 3,000 jobs or -jobs; -svg draws that then")
	flag.BoolVar(&o.lanes, "lanes", false, "measure one lane and 1,000 beside the groups of groupmq and the fairness keys of Temporal instead, -runs times; with -limit, how one lane's backlog is kept from delaying 20 others")
	flag.IntVar(&o.workers, "workers", limitWorkers, "with -limit: worker processes of each contender")
	flag.BoolVar(&o.trouble, "trouble", false, "with -limit: kill a worker process in the middle (kill -9) and start it again, and stop one for a while (SIGSTOP)")
	flag.StringVar(&o.only, "only", "", "with -limit: only these `PEERS`, such as river,spillway")
	flag.StringVar(&o.limitWorker, "limit-worker", "", "for this program's own use")
	flag.Parse()
	if *full {
		o.jobs = 1_000_000
	}
	if !given("jobs") {
		o.jobs = o.usual()
	}
	if o.workers < 1 {
		fmt.Fprintln(os.Stderr, "bench: -workers must be 1 or more")
		os.Exit(2)
	}
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// usual is how many jobs there are where the command line does not say.
func (o options) usual() int {
	switch {
	case o.limit:
		return limitJobs
	case o.latency:
		return latencyJobs
	case o.backlog:
		return backlogJobs
	}
	return o.jobs
}

func start(o options) error {
	if o.asynq != "" {
		return serveAsynq(o.asynq)
	}
	if o.limitWorker != "" {
		return serveLimited(o.limitWorker)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.crowd {
		return crowding(ctx, o.runs, o.crowds)
	}
	for _, one := range []struct {
		is bool
		do func(context.Context, options) error
	}{{o.cluster, clustered}, {o.limit, limited}, {o.lanes, laned}, {o.latency, latency}, {o.scale, scale}, {o.backlog, backlog}} {
		if one.is {
			return one.do(ctx, o)
		}
	}
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	c := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: 80, MaxRetries: -1})
	defer c.Close()
	if o.runs > 0 {
		if err := inBulk(ctx, c, server, o); err != nil {
			return err
		}
	}
	if o.rounds > 0 {
		return single(ctx, c, o.rounds, o.calls)
	}
	return nil
}

// inBulk measures many jobs at once.
func inBulk(ctx context.Context, c *redis.Client, s *server, o options) error {
	p, err := newProvider()
	if err != nil {
		return err
	}
	defer p.srv.Close()
	b, err := newBulk(c, s, p.url, o.jobs)
	if err != nil {
		return err
	}
	b.findNode(ctx)
	fmt.Printf("%s\n%d runs of %d jobs of %d bytes, of peers %d, of calls %d\n\n", machine(ctx, c), o.runs, b.jobs, payloadBytes, b.peers, min(b.peers, dispatched))
	r := results{}
	for range o.runs {
		if err := b.once(ctx, p, r); err != nil {
			return err
		}
	}
	r.table(os.Stdout)
	fmt.Println()
	if o.svg == "" {
		return nil
	}
	return os.WriteFile(o.svg, r.plot(), 0o644)
}

// single measures single calls.
func single(ctx context.Context, c *redis.Client, rounds, calls int) error {
	ops, err := operations(c)
	if err != nil {
		return err
	}
	fmt.Printf("single calls: medians (and quartiles) of %d rounds of %d calls, in each of which everything is called, there and back\n", rounds, calls)
	for _, goroutines := range []int{1, 64} {
		figures, err := measure(ctx, c, ops, rounds, calls, goroutines)
		if err != nil {
			return err
		}
		fmt.Printf("\n| goroutines: %d | to a SET in the same round | to redis_rate in the same round | µs a call | µs of Redis's work |\n|---|---:|---:|---:|---:|\n", goroutines)
		for i, op := range ops {
			f := figures[i]
			peer := ""
			if op.peer != "" {
				peer = f.toPeer.text(op.each)
			}
			fmt.Printf("| %s | %s | %s | %.1f | %.1f |\n", op.name, f.toFirst.text(op.each), peer, f.micros.median, f.redis.median)
		}
	}
	return nil
}

// text is a ratio, for each of so many decisions.
func (s spread) text(each int) string {
	if n := float64(each); each > 1 {
		return fmt.Sprintf("%.3f each (%.3f to %.3f)", s.median/n, s.low/n, s.high/n)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.median, s.low, s.high)
}
