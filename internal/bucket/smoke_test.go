package bucket

import (
	"context"
	"sync"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A real process at 200/s for three seconds: what it wrote, at the latest it can have been, never exceeds the limit.
func TestNextInRealTime(t *testing.T) {
	t.Parallel()
	const limit, lasts = 200, 3 * time.Second
	client := testkit.Client(t)
	gateway := "real-time"
	pending := redisdb.NewKeys(gateway).Pending()
	fill(t, client, pending, 2000)
	p := newTestPacer(t, client, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: limit, Window: time.Second}}, Jitter: 5 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var mu sync.Mutex
	var wrote []int64
	var calls sync.WaitGroup
	for {
		s, err := p.Next(ctx)
		if err != nil {
			break
		}
		if n, err := client.RPop(t.Context(), pending).Result(); err != nil || n == "" {
			t.Fatalf("no job for a slot: %v", err)
		}
		calls.Go(func() {
			p.Ready(s, time.Now())
			<-time.After(time.Until(p.Due(s)))
			if p.TooLate(s, time.Now()) {
				_ = p.Release(t.Context(), s)
				return
			}
			at := time.Now()
			p.Written(s, at)
			mu.Lock()
			wrote = append(wrote, p.bounds.notAfter(p.local(at)))
			mu.Unlock()
			p.End(t.Context(), s)
		})
	}
	calls.Wait()
	if worst := mostInWindow(wrote, nil, 1e6); worst > limit {
		t.Errorf("%d calls in one second, want at most %d", worst, limit)
	}
	if rate := float64(len(wrote)) / lasts.Seconds(); rate < limit/20. { // other tests run beside it; how near it gets is measured in test/e2e
		t.Errorf("%.1f calls a second, want at least %.1f", rate, limit/20.)
	}
	t.Logf("%d calls, lead %s", len(wrote), p.Lead())
}
