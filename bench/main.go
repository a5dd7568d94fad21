// Bench measures what admission and the pacer cost, as ratios to a plain SET and beside redis_rate, all in one run on one
// redis-server of its own. It is a module of its own, so that the program does not depend on what it is measured against.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
)

func main() {
	rounds := flag.Int("rounds", 31, "interleaved rounds; the median is shown")
	calls := flag.Int("calls", 400, "calls of each operation in a round")
	flag.Parse()
	if err := run(context.Background(), *rounds, *calls); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, calls int) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	c := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: 80, MaxRetries: -1})
	defer c.Close()
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
