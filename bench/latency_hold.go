package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	holdProcesses = 4
	holdsOfRun    = 5               // 429s in each of -runs
	holdSteady    = 3 * time.Second // of calls at the full rate before each
)

// holdLimits are the calls a second of the gateways that answer 429.
var holdLimits = []int{100, 500}

// holdTimes has one call in a while answered 429, and prints what any of the processes still calls after that answer was sent.
func (l *latent) holdTimes(ctx context.Context, holds int, first bool) error {
	if first {
		fmt.Printf("%s\n%d processes, jobs waiting all the time; %d times one call is answered 429 with Retry-After: %.0f\n\n"+
			"| gateway | calls after the 429: median | most | ms until the last: median | most |\n|---|---:|---:|---:|---:|\n",
			l.where(ctx), len(l.all), holds, refusedFor.Seconds())
	}
	l.gw.refusals = make(chan chan<- time.Time, 1)
	each := l.n * int((holdSteady + 2*refusedFor).Seconds())
	if err := enqueueFrom(ctx, l.dir, l.config, strings.NewReader(lines(each*(holds+2))), "-g", "bench"); err != nil {
		return err
	}
	var calls, until []float64
	for range holds {
		after, last, err := l.hold(ctx)
		if err != nil {
			return err
		}
		calls, until = append(calls, float64(after)), append(until, millis(last))
	}
	callsMedian, _, callsMost := spreadOf(calls)
	untilMedian, _, untilMost := spreadOf(until)
	fmt.Printf("| %d/s | %.0f | %.0f | %.1f | %.1f |\n", l.n, callsMedian, callsMost, untilMedian, untilMost)
	return nil
}

// hold has one call answered 429 once calls have come at the full rate for a while, and returns how many calls came after that answer, and how long after it the last one.
func (l *latent) hold(ctx context.Context) (after int, last time.Duration, err error) {
	if err := l.steady(ctx); err != nil {
		return 0, 0, err
	}
	sent := make(chan time.Time, 1)
	l.gw.refusals <- sent
	var at time.Time
	select {
	case at = <-sent:
	case <-time.After(latencyFor):
		return 0, 0, errors.New("no call came that could be answered 429")
	}
	if err := pause(ctx, refusedFor*9/10); err != nil {
		return 0, 0, err
	}
	came := l.gw.between(at, at.Add(refusedFor*9/10))
	if len(came) > 0 {
		last = came[len(came)-1].Sub(at)
	}
	return len(came), last, nil
}

// steady waits until calls have come for a while without a gap.
func (l *latent) steady(ctx context.Context) error {
	for range 20 {
		from := time.Now()
		if err := pause(ctx, holdSteady); err != nil {
			return err
		}
		if came := l.gw.between(from, from.Add(holdSteady)); len(came) > 0 && came[0].Sub(from) < holdSteady/10 {
			return nil
		}
	}
	return errors.New("calls do not come steadily after a hold")
}
