package dispatch

import (
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// unreadable sets live limits that this version can't read, as another one might.
func (r *rig) unreadable(at int) {
	r.t.Helper()
	key := redisdb.NewKeys(r.cfg.Gateways[at].Name).LiveLimits()
	if err := r.db.Client.HSet(r.t.Context(), key, versionField, 1, limitsField, "100/s what").Err(); err != nil {
		r.t.Fatal(err)
	}
}

const (
	quick  = "leak: {limits: [100/s]}"
	parked = "leak: {limits: [100/s]}\nadmission: {limits: [100/s], burst: 10}" // most jobs wait for the replayer, which the pulse wakes
)

func TestOneGatewaysUnreadableLimitsDoNotStarveTheOthers(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, parked)
	r.serve()
	r.unreadable(0)
	r.put(0, 5)
	r.put(1, 40)
	testkit.Eventually(t, 10*time.Second, "all jobs of both, the first at its old limits", func() bool {
		return r.standing(0).Done == 5 && r.standing(1).Done == 40
	})
}

func TestStartGoesOnWithoutOneGatewaysLimits(t *testing.T) {
	t.Parallel()
	r := setup(t, quick, parked)
	r.unreadable(0)
	r.put(1, 40)
	r.serve()
	testkit.Eventually(t, 10*time.Second, "the other gateway's jobs", func() bool { return r.standing(1).Done == 40 })
}

// The file's burst is made for the file's limits: it gives way to smaller ones.
func TestALiveLimitBelowTheBurstIsKept(t *testing.T) {
	t.Parallel()
	r, j := judged(t, "{limits: [100/s], burst: 50}")
	d := r.serve()
	if err := SetLimits(t.Context(), r.db.Client, r.cfg.Gateways[0], []config.Limit{{N: 5, Window: time.Second}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, "the limit to be taken over", func() bool { return d.units[0].limits.Load() == 1 })
	r.put(0, 12)
	testkit.Eventually(t, 10*time.Second, "twelve calls", func() bool { return len(j.calls()) == 12 })
	if most := j.most(time.Second, 0); most > 5 {
		t.Errorf("%d calls within a second at 5/s", most)
	}
}
