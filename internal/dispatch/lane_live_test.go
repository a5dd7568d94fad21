package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// boundBefore is how long after a change calls may still arrive whose slots were granted before it.
const boundBefore = 300 * time.Millisecond

func inLane(calls []stamp, lane string, since time.Time) []stamp {
	return slices.DeleteFunc(calls, func(c stamp) bool { return c.lane != lane || c.at.Before(since) })
}

// lane sets a lane's limits, unless limits is empty, and its pause, unless paused is nil. It returns the time of the answer.
func (r *rig) lane(lane string, limits string, paused *bool) time.Time {
	r.t.Helper()
	to := LaneChange{Paused: paused}
	if limits != "" {
		l, err := job.ParseLimit(limits)
		if err != nil {
			r.t.Fatal(err)
		}
		to.Limits = &[]job.Limit{l}
	}
	if err := SetLane(r.t.Context(), r.db.Client, r.cfg.Gateways[0], lane, to); err != nil {
		r.t.Fatal(err)
	}
	return time.Now()
}

// What is set live for a lane applies to two dispatchers at once, and still does after they are replaced one by one. A pause also applies to a lane without jobs, a lowered
// limit from the answer on, a raised one at once. Other lanes are called as before.
func TestALaneIsSetLive(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, `leak: {limits: [100/s], jitter: 250ms}
lanes: {key: lane, header: {X-Lane: "{lane}"}, limits: [10/s]}
admission: {limits: [10000/s], burst: 10000}
`, func(t *testing.T, r *rig) {
		yes, no := true, false
		r.lane("p", "", &yes)
		r.admit(laneJobs("p", "", "", 20)...)
		r.admit(laneJobs("a", "", "", 600)...)
		r.admit(laneJobs("b", "", "", 600)...)
		first, second := r.serve(), r.serve()
		called := func(lane string, since time.Time, n int) {
			t.Helper()
			testkit.Eventually(t, 20*time.Second, fmt.Sprintf("%d calls of %s", n, lane), func() bool { return len(inLane(g.seen(), lane, since)) >= n })
		}
		called("a", time.Time{}, 25)
		r.lane("a", "2/h", nil) // it has had more
		testkit.Eventually(t, 10*time.Second, "a to wait for its limit", func() bool {
			return r.db.Client.ZScore(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Throttled(), "a").Val() > float64(time.Now().Add(time.Minute).UnixMicro())
		})
		raised := r.lane("a", "50/s", nil)
		called("a", raised, 60)
		lowered := r.lane("a", "4/s", nil)
		third := r.serve()
		first.Stop(t.Context())
		called("a", lowered.Add(boundBefore), 8)
		fourth := r.serve()
		second.Stop(t.Context())
		called("a", lowered.Add(boundBefore), 14)
		within := func(lane string, since, until time.Time) []stamp {
			return slices.DeleteFunc(inLane(g.seen(), lane, since), func(c stamp) bool { return !until.IsZero() && c.at.After(until) })
		}
		all := func(stamp) bool { return true }
		reset := LaneChange{Limits: &[]job.Limit{}}
		if err := SetLane(t.Context(), r.db.Client, r.cfg.Gateways[0], "a", reset); err != nil {
			t.Fatal(err)
		}
		again := time.Now()
		if n := most(within("a", lowered.Add(boundBefore), again), all); n > 4 {
			t.Errorf("%d calls of a in a second after its limit was lowered to 4/s", n)
		}
		called("a", again, 20)
		if n := most(within("a", again, time.Time{}), all); n > 10 {
			t.Errorf("%d calls of a in a second after its limit of 10/s was set again", n)
		}
		if n := most(within("b", time.Time{}, time.Time{}), all); n > 10 {
			t.Errorf("%d calls of b in a second, its limit is 10/s", n)
		}
		if n := len(within("b", lowered, time.Time{})); n < 4 {
			t.Errorf("%d calls of b while a was set", n)
		}
		if calls := inLane(g.seen(), "p", time.Time{}); len(calls) > 0 {
			t.Errorf("%d calls of a paused lane", len(calls))
		}
		resumed := r.lane("p", "", &no)
		called("p", time.Time{}, 20)
		if at := inLane(g.seen(), "p", time.Time{})[0].at.Sub(resumed); at > 5*time.Second {
			t.Errorf("the first call of a lane that was resumed came after %s", at)
		}
		if n, err := r.db.Client.HLen(t.Context(), redisdb.NewKeys(r.cfg.Gateways[0].Name).Overrides()).Result(); err != nil || n != 0 {
			t.Errorf("%d lanes are set after all was taken back: %v", n, err)
		}
		third.Stop(t.Context())
		fourth.Stop(t.Context())
		seen := map[string]bool{}
		for _, c := range g.seen() {
			if seen[c.key] {
				t.Errorf("%s was called twice: %+v", c.key, r.found(c.key).History)
			}
			seen[c.key] = true
		}
		r.clean()
	})
}

// A paused route's jobs wait, and the other route has all of its limit. They are called when it is resumed.
func TestARouteIsPaused(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/own, idempotency_prefix: ""}`, twoLimited, func(t *testing.T, r *rig) {
		pause := func(paused bool) time.Time {
			t.Helper()
			if err := PauseRoute(t.Context(), r.db.Client, r.cfg.Gateways[0], "refund", paused); err != nil {
				t.Fatal(err)
			}
			return time.Now()
		}
		of := func(path string, since time.Time) []stamp {
			return slices.DeleteFunc(g.seen(), func(c stamp) bool { return c.path != path || c.at.Before(since) })
		}
		r.admit(laneJobs("", "refund", "", 60)...)
		r.admit(laneJobs("", "charge", "", 60)...)
		r.serve()
		r.serve()
		testkit.Eventually(t, 20*time.Second, "some calls of both", func() bool { return len(of("/refund", time.Time{})) > 3 && len(of("/charge", time.Time{})) > 3 })
		paused := pause(true)
		testkit.Eventually(t, 20*time.Second, "all of the other route", func() bool { return len(of("/charge", time.Time{})) == 60 })
		if calls := of("/refund", paused.Add(boundBefore)); len(calls) > 0 {
			t.Errorf("%d calls of a paused route", len(calls))
		}
		before := len(of("/refund", time.Time{}))
		resumed := pause(false)
		testkit.Eventually(t, 20*time.Second, "all to be done", func() bool { return r.standing(0).Done == 120 })
		if all := of("/refund", time.Time{}); len(all) <= before {
			t.Errorf("no call of a route that was resumed: %d before it", before)
		} else if at := all[before].at.Sub(resumed); at > 5*time.Second {
			t.Errorf("the first call of a route that was resumed came after %s", at)
		}
		if n := most(g.seen(), func(c stamp) bool { return c.path == "/refund" }); n > 25 {
			t.Errorf("%d calls of refund in a second, its limit is 25", n)
		}
		r.clean()
	})
}
