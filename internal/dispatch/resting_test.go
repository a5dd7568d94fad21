package dispatch

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// A process died after it had pulled a job of one gateway, and called a job of another. Both jobs are recovered and called although their gateways are idle and
// asynq does not look for expired leases. This takes a few pulses, and does not wait for the next regular sweep.
func TestADeadProcessesJobsAreTakenUpForAGatewayThatRests(t *testing.T) {
	t.Parallel()
	const limits = "leak: {limits: [50/s]}"
	r := setup(t, limits, limits)
	c, tasks := r.db.Client, [2]string{}
	for at, g := range r.cfg.Gateways {
		r.put(at, 1)
		tasks[at] = c.RPop(t.Context(), redisdb.NewKeys(g.Name).Pending()).Val()
	}
	d := r.serve()
	for _, u := range d.units() {
		testkit.Eventually(t, patience, "the sweep of the beginning", func() bool {
			u.sweeper.mu.Lock()
			defer u.sweeper.mu.Unlock()
			return !u.sweeper.busy
		})
	}

	if _, opening, err := Books(c, r.cfg.Gateways[1]).Open(t.Context(), "j0000", 1, "dead", time.Microsecond); err != nil || opening != job.OpenGo {
		t.Fatal(opening, err)
	}
	begun := time.Now()
	for at, g := range r.cfg.Gateways {
		k := redisdb.NewKeys(g.Name)
		c.ZAdd(t.Context(), k.Lease(), redis.Z{Score: float64(begun.Add(-time.Minute).Unix()), Member: tasks[at]})
		c.LPush(t.Context(), k.Active(), tasks[at])
	}
	for at, what := range []string{"the job that was pulled", "the job that was called"} {
		testkit.Eventually(t, patience, what, func() bool { return r.standing(at).Done == 1 })
	}
	if took := time.Since(begun); took > sweepAtLeast/2 || r.count() != 2 {
		t.Errorf("%d calls after %v, want 2 at once", r.count(), took)
	}
}
