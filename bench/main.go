// Bench measures what admission and the pacer cost, as ratios to a plain SET and beside redis_rate, and how fast jobs go in and out
// beside asynq's own client and server and a raw pipeline: all in one run on one redis-server of its own. It is a module of its own, so
// that the program does not depend on what it is measured against.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
)

// options is the command line.
type options struct {
	rounds, calls int
	jobs, runs    int
	svg           string
	asynq         string // set in the process that is the bare asynq server
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 31, "interleaved rounds of single calls; the median is shown; 0 leaves them out")
	flag.IntVar(&o.calls, "calls", 400, "calls of each operation in a round")
	flag.IntVar(&o.jobs, "jobs", 50_000, "jobs of a run in bulk")
	flag.IntVar(&o.runs, "runs", 3, "runs in bulk; the median is shown; 0 leaves them out")
	flag.StringVar(&o.svg, "svg", "", "write a plot of the runs in bulk to this `FILE`")
	full := flag.Bool("full", false, "1,000,000 jobs")
	flag.StringVar(&o.asynq, "asynq", "", "for this program's own use")
	flag.Parse()
	if *full {
		o.jobs = 1_000_000
	}
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(o options) error {
	if o.asynq != "" {
		return serveAsynq(o.asynq)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
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
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "ratios to a plain SET in the same rounds (median of %d rounds of %d calls; µs of a SET in the last line)\n\n", rounds, calls)
	fmt.Fprintln(w, "operation\tone goroutine\t(spread)\t64 goroutines\t(spread)\t")
	one, err := measure(ctx, ops, rounds, calls, 1)
	if err != nil {
		return err
	}
	many, err := measure(ctx, ops, rounds, calls, 64)
	if err != nil {
		return err
	}
	for i, op := range ops {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", op.name, ratio(one[i].ratio, op.each), one[i].spread(op.each), ratio(many[i].ratio, op.each), many[i].spread(op.each))
	}
	fmt.Fprintf(w, "a SET takes\t%.0f µs\t\t%.1f µs\t\t\n", one[0].micros, many[0].micros)
	return w.Flush()
}

func ratio(r float64, each int) string {
	if each == 1 {
		return fmt.Sprintf("%.2f", r)
	}
	return fmt.Sprintf("%.2f = %.3f each", r, r/float64(each))
}
