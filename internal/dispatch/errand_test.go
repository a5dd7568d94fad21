package dispatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// anErrand returns an errand that records when it runs. Each run takes takes, and asks to run again after the next of nexts.
func anErrand(ctx context.Context, takes time.Duration, nexts ...time.Duration) (e *errand, runs func() []time.Duration) {
	var mu sync.Mutex
	var at []time.Duration
	began := time.Now()
	e = &errand{ctx: ctx, runs: new(sync.WaitGroup), do: func(context.Context) time.Duration {
		mu.Lock()
		at = append(at, time.Since(began))
		n := len(at)
		mu.Unlock()
		<-time.After(takes)
		if n > len(nexts) {
			return -1
		}
		return nexts[n-1]
	}}
	return e, func() []time.Duration {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

func TestAnErrandRunsWhenItIsNudgedAndWhenItsTimeComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, runs := anErrand(t.Context(), time.Second, 0, 10*time.Second, 10*time.Second)
		e.nudge() // it waits for the beginning
		e.nudge()
		<-time.After(time.Second)
		if n := len(runs()); n != 0 {
			t.Fatalf("%d runs before it begins", n)
		}
		e.begin(-1) // at 1 s: it runs, comes up again at once (2 s), and 10 s after that has ended (13 s)
		<-time.After(12500 * time.Millisecond)
		e.nudge() // at 13.5 s it is running: once more (14 s)
		e.nudge()
		<-time.After(time.Minute)
		want := []time.Duration{1 * time.Second, 2 * time.Second, 13 * time.Second, 14 * time.Second}
		if got := runs(); len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
			t.Errorf("it ran at %v, want %v", got, want)
		}
	})
}

func TestANudgeComesBeforeTheTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, runs := anErrand(t.Context(), 0, 10*time.Second)
		e.begin(10 * time.Second)
		<-time.After(5 * time.Second)
		e.nudge()
		<-time.After(time.Minute)
		if got := runs(); len(got) != 2 || got[0] != 5*time.Second || got[1] != 15*time.Second {
			t.Errorf("it ran at %v, want 5s and 15s", got)
		}
	})
}

func TestAnErrandThatEndedRunsNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, runs := anErrand(t.Context(), time.Second, 5*time.Second)
		e.begin(0)
		<-time.After(500 * time.Millisecond)
		e.nudge()
		e.end()
		e.runs.Wait()
		e.nudge()
		<-time.After(time.Minute)
		if got := runs(); len(got) != 1 {
			t.Errorf("it ran at %v, want once", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		e, runs = anErrand(ctx, time.Second, 0, 0, 0)
		e.begin(0)
		<-time.After(500 * time.Millisecond)
		cancel()
		<-time.After(time.Minute)
		if got := runs(); len(got) != 1 {
			t.Errorf("it ran at %v, want once: its context has ended", got)
		}
	})
}
