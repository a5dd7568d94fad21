package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// operation is one thing that is measured. each is how many decisions one call makes; peer names the operation that it is held against.
type operation struct {
	name, peer string
	each       int
	do         func(ctx context.Context, i int) error
}

// spread is a median and its quartiles.
type spread struct{ median, low, high float64 }

func spreadOver(numbers []float64) spread {
	slices.Sort(numbers)
	n := len(numbers)
	return spread{numbers[n/2], numbers[n/4], numbers[3*n/4]}
}

// figure is what the rounds came to for one operation. Ratios are those of its time to the first operation's and to its peer's in the
// same round; peer is nothing for an operation without one.
type figure struct {
	toFirst, toPeer spread
	micros, redis   spread // µs a call: on the clock, and of Redis's main thread
}

// measure runs every operation in every round, every other time from the last to the first, so that whatever disturbs the machine
// disturbs all alike. The first round only warms up.
func measure(ctx context.Context, c *redis.Client, ops []operation, rounds, calls, goroutines int) ([]figure, error) {
	took, work := make([][]float64, len(ops)), make([][]float64, len(ops))
	for round := range rounds + 1 {
		for i := range ops {
			if round%2 == 1 {
				i = len(ops) - 1 - i
			}
			before, err := worked(ctx, c)
			if err != nil {
				return nil, err
			}
			micros, err := timed(ctx, ops[i], calls, goroutines)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ops[i].name, err)
			}
			after, err := worked(ctx, c)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				took[i], work[i] = append(took[i], micros), append(work[i], (after-before)/float64(calls))
			}
		}
	}
	return figuresOf(ops, took, work), nil
}

func figuresOf(ops []operation, took, work [][]float64) []figure {
	figures := make([]figure, len(ops))
	for i, op := range ops {
		figures[i].toFirst = spreadOver(over(took[i], took[0]))
		if peer := slices.IndexFunc(ops, func(o operation) bool { return o.name == op.peer }); peer >= 0 {
			figures[i].toPeer = spreadOver(over(took[i], took[peer]))
		}
	}
	for i := range ops { // sorts what was in the order of the rounds
		figures[i].micros, figures[i].redis = spreadOver(took[i]), spreadOver(work[i])
	}
	return figures
}

// worked returns the µs that Redis's main thread has worked so far.
func worked(ctx context.Context, c *redis.Client) (float64, error) {
	info, err := c.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return 0, fmt.Errorf("Redis says nothing of its work: %w", err)
		}
		sum += seconds * 1e6
	}
	return sum, nil
}

// timed returns the µs of wall time for each call.
func timed(ctx context.Context, op operation, calls, goroutines int) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, goroutines)
	start := time.Now()
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := g; i < calls && errs[g] == nil; i += goroutines {
				errs[g] = op.do(ctx, i)
			}
		}()
	}
	wg.Wait()
	took := float64(time.Since(start).Microseconds()) / float64(calls)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}
