package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/provider"
)

// TestARetryGoesNextWhenItIsDue has a long queue in which every twentieth job fails once. The second call comes when the back-off is
// over, and not behind the queue. With -soak the queue is 20,000 jobs long.
func TestARetryGoesNextWhenItIsDue(t *testing.T) {
	t.Parallel()
	const rate, backoff = 200, time.Second
	n := 1200
	if *soak > 0 {
		n = 20_000
	}
	limits := []provider.Limit{{N: rate, Window: time.Second}}
	w := newWorld(t, provider.Config{Limits: limits, Service: 5 * time.Millisecond, FailEvery: 20}, fmt.Sprintf(`    leak: {limits: [%d/s], jitter: 10ms}
    admission: {limits: [1000000/s], burst: 1000000}
    retry: {attempts: 3, first: %v, max: %v}
`, rate, backoff, backoff))
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("november.ndjson", n), "-q")
	w.dispatcher()
	w.dispatcher()
	if s := w.settled(time.Duration(n/rate)*time.Second + time.Minute); s.Done != n || len(s.Parked) > 0 {
		t.Errorf("done %d of %d, parked %v", s.Done, n, s.Parked)
	}
	calls := w.provider.Calls()
	first, again, latest, ahead := map[string]int64{}, 0, time.Duration(0), 0
	for i, c := range calls {
		at, called := first[c.Key]
		if !called {
			first[c.Key] = c.At
			continue
		}
		again++
		due := at + backoff.Microseconds()
		latest = max(latest, time.Duration(c.At-due)*time.Microsecond)
		since, _ := slices.BinarySearchFunc(calls[:i], due, func(c provider.CallLine, due int64) int { return cmp.Compare(c.At, due) })
		ahead = max(ahead, i-since)
	}
	if again != n/20 || w.strict().Failed != n/20 {
		t.Errorf("%d jobs were called again, want %d", again, n/20)
	}
	if ahead > 3*rate { // 3 s of calls, however long a busy machine takes for them
		t.Errorf("%d calls went ahead of one that was due, which came %v late; want %d at most", ahead, latest, 3*rate)
	}
	t.Logf("%d jobs, %d called again, %v and %d calls after the back-off at most, while the queue took %v", n, again, latest, ahead,
		time.Duration(calls[len(calls)-1].At-calls[0].At)*time.Microsecond)
}
