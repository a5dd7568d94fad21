package dispatch

import (
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// After a hold, one call is sent as a probe. If the gateway does not answer it, the next one is sent 5 s later, long before the time-out.
func TestAProbeThatHangsIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	plainly(t, quick, func(t *testing.T, r *rig) {
		r.hang = make(chan struct{})
		p, err := Pacer(r.db.Client, r.cfg.Gateways[0], bucket.NewMetrics(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		if _, err := p.Failed(t.Context(), job.Circuit{}, job.Failure{Kind: job.Wait, For: time.Millisecond, Written: true, Why: "test"}); err != nil {
			t.Fatal(err)
		}
		r.put(0, 10)
		r.serve()
		t.Cleanup(func() { close(r.hang) })
		testkit.Eventually(t, 20*time.Second, "the second call", func() bool { return r.count() == 2 })
		r.mu.Lock()
		defer r.mu.Unlock()
		if apart := r.calls[1].Sub(r.calls[0]); apart < 4500*time.Millisecond || apart > 5500*time.Millisecond { // the time-out is 20 s
			t.Errorf("the calls are %s apart, want 5 s", apart)
		}
	})
}
