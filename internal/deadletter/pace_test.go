package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// arrivals records when jobs enter the queue, by the bench's clock.
type arrivals struct {
	*bench
	at []time.Time
}

func (a *arrivals) Readmit(ctx context.Context, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	answers, retry, err := a.books.Readmit(ctx, jobs)
	for _, answer := range answers {
		if answer == job.Enqueued {
			a.at = append(a.at, a.Now())
		}
	}
	return answers, retry, err
}

// most returns the most arrivals in any window of this length.
func (a *arrivals) most(window time.Duration) int {
	most, from := 0, 0
	for i, at := range a.at {
		for !a.at[from].After(at.Add(-window)) {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

func at(rate float64) func(context.Context) (deadletter.Leave, error) {
	return func(context.Context) (deadletter.Leave, error) { return deadletter.Leave{Rate: rate}, nil }
}

func TestPacedReplayGoesInEvenlyAndNoFaster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate   float64 // units a second; each job costs 2
		window time.Duration
		most   int
		took   time.Duration
	}{
		{rate: 50, window: time.Second, most: 26, took: 20 * time.Second},
		{rate: 2000, window: 100 * time.Millisecond, most: 110, took: 500 * time.Millisecond},
		{rate: 0.5, window: 8 * time.Second, most: 3, took: 2000 * time.Second},
	} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10_000)
			b.reject(numbered(1, 500)...)
			seen, begun := &arrivals{bench: b}, b.Now()
			run := b.bulkRun(deadletter.Filter{})
			run.Watch = at(c.rate)
			done, err := run.Replay(b.ctx, seen, b.rules())
			b.must(err)
			want(t, "done", done, deadletter.BulkResult{Taken: 500})
			if got := seen.most(c.window); got > c.most {
				t.Errorf("%d went in within %v, want at most %d", got, c.window, c.most)
			}
			took := b.Now().Sub(begun)
			if off := took - c.took; off < -c.took/20 || off > c.took/20 {
				t.Errorf("it took %v, want %v", took, c.took)
			}
		})
	}
}

func TestReplayFollowsARateThatChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 100)...)
	begun, rate := b.Now(), 0.001
	run := b.bulkRun(deadletter.Filter{})
	run.Watch = func(context.Context) (deadletter.Leave, error) {
		if b.Now().Sub(begun) > 10*time.Second {
			rate = 20
		}
		return deadletter.Leave{Rate: rate}, nil
	}
	done, err := run.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 100})
	if took := b.Now().Sub(begun); took < 19*time.Second || took > 22*time.Second {
		t.Errorf("it took %v: 10 s of standing, then 99 jobs of cost 2 at 20/s", took)
	}
}

func TestReplayStopsWhenTheGatewayIsHeldAndGoesOnLater(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 100)...)
	begun, begins := b.Now(), 0
	run := b.bulkRun(deadletter.Filter{})
	run.Begin = func(context.Context) error { begins++; return nil }
	run.Watch = func(context.Context) (deadletter.Leave, error) {
		leave := deadletter.Leave{Rate: 20}
		if b.Now().Sub(begun) >= 3*time.Second {
			leave.Stop = "one is held"
		}
		return leave, nil
	}
	done, err := run.Replay(b.ctx, b.books, b.rules())
	halt, ok := errors.AsType[*deadletter.Halt](err)
	if !ok || halt.Why != "one is held" || halt.Canary != nil {
		t.Fatalf("error %v", err)
	}
	if done.Taken < 29 || done.Taken > 34 {
		t.Errorf("%d taken in 3 s at 20/s, of cost 2", done.Taken)
	}
	again, err := run.Replay(b.ctx, b.books, b.rules())
	if _, ok := errors.AsType[*deadletter.Halt](err); !ok || again.Taken != 0 {
		t.Errorf("while it is held: %+v, %v", again, err)
	}
	want(t, "begun, only where a job was offered", begins, 1)
	run.Watch = nil
	rest, err := run.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "taken by both", done.Taken+rest.Taken, 100)
	queue := b.queued()
	want(t, "queued", len(queue), 100)
	for i, id := range queue {
		want(t, "place", id, fmt.Sprintf("j%d", i+1))
	}
}

func TestReplayOfWhichNothingCanBeWrittenDownTakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.reject(numbered(1, 3)...)
	run := b.bulkRun(deadletter.Filter{})
	run.Begin = func(context.Context) error { return errors.New("the trail is full") }
	done, err := run.Replay(b.ctx, b.books, b.rules())
	if err == nil || done != (deadletter.BulkResult{}) || len(b.queued()) > 0 {
		t.Errorf("done %+v, error %v, queued %d", done, err, len(b.queued()))
	}
}

// A paced replay does not make up for a stall, such as an outage of Redis: that would be a burst.
func TestPacedReplayDoesNotMakeUpForAStall(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 200)...)
	seen := &arrivals{bench: b}
	run := b.bulkRun(deadletter.Filter{})
	stalled := false
	run.Watch = func(context.Context) (deadletter.Leave, error) {
		if len(seen.at) > 20 && !stalled {
			stalled = true
			b.now.Add(time.Minute.Microseconds())
		}
		return deadletter.Leave{Rate: 100}, nil
	}
	_, err := run.Replay(b.ctx, seen, b.rules())
	b.must(err)
	want(t, "stalled", stalled, true)
	if got := seen.most(time.Second); got > 54 {
		t.Errorf("%d jobs of cost 2 went in within a second, at 100/s", got)
	}
}
