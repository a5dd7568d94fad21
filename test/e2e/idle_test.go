package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// TestAFirstJobDoesNotWaitForAPoll offers jobs one by one to an idle gateway and measures from the write of enqueue to the
// arrival at the provider.
func TestAFirstJobDoesNotWaitForAPoll(t *testing.T) {
	w := newWorld(t, provider.Config{Limits: perSecond100}, "    leak: {limits: [100/s]}\n")
	r := w.dispatcher("--log-level", "info")
	testkit.Eventually(t, 10*time.Second, "the dispatcher to serve", func() bool { return len(r.text()) > 0 && w.status().Queued == 0 })
	cfg, err := config.Load(w.config, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := dispatch.Open(context.Background(), cfg, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	door := dispatch.Door(db.Client, cfg, 0)
	const jobs = 100
	waits := make([]time.Duration, 0, jobs)
	for i := range jobs {
		written := time.Now()
		if _, err := door.Admit(t.Context(), "stripe", []job.Job{{ID: fmt.Sprintf("first-%03d", i)}}, admission.Park); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Second, "the call", func() bool { return w.provider.Stats().Calls == i+1 })
		waits = append(waits, time.UnixMicro(w.provider.Calls()[i].At).Sub(written))
		testkit.Eventually(t, 5*time.Second, "the gateway to be idle", func() bool {
			seen, err := dispatch.Look(t.Context(), db.Client, cfg.Gateways[0])
			return err == nil && seen.Done == int64(i+1) && seen.InFlight == 0
		})
	}
	slices.Sort(waits)
	t.Logf("from enqueue's write to the call: p50 %v, p99 %v, most %v", waits[jobs/2], waits[jobs*99/100], waits[jobs-1])
	if waits[jobs/2] > 200*time.Millisecond {
		t.Errorf("a first job waits %v: nobody wakes the gateway", waits[jobs/2])
	}
}
