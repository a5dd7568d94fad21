package dispatch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// stamped is a gateway that records the time, path, lane and key of each call.
type stamped struct {
	mu    sync.Mutex
	calls []stamp
}

type stamp struct {
	at              time.Time
	path, lane, key string
}

func (g *stamped) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, stamp{time.Now(), r.URL.Path, r.Header.Get("X-Lane"), r.Header.Get("Idempotency-Key")})
}

func (g *stamped) seen() []stamp {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// most returns the most of these calls that arrived within any second.
func most(calls []stamp, of func(stamp) bool) (most int) {
	var at []time.Time
	for _, c := range calls {
		if of(c) {
			at = append(at, c.at)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i, first := 0, 0; i < len(at); i++ {
		for at[i].Sub(at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// laneJobs returns n jobs of a lane. Route and class may be empty.
func laneJobs(lane, route, class string, n int) (jobs []job.Job) {
	for i := range n {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("%s%s%s-%04d", class, route, lane, i), Lane: lane, Route: route, Priority: class})
	}
	return jobs
}

const twoLimited = `leak: {limits: [40/s], jitter: 200ms}
routes:
  charge: {request: {url: URL/charge}, limits: [25/s]}
  refund: {request: {url: URL/refund}, limits: [25/s]}
`

// Two routes share the account's limit, and each has its own. No second has more calls of one route, or of both together, than the limits allow.
func TestRoutesHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/own, idempotency_prefix: ""}`, twoLimited, func(t *testing.T, r *rig) {
		r.admit(laneJobs("", "charge", "", 70)...)
		r.admit(laneJobs("", "refund", "", 30)...)
		r.serve()
		r.serve()
		begun := time.Now()
		testkit.Eventually(t, 30*time.Second, "all to be done", func() bool { return r.standing(0).Done == 100 })
		took := time.Since(begun)
		calls := g.seen()
		if n := most(calls, func(stamp) bool { return true }); n > 40 {
			t.Errorf("%d calls in a second, the account's limit is 40", n)
		}
		for _, path := range []string{"/charge", "/refund"} {
			if n := most(calls, func(c stamp) bool { return c.path == path }); n > 25 {
				t.Errorf("%d calls of %s in a second, its limit is 25", n, path)
			}
		}
		if len(calls) != 100 {
			t.Errorf("%d calls for 100 jobs", len(calls))
		}
		t.Logf("100 calls in %s", took)
		r.clean()
	})
}

const laned = `leak: {limits: [100/s], jitter: 200ms}
lanes: {key: lane, header: {X-Lane: "{lane}"}, limits: [2/s]}
priority: {classes: [urgent, normal], default: normal}
`

// Each lane keeps its own limit and its order. A lane with many jobs delays no other lane, and an urgent job is called before the other jobs of its lane.
func TestLanesShareTheAccount(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, laned, func(t *testing.T, r *rig) {
		r.admit(laneJobs("hog", "", "", 1000)...)
		for i := range 30 {
			r.admit(laneJobs(fmt.Sprintf("m%02d", i), "", "", 2)...)
		}
		r.serve()
		r.serve()
		testkit.Eventually(t, 20*time.Second, "all but the hog's to be called", func() bool {
			return len(slices.DeleteFunc(g.seen(), func(c stamp) bool { return c.lane == "hog" })) == 60
		})
		r.admit(laneJobs("hog", "", "urgent", 1)...)
		testkit.Eventually(t, 20*time.Second, "the urgent job to be called", func() bool {
			return slices.ContainsFunc(g.seen(), func(c stamp) bool { return strings.HasPrefix(c.key, "urgent") })
		})
		calls := g.seen()
		first := calls[0].at
		calls = slices.DeleteFunc(calls, func(c stamp) bool { return strings.HasPrefix(c.key, "urgent") })
		for lane, n := range inOrder(calls) {
			if n > 1 {
				t.Errorf("a job of lane %s came %d places from its own", lane, n)
			}
			if n := most(calls, func(c stamp) bool { return c.lane == lane }); n > 2 {
				t.Errorf("%d calls of lane %s in a second, its limit is 2", n, lane)
			}
		}
		for _, c := range calls {
			if c.lane != "hog" && c.at.Sub(first) > 5*time.Second {
				t.Errorf("%s was called after %s", c.key, c.at.Sub(first))
			}
		}
		r.clean()
	})
}

// inOrder returns for each lane how many places its calls were out of order at most, by the numbers at the ends of the job ids.
func inOrder(calls []stamp) map[string]int {
	came, off := map[string]int{}, map[string]int{}
	for _, c := range calls {
		var number int
		fmt.Sscanf(c.key[strings.LastIndexByte(c.key, '-')+1:], "%d", &number)
		off[c.lane] = max(off[c.lane], number-came[c.lane], came[c.lane]-number)
		came[c.lane]++
	}
	return off
}

// serveUntil runs a dispatcher with this configuration of the gateway until g has so many calls in all.
func (r *rig) serveUntil(with config.Gateway, g *stamped, calls int) {
	r.t.Helper()
	r.cfg.Gateways[0] = with
	d := r.serve()
	testkit.Eventually(r.t, 30*time.Second, "some calls", func() bool { return len(g.seen()) >= calls })
	d.Stop(r.t.Context())
}

// A gateway gets lanes and loses them again while jobs wait. Each job is called once, and the order of its lane is kept.
func TestLanesComeAndGoWithJobsWaiting(t *testing.T) {
	t.Parallel()
	g := &stamped{}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, strings.ReplaceAll(laned, "2/s", "30/s"), func(t *testing.T, r *rig) {
		with := r.cfg.Gateways[0]
		without := with
		without.Lanes, without.Priority = nil, nil
		for i := range 100 {
			for _, lane := range []string{"a", "b", "c"} {
				r.admit(job.Job{ID: fmt.Sprintf("%s-%04d", lane, i), Lane: lane})
			}
		}
		serve := func(with config.Gateway, calls int) { t.Helper(); r.serveUntil(with, g, calls) }
		serve(without, 40)
		serve(with, 120)
		if lines, err := redisdb.LaneLines(t.Context(), r.db.Client, redisdb.NewKeys(with.Name)); err != nil || len(lines) == 0 {
			t.Errorf("%d lines of lanes: %v", len(lines), err)
		}
		r.clean()
		serve(without, 200)
		if lines, err := redisdb.LaneLines(t.Context(), r.db.Client, redisdb.NewKeys(with.Name)); err != nil || len(lines) > 0 {
			t.Errorf("%v: %v", lines, err)
		}
		r.clean()
		serve(with, 300)
		for lane, n := range inOrder(g.seen()) {
			if n > 5 { // a stop returns jobs that were pulled, and the next process may pull others first
				t.Errorf("a job of lane %s came %d places from its own", lane, n)
			}
		}
		if n := len(g.seen()); n != 300 {
			t.Errorf("%d calls for 300 jobs", n)
		}
	})
}
