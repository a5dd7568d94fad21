package e2e

import (
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// A lane may have one call under way, and calls take a while. With two dispatchers the provider never has two of them at once, also when a dispatcher is killed in the
// middle of a call. The place in the lane is free again when the lease of that call ends. The provider goes on working when its client has hung up, so the calls' time-out is far
// longer than the work: a busy machine must not reach it.
func TestACapOfALaneOverAKill(t *testing.T) {
	t.Parallel()
	const jobs = 40
	w := newWorld(t, provider.Config{Service: 100 * time.Millisecond},
		"      timeout: 5s\n    leak: {limits: [100/s], jitter: 5ms}\n    lanes: {key: lane, max_in_flight: 1}\n")
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
