package bucket

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

func newTestPacer(t testing.TB, c redis.UniversalClient, cfg PacerConfig) *Pacer {
	t.Helper()
	p, err := NewPacer(c, cfg, NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	p.within = unhurried
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

// unhurried waits for an answer as long as it takes. A busy machine's Redis may be slow, and in virtual time no time passes meanwhile.
func unhurried(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// fill puts n tasks into the queue.
func fill(t testing.TB, c redis.UniversalClient, pending string, n int) {
	t.Helper()
	ids := make([]any, n)
	for i := range ids {
		ids[i] = "job" + strconv.Itoa(i) + "~1"
	}
	if err := c.LPush(context.Background(), pending, ids...).Err(); err != nil {
		t.Fatal(err)
	}
}

// mostInWindow returns the most units in any half-open window of that length. A nil cost means 1 each.
func mostInWindow(at, cost []int64, window int64) int64 {
	type call struct{ at, cost int64 }
	calls := make([]call, len(at))
	for i := range at {
		calls[i] = call{at[i], 1}
		if cost != nil {
			calls[i].cost = cost[i]
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })
	var sum, most int64
	first := 0
	for _, c := range calls {
		sum += c.cost
		for calls[first].at <= c.at-window {
			sum -= calls[first].cost
			first++
		}
		most = max(most, sum)
	}
	return most
}

func per(n int64, window time.Duration) job.Limit { return job.Limit{N: n, Window: window} }
