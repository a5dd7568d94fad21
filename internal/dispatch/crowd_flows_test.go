package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// One lane has more jobs than admission has room for. Jobs of other lanes are admitted, and called within as many slots as there are lanes with jobs. An urgent job of the
// crowded lane is called at once.
func TestACrowdLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	const lanes = 40
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, "admission: {burst: 600}\n"+strings.Replace(laned, ", limits: [2/s]", "", 1), func(t *testing.T, r *rig) {
		for some := range slices.Chunk(laneJobs("hog", "", "", 3000), 500) {
			r.admit(some...)
		}
		if s := r.standing(0); s.Queued > 330 || s.Queued < 290 || s.Queued+s.Parked[job.Rejected] != 3000 {
			t.Fatalf("%d queued, %d rejected: a crowd takes half of the room", s.Queued, s.Parked[job.Rejected])
		}
		d := r.serve()
		testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return len(g.seen()) >= 50 })
		before := map[string]int{} // calls that were made when a lane's jobs were in
		for i := range lanes {
			for _, said := range r.admit(laneJobs(fmt.Sprintf("m%02d", i), "", "", 2)...) {
				if said != string(job.Enqueued) {
					t.Errorf("a job of lane %d: %s", i, said)
				}
			}
			before[fmt.Sprintf("m%02d", i)] = len(g.seen())
		}
		if said := r.admit(laneJobs("hog", "", "urgent", 1)...); said[0] != string(job.Enqueued) {
			t.Errorf("an urgent job: %s", said[0])
		}
		before["urgenthog"] = len(g.seen())
		testkit.Eventually(t, 20*time.Second, "the others to be called", func() bool {
			return len(slices.DeleteFunc(g.seen(), func(c stamp) bool { return strings.HasPrefix(c.key, "hog") })) == 2*lanes+1
		})
		firsts := map[string]int{}
		for i, c := range g.seen() {
			if name := c.key[:strings.LastIndexByte(c.key, '-')]; firsts[name] == 0 {
				firsts[name] = i
			}
		}
		for name, made := range before {
			if after := firsts[name] - made; after > 2*(lanes+1) { // each lane with jobs has a turn, and some calls are bound already or on their way
				t.Errorf("the first job of %s was called after %d others", name, after)
			}
		}
		testkit.Eventually(t, 60*time.Second, "the crowd", func() bool { return len(g.seen()) >= 800 })
		d.Stop(t.Context())
		for lane, n := range inOrder(slices.DeleteFunc(g.seen(), func(c stamp) bool { return strings.HasPrefix(c.key, "urgent") })) {
			if n > 1 {
				t.Errorf("a job of lane %s came %d places from its own", lane, n)
			}
		}
		r.clean()
	})
}

// A gateway gets lanes and loses them again while jobs are parked. Each job is called once, in the order of its lane.
func TestLanesComeAndGoWithJobsParked(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, "admission: {limits: [100/s], burst: 30}\n"+strings.ReplaceAll(laned, "2/s", "60/s"), func(t *testing.T, r *rig) {
		with := r.cfg.Gateways[0]
		without := with
		without.Lanes, without.Priority = nil, nil
		k, c, ctx := redisdb.NewKeys(with.Name), r.db.Client, t.Context()
		for i := range 150 {
			for _, lane := range []string{"a", "b", "c"} {
				r.admit(job.Job{ID: fmt.Sprintf("%s-%04d", lane, i), Lane: lane})
			}
		}
		if s := r.standing(0); s.Parked[job.Rejected] < 300 {
			t.Fatalf("%d parked", s.Parked[job.Rejected])
		}
		for _, lane := range []string{"a", "b", "c"} { // as a program leaves it that has no flows
			if c.Del(ctx, k.Parked("rejected")+":f:::"+lane, k.ParkedFlows()).Err() != nil || c.HDel(ctx, k.Counters(), "flowed").Err() != nil {
				t.Fatal("what is of flows was not deleted")
			}
		}
		serve := func(with config.Gateway, calls int) { t.Helper(); r.serveUntil(with, g, calls) }
		serve(without, 40)
		serve(with, 120)
		if n := c.ZCard(ctx, k.Parked("rejected")+":f:::a").Val(); n < 10 {
			t.Errorf("%d jobs of lane a have their turn", n)
		}
		r.admit(laneJobs("a", "", "urgent", 1)...)
		serve(without, 250)
		r.cfg.Gateways[0] = with
		r.admit(laneJobs("z", "", "", 60)...)
		serve(with, 511)
		for lane, n := range inOrder(slices.DeleteFunc(g.seen(), func(c stamp) bool { return strings.HasPrefix(c.key, "urgent") })) {
			if n > 5 { // a stop returns jobs that were pulled, and the next process may pull others first
				t.Errorf("a job of lane %s came %d places from its own", lane, n)
			}
		}
		if n := len(g.seen()); n != 511 {
			t.Errorf("%d calls for 511 jobs", n)
		}
		if n := c.Exists(ctx, k.Parked("rejected")+":f:::a", k.Parked("rejected")+":f:::z", k.Parked("rejected")).Val(); n > 0 {
			t.Errorf("%d sets of parked jobs are left", n)
		}
		r.clean()
	})
}
