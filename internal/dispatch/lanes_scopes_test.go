package dispatch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// moody is a gateway that records its calls and answers each as answer says.
type moody struct {
	stamped
	answer func(r *http.Request) (status int, retryAfter string)
	lasts  time.Duration

	flying sync.Mutex
	now    map[string]int // calls under way, by lane
	most   map[string]int
}

func (g *moody) count(of string, n int) {
	g.flying.Lock()
	defer g.flying.Unlock()
	if g.now == nil {
		g.now, g.most = map[string]int{}, map[string]int{}
	}
	g.now[of] += n
	g.most[of] = max(g.most[of], g.now[of])
}

func (g *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.stamped.ServeHTTP(w, r)
	for _, of := range []string{"lane " + r.Header.Get("X-Lane"), "route " + r.URL.Path} {
		g.count(of, 1)
		defer g.count(of, -1)
	}
	if g.lasts > 0 {
		<-time.After(g.lasts)
	}
	status, after := http.StatusOK, ""
	if g.answer != nil {
		status, after = g.answer(r)
	}
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(status)
	fmt.Fprint(w, `{}`)
}

const heldAlone = `leak: {limits: [100/s], jitter: 20ms}
answers: [{status: 429, then: hold, scope: lane}]
lanes: {key: lane, header: {X-Lane: "{lane}"}}
`

// share returns which part of a limit of 100/s the calls between two times use.
func share(calls []stamp, from, till time.Time) float64 {
	n := 0
	for _, c := range calls {
		if !c.at.Before(from) && c.at.Before(till) {
			n++
		}
	}
	return float64(n) / (till.Sub(from).Seconds() * 100)
}

// The gateway tells one of 20 merchants to wait for minutes. Its jobs wait and spend no attempt. Meanwhile, the others use the whole limit.
func TestOneMerchantIsToldToWait(t *testing.T) {
	t.Parallel()
	g := &moody{answer: func(r *http.Request) (int, string) {
		if r.Header.Get("X-Lane") == "m07" {
			return http.StatusTooManyRequests, "300"
		}
		return http.StatusOK, ""
	}}
	virtually(t, g, `{url: URL/, idempotency_prefix: ""}`, heldAlone, func(t *testing.T, r *rig) {
		for i := range 20 {
			r.admit(laneJobs(fmt.Sprintf("m%02d", i), "", "", 60)...)
		}
		r.serve()
		r.serve()
		var began time.Time
		testkit.Eventually(t, 20*time.Second, "the answer 429", func() bool {
			i := slices.IndexFunc(g.seen(), func(c stamp) bool { return c.lane == "m07" })
			if i >= 0 {
				began = g.seen()[i].at
			}
			return i >= 0
		})
		<-time.After(7 * time.Second)
		calls := g.seen()
		if got := share(calls, began.Add(time.Second), began.Add(7*time.Second)); got < 0.95 {
			t.Errorf("the others had %.1f %% of the limit meanwhile", 100*got)
		}
		held := slices.DeleteFunc(slices.Clone(calls), func(c stamp) bool { return c.lane != "m07" })
		if len(held) > 5 {
			t.Errorf("the lane that was told to wait was called %d times", len(held))
		}
		if rec := r.found(held[0].key); rec.Spent != 0 {
			t.Errorf("its job has spent %d attempts", rec.Spent)
		}
		for id, want := range map[string]string{"m07-0059": "the lane m07 is held until ", "m08-0059": "waiting for "} {
			why, err := WhyNot(t.Context(), r.db.Client, r.cfg.Gateways[0], r.found(id))
			if err != nil || !strings.Contains(why, want) || !strings.Contains(why, "429") && id[:3] == "m07" {
				t.Errorf("why %s is not called: %s (%v), want %s", id, why, err, want)
			}
		}
		if v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[0]); err != nil || !v.Hold.HeldUntil.IsZero() || v.Hold.Probing {
			t.Errorf("the gateway is held: %+v (%v)", v.Hold, err)
		}
		r.clean()
	})
}

// The gateway tells two merchants to wait for a second, three times each. Then their calls succeed: all jobs are done, and the refused calls spent no attempt.
func TestLanesGoOnAfterTheirHolds(t *testing.T) {
	t.Parallel()
	var refused [4]atomic.Int32
	g := &moody{answer: func(r *http.Request) (int, string) {
		lane := int(r.Header.Get("X-Lane")[0] - 'a')
		if lane < 2 && refused[lane].Add(1) <= 3 {
			return http.StatusTooManyRequests, []string{"1", ""}[lane]
		}
		return http.StatusOK, ""
	}}
	r := routed(t, g, `{url: URL/, idempotency_prefix: ""}`, heldAlone)
	for _, lane := range []string{"a", "b", "c", "d"} {
		r.admit(laneJobs(lane, "", "", 50)...)
	}
	r.serve()
	r.serve()
	testkit.Eventually(t, 40*time.Second, "all to be done", func() bool { return r.standing(0).Done == 200 })
	for _, c := range g.seen() {
		if rec := r.found(c.key); rec.Spent > 1 { // the call that succeeded
			t.Errorf("%s has spent %d attempts", c.key, rec.Spent)
		}
	}
	r.clean()
}

// The gateway tells one route to wait. Meanwhile, the other route uses the whole limit. The same holds for a route that fails and has a circuit of its own. When the
// route works again, its jobs are called.
func TestRoutesAreHeldByThemselves(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		settings string
		status   int
	}{
		"told to wait": {"answers: [{status: 429, then: hold, scope: route}]\nroutes:\n  charge: {request: {url: URL/charge}}\n  refund: {request: {url: URL/refund}}\n",
			http.StatusTooManyRequests},
		"circuit": {"routes:\n  charge: {request: {url: URL/charge}}\n  refund: {request: {url: URL/refund}, circuit: own}\n",
			http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var well atomic.Bool
			g := &moody{answer: func(r *http.Request) (int, string) {
				if r.URL.Path == "/refund" && !well.Load() {
					return one.status, ""
				}
				return http.StatusOK, ""
			}}
			settings := "leak: {limits: [100/s], jitter: 20ms}\nlanes: {key: lane}\nretry: {first: 100ms, max: 1s}\n" + one.settings
			virtually(t, g, `{url: URL/own, idempotency_prefix: "", idempotency_header: Idempotency-Key}`, settings, func(t *testing.T, r *rig) {
				r.admit(laneJobs("a", "refund", "", 200)...)
				r.admit(laneJobs("b", "charge", "", 800)...)
				r.serve()
				r.serve()
				began := time.Now()
				refunds := func() int { return len(slices.DeleteFunc(g.seen(), func(c stamp) bool { return c.path != "/refund" })) }
				<-time.After(7 * time.Second)
				if got := share(g.seen(), began.Add(2*time.Second), began.Add(7*time.Second)); got < 0.95 {
					t.Errorf("the other route had %.1f %% of the limit meanwhile", 100*got)
				}
				if n := refunds(); n > 60 {
					t.Errorf("the route was called %d times", n)
				}
				why, err := WhyNot(t.Context(), r.db.Client, r.cfg.Gateways[0], r.found("refunda-0199"))
				if err != nil || !strings.Contains(why, "the route refund ") {
					t.Errorf("why a refund is not called: %s (%v)", why, err)
				}
				if v, err := Look(t.Context(), r.db.Client, r.cfg.Gateways[0]); err != nil || v.Hold.Circuit || !v.Hold.HeldUntil.IsZero() || v.Hold.Probing {
					t.Errorf("the gateway is held: %+v (%v)", v.Hold, err)
				}
				well.Store(true)
				from := refunds()
				testkit.Eventually(t, 60*time.Second, "the route to work again", func() bool { return refunds() > from+20 })
				testkit.Eventually(t, 60*time.Second, "all to be done", func() bool { return r.standing(0).Done == 1000 })
				if n := r.standing(0).Parked[job.Exhausted]; n > 0 {
					t.Errorf("%d jobs are exhausted", n)
				}
				r.clean()
			})
		})
	}
}

// Over two dispatchers, no lane and no route ever has more calls in flight than its cap. A call begins as soon as another one has ended.
func TestCapsOfLanesAndRoutes(t *testing.T) {
	t.Parallel()
	g := &moody{lasts: 150 * time.Millisecond}
	virtually(t, g, `{url: URL/own, idempotency_prefix: ""}`, `leak: {limits: [200/s], jitter: 5ms}
lanes: {key: lane, header: {X-Lane: "{lane}"}, max_in_flight: 1}
routes: {refund: {request: {url: URL/refund}, max_in_flight: 3}}
`, func(t *testing.T, r *rig) {
		for i := range 6 {
			r.admit(laneJobs(fmt.Sprintf("m%d", i), "refund", "", 10)...)
			r.admit(laneJobs(fmt.Sprintf("n%d", i), "", "", 20)...)
		}
		r.serve()
		r.serve()
		began := time.Now()
		testkit.Eventually(t, 20*time.Second, "a job to wait for the call of its lane", func() bool {
			why, err := WhyNot(t.Context(), r.db.Client, r.cfg.Gateways[0], r.found("n3-0019"))
			return err == nil && strings.HasPrefix(why, "the cap on calls in flight of the lane n3 is reached (lanes.max_in_flight 1), behind ")
		})
		testkit.Eventually(t, 40*time.Second, "all to be done", func() bool { return r.standing(0).Done == 180 })
		took := time.Since(began)
		g.flying.Lock()
		defer g.flying.Unlock()
		for of, n := range g.most {
			if strings.HasPrefix(of, "lane") && n > 1 || of == "route /refund" && n > 3 {
				t.Errorf("%d calls of %s were in flight at once", n, of)
			}
		}
		if n := g.most["route /refund"]; n < 3 {
			t.Errorf("at most %d calls of the route were in flight, 3 may be", n)
		}
		if took > 5*time.Second { // each lane has 20 calls of 150 ms one after the other, and the route 60, three at a time
			t.Errorf("all took %s", took)
		}
		t.Logf("%s", took)
		r.clean()
	})
}
