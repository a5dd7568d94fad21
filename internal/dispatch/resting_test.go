package dispatch

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// asynqServes says that some asynq server pulls the queue of the gateway at that place.
func (r *rig) asynqServes(at int) bool {
	r.t.Helper()
	ctx := context.Background()
	return slices.ContainsFunc(r.db.Client.ZRange(ctx, "asynq:servers", 0, -1).Val(), func(server string) bool {
		return strings.Contains(r.db.Client.Get(ctx, server).Val(), r.cfg.Gateways[at].Name)
	})
}

// A process that died had pulled a job of one gateway, and called one of another. Each is taken up and called though its gateway rests: no asynq server runs for
// it, in no process, which would have found that the lease is over. It takes a pulse or a few, and not the sweep that there is now and then.
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
	for at, u := range d.units() {
		testkit.Eventually(t, patience, "the sweep of the beginning", func() bool {
			u.sweeper.mu.Lock()
			defer u.sweeper.mu.Unlock()
			return !u.sweeper.busy
		})
		if r.asynqServes(at) {
			t.Fatal("asynq serves a gateway without a job")
		}
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
