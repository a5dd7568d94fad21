package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// operation is one thing that is measured. each is how many decisions one call makes.
type operation struct {
	name string
	each int
	do   func(ctx context.Context, i int) error
}

// figure is the median over the rounds of an operation's time as a ratio to the first operation's in the same round.
type figure struct {
	ratio, low, high float64 // median and quartiles
	micros           float64 // median time of a call
}

func (f figure) spread(each int) string {
	if each > 1 {
		return fmt.Sprintf("%.3f to %.3f", f.low/float64(each), f.high/float64(each))
	}
	return fmt.Sprintf("%.2f to %.2f", f.low, f.high)
}

// measure runs every operation in every round, so that whatever disturbs the machine disturbs all alike.
func measure(ctx context.Context, ops []operation, rounds, calls, goroutines int) ([]figure, error) {
	ratios, micros := make([][]float64, len(ops)), make([][]float64, len(ops))
	for round := range rounds + 1 {
		var base float64
		for i, op := range ops {
			took, err := timed(ctx, op, calls, goroutines)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", op.name, err)
			}
			if i == 0 {
				base = took
			}
			if round > 0 { // the first one warms up
				ratios[i], micros[i] = append(ratios[i], took/base), append(micros[i], took)
			}
		}
	}
	figures := make([]figure, len(ops))
	for i := range ops {
		slices.Sort(ratios[i])
		slices.Sort(micros[i])
		n := len(ratios[i])
		figures[i] = figure{ratios[i][n/2], ratios[i][n/4], ratios[i][3*n/4], micros[i][n/2]}
	}
	return figures, nil
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
