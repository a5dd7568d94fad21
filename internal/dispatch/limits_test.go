package dispatch

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
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

// The file's burst is meant for the file's limits. It does not apply to lower limits that are set live.
func TestALiveLimitBelowTheBurstIsKept(t *testing.T) {
	t.Parallel()
	r, j := judged(t, "{limits: [100/s], burst: 50}")
	d := r.serve()
	if err := SetLimits(t.Context(), r.db.Client, r.cfg.Gateways[0], []job.Limit{{N: 5, Window: time.Second}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, "the limit to be taken over", func() bool { return d.units()[0].limits.Load() > 0 })
	r.put(0, 12)
	testkit.Eventually(t, 10*time.Second, "twelve calls", func() bool { return len(j.calls()) == 12 })
	if most := j.most(time.Second, 0); most > 5 {
		t.Errorf("%d calls within a second at 5/s", most)
	}
}

// Redis may know an older version of the limits than the pacer has seen. However that came about, the gateway is still called, within the limits that
// Redis knows.
func TestLimitsOfAnOlderVersionStopNobody(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(c redis.UniversalClient, limits string){
		"the limits set live are forgotten": func(c redis.UniversalClient, limits string) { c.Del(t.Context(), limits) },
		"an older version of them came back": func(c redis.UniversalClient, limits string) {
			c.HSet(t.Context(), limits, versionField, 1, limitsField, "50/s")
		},
	} {
		for who, living := range map[string]bool{"living dispatchers": true, "a new dispatcher": false} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				r := setup(t, quick)
				g := r.cfg.Gateways[0]
				for range 3 {
					if err := SetLimits(t.Context(), r.db.Client, g, []job.Limit{{N: 40, Window: time.Second}}); err != nil {
						t.Fatal(err)
					}
				}
				first := r.serve()
				r.put(0, 5)
				testkit.Eventually(t, 20*time.Second, "the first jobs", func() bool { return r.standing(0).Done == 5 })
				if !living {
					first.Stop(t.Context())
				}
				forget(r.db.Client, redisdb.NewKeys(g.Name).LiveLimits())
				r.serve()
				r.more(0, 5, 45)
				testkit.Eventually(t, 20*time.Second, "calls under the limits that Redis knows", func() bool { return r.standing(0).Done == 50 })
				now, err := CurrentLimits(t.Context(), r.db.Client, g)
				if want := map[bool]int64{true: 50, false: 100}[now.Live]; err != nil || len(now.Limits) != 1 || now.Limits[0].N != want {
					t.Errorf("%+v, %v", now, err)
				}
			})
		}
	}
}

// The version of the limits only grows, whatever is lost between two changes.
func TestTheVersionOfTheLimitsOnlyGrows(t *testing.T) {
	t.Parallel()
	r := setup(t, quick)
	g, k := r.cfg.Gateways[0], redisdb.NewKeys(r.cfg.Gateways[0].Name)
	var versions []int64
	for _, between := range []func(){
		func() {},
		func() { r.db.Client.Del(t.Context(), k.LiveLimits()) },
		func() { r.db.Client.HSet(t.Context(), k.LiveLimits(), versionField, 1) },
		func() {
			r.db.Client.Del(t.Context(), k.LiveLimits())
			r.db.Client.HSet(t.Context(), k.Pace(), "v", int64(1)<<52)
		},
	} {
		between()
		if err := SetLimits(t.Context(), r.db.Client, g, nil); err != nil {
			t.Fatal(err)
		}
		now, err := CurrentLimits(t.Context(), r.db.Client, g)
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, now.Version)
	}
	grows := slices.Compact(slices.Sorted(slices.Values(versions)))
	if !slices.Equal(versions, grows) || versions[3] != 1<<52+1 {
		t.Errorf("versions %v", versions)
	}
}
