package e2e

import (
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// A lane may have one call under way, and calls take a while: over two dispatchers there are never two at the provider, also when one is killed in the middle of
// a call. Its place is free again when its lease ends.
func TestACapOfALaneOverAKill(t *testing.T) {
	t.Parallel()
	const jobs = 40
	w := newWorld(t, provider.Config{Service: 250 * time.Millisecond},
		"      timeout: 1s\n    leak: {limits: [100/s], jitter: 5ms}\n    lanes: {key: lane, max_in_flight: 1}\n")
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "--lane", "m1", "-q")
	w.dispatcher()
	w.dispatcher()
	testkit.Eventually(t, 30*time.Second, "some calls", func() bool { return w.provider.Stats().Calls >= 10 })
	before := w.provider.Stats().Calls
	w.runs[0].kill()
	w.dispatcher()
	testkit.Eventually(t, 60*time.Second, "calls after the kill", func() bool { return w.provider.Stats().Calls >= before+10 })
	s := w.settled(2 * time.Minute)
	if s.Done != jobs || len(s.Parked) != 0 {
		t.Errorf("done %d of %d, parked %v", s.Done, jobs, s.Parked)
	}
	seen := w.strict()
	if seen.MaxInFlight != 1 || seen.Charged != jobs {
		t.Errorf("%d calls were under way at once, and %d of %d jobs were charged", seen.MaxInFlight, seen.Charged, jobs)
	}
	for _, r := range w.runs {
		r.stop()
	}
	w.audited("stripe")
}
