package e2e

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/provider"
)

// TestARetryGoesNextWhenItIsDue has a long queue, of which every twentieth job fails once: its second call comes when its back-off is
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
	first, again, latest := map[string]int64{}, 0, time.Duration(0)
	for _, c := range calls {
		at, called := first[c.Key]
		if !called {
			first[c.Key] = c.At
			continue
		}
		again++
		latest = max(latest, time.Duration(c.At-at)*time.Microsecond-backoff)
	}
	if again != n/20 || w.strict().Failed != n/20 {
		t.Errorf("%d jobs were called again, want %d", again, n/20)
	}
	if latest > 3*time.Second {
		t.Errorf("a second call came %v after it was due, want 3 s at most", latest)
	}
	t.Logf("%d jobs, %d called again, %v after the back-off at most, while the queue took %v", n, again, latest,
		time.Duration(calls[len(calls)-1].At-calls[0].At)*time.Microsecond)
}
