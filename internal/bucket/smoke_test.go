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

// A real process runs at 200/s for three seconds, or on a busy machine for as long as it takes to make some calls. Even if each call was written as late as it can have been, no
// second holds more calls than the limit.
func TestNextInRealTime(t *testing.T) {
	t.Parallel()
	const limit, lasts, least = 200, 3 * time.Second, 30
	client, gateway := testkit.Client(t), testkit.Gateway(t)
	pending := redisdb.NewKeys(gateway).Pending()
	fill(t, client, pending, 2000)
	p := newTestPacer(t, client, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: limit, Window: time.Second}}, Jitter: 5 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := time.Now().Add(lasts)
	var mu sync.Mutex
	var wrote []int64
	made := func() int { mu.Lock(); defer mu.Unlock(); return len(wrote) }
	var calls sync.WaitGroup
	for time.Now().Before(over) || made() < least {
		s, err := p.Next(ctx)
		if err != nil {
			break
		}
		id, err := client.RPop(t.Context(), pending).Result()
		if err != nil || id == "" {
			t.Fatalf("no job for a slot: %v", err)
		}
		calls.Go(func() {
			p.Ready(s, time.Now())
			<-time.After(time.Until(p.Due(s)))
			if p.TooLate(s, time.Now()) {
				_ = p.Release(t.Context(), s)
				client.RPush(t.Context(), pending, id)
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
	if len(wrote) < least { // how close to the limit the rate comes is measured in test/e2e
		t.Errorf("%d calls in a minute, want at least %d", len(wrote), least)
	}
	t.Logf("%d calls, lead %s", len(wrote), p.Lead())
}
