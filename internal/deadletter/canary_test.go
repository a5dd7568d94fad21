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

// calls ends the next call of the queue whenever the canary is looked at.
func (b *bench) calls(c *deadletter.BulkRun, end func(a job.Attempt)) {
	c.Canaries = func(deadletter.Canary) {
		queue := b.queued()
		if len(queue) > 0 {
			end(b.open(queue[0]))
		}
	}
}

func (b *bench) succeed(a job.Attempt) {
	b.t.Helper()
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 200, Verdict: job.VerdictDone, At: b.Now()}))
}

func (b *bench) refuse(a job.Attempt) {
	b.t.Helper()
	b.must(b.store.Park(b.ctx, a, refused("HTTP 402: secret"), job.Refused))
}

func TestCanaryGoesFirstAndTheRestFollowsWhenItIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 500)...)
	c := b.bulkRun(deadletter.Filter{})
	c.Canary = 3
	most := 0
	b.calls(&c, func(a job.Attempt) {
		most = max(most, len(b.queued())+1)
		b.succeed(a)
	})
	done, err := c.Replay(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 500})
	want(t, "in the queue while the canary is waited for", most, 3)
	want(t, "queued behind it", len(b.queued()), 497)
}

func TestCanaryOfABrokenGatewayStopsAfterIt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]struct {
		end  func(b *bench, a job.Attempt)
		says string
	}{
		"parked again": {(*bench).refuse, "5 of the 5 sent ahead failed: j1 was parked again as refused (HTTP 402), " +
			"j2 was parked again as refused (HTTP 402), j3 was parked again as refused (HTTP 402), j4 was parked again as refused (HTTP 402), " +
			"j5 was parked again as refused (HTTP 402)"},
		"in back-off": {func(b *bench, a job.Attempt) {
			b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: b.Now()}, time.Hour))
		}, "5 of the 5 sent ahead failed: j1 has to be tried again (HTTP 500), j2 has to be tried again (HTTP 500), " +
			"j3 has to be tried again (HTTP 500), j4 has to be tried again (HTTP 500), j5 has to be tried again (HTTP 500)"},
		"one of them": {func(b *bench, a job.Attempt) {
			if a.Job.ID == "j4" {
				b.refuse(a)
				return
			}
			b.succeed(a)
		}, "1 of the 5 sent ahead failed: j4 was parked again as refused (HTTP 402)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10_000)
			b.reject(numbered(1, 300)...)
			c := b.bulkRun(deadletter.Filter{})
			c.Canary = 5
			calls := 0
			b.calls(&c, func(a job.Attempt) { calls++; fail.end(b, a) })
			done, err := c.Replay(b.ctx, b.books, b.rules())
			halt, ok := errors.AsType[*deadletter.Halt](err)
			if !ok || halt.Canary == nil || halt.Why != fail.says {
				t.Fatalf("error %v, want %s", err, fail.says)
			}
			want(t, "done", done, deadletter.BulkResult{Taken: 5})
			want(t, "calls", calls, 5)
			want(t, "in the queue", len(b.queued()), 0)
		})
	}
}

// A canary may be larger than the number of jobs.
func TestCanaryOfAllJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 7)...)
	c := b.bulkRun(deadletter.Filter{})
	c.Canary = 20
	b.calls(&c, b.refuse)
	done, err := c.Replay(b.ctx, b.books, b.rules())
	halt, ok := errors.AsType[*deadletter.Halt](err)
	if !ok || len(halt.Canary.Failed) != 7 || done.Taken != 7 {
		t.Errorf("done %+v, error %v", done, err)
	}
}

func TestCanaryWaitsNoLongerThanTheGatewayIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 30)...)
	c := b.bulkRun(deadletter.Filter{})
	c.Canary = 3
	held := false
	c.Watch = func(context.Context) (deadletter.Leave, error) {
		if held {
			return deadletter.Leave{Stop: "one is held"}, nil
		}
		return deadletter.Leave{}, nil
	}
	c.Canaries = func(now deadletter.Canary) {
		want(t, "waiting", fmt.Sprint(now), fmt.Sprint(deadletter.Canary{Sent: 3, Waiting: 3}))
		held = true
	}
	done, err := c.Replay(b.ctx, b.books, b.rules())
	if halt, ok := errors.AsType[*deadletter.Halt](err); !ok || halt.Why != "one is held" || done.Taken != 3 {
		t.Errorf("done %+v, error %v", done, err)
	}
}

// Scheduled jobs show nothing about the gateway, and the canary does not wait for them.
func TestCanaryOfJobsForLaterShowsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	later := numbered(1, 5)
	for i := range later {
		later[i].At = b.Now().Add(time.Hour)
	}
	b.reject(later...)
	c := b.bulkRun(deadletter.Filter{})
	c.Canary = 2
	_, err := c.Replay(b.ctx, b.books, b.rules())
	if halt, ok := errors.AsType[*deadletter.Halt](err); !ok || halt.Why != "the time of all 2 sent ahead is still to come: they can't show whether the gateway is well" {
		t.Errorf("error %v", err)
	}
}

func TestCanaryIsInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	b.reject(numbered(1, 30)...)
	ctx, cancel := context.WithCancel(b.ctx)
	c := b.bulkRun(deadletter.Filter{})
	c.Canary = 3
	c.Canaries = func(deadletter.Canary) { cancel() }
	done, err := c.Replay(ctx, b.books, b.rules())
	if !errors.Is(err, context.Canceled) || done.Taken != 3 {
		t.Errorf("done %+v, error %v", done, err)
	}
}
