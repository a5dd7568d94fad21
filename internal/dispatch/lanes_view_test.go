package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

const viewed = `leak: {limits: [100/s]}
routes:
  refund: {request: {url: URL/refund}, limits: [2/h]}
lanes: {key: lane, limits: [1/m]}
priority: {classes: [urgent, normal], default: normal}
`

// Status, the gauges and the state of a job show what waits for a lane, a route and a class, and until when.
func TestLanesAreSeen(t *testing.T) {
	t.Parallel()
	virtually(t, &stamped{}, `{url: URL/, idempotency_prefix: ""}`, viewed, func(t *testing.T, r *rig) {
		g, reg := r.cfg.Gateways[0], r.instruments()
		r.admit(laneJobs("hog", "", "urgent", 1)...)
		if v, err := Look(t.Context(), r.db.Client, g); err != nil || v.Parts.Unsorted != 1 || v.Parts.Lanes.Jobs != 0 {
			t.Errorf("before anybody calls: %+v, %v", v.Parts, err)
		}
		r.serve()
		testkit.Eventually(t, 40*time.Second, "the urgent job to be done", func() bool { return r.standing(0).Done == 1 }) // alone: it takes its lane's permit
		r.admit(laneJobs("hog", "", "", 6)...)
		for i := range 5 {
			r.admit(laneJobs(fmt.Sprint("m", i), "refund", "", 1)...)
		}
		testkit.Eventually(t, 20*time.Second, "what may be called to be done", func() bool { return r.standing(0).Done == 3 })

		var v Glance
		testkit.Eventually(t, 20*time.Second, "the lane to be throttled", func() (ok bool) {
			var err error
			if v, err = Look(t.Context(), r.db.Client, g); err != nil {
				t.Fatal(err)
			}
			throttled, _ := value(t, reg, "spillway_lanes_throttled")
			return v.Parts.Lanes.Throttled == 1 && v.Parts.Unsorted == 0 && throttled == 1
		})
		p := v.Parts
		if p.Lanes.Busy != 4 || p.Lanes.Throttled != 1 || p.Lanes.Jobs != 9 || p.Unsorted != 0 {
			t.Errorf("lanes: %+v", p.Lanes)
		}
		if len(p.Routes) != 2 || p.Routes[0].Queued != 6 || p.Routes[1].Name != "refund" || p.Routes[1].Queued != 3 {
			t.Errorf("routes: %+v", p.Routes)
		}
		if len(p.Classes) != 2 || p.Classes[0].Name != "urgent" || p.Classes[0].Queued != 0 || p.Classes[1].Queued != 9 {
			t.Errorf("classes: %+v", p.Classes)
		}
		if v.ETA < 5*time.Minute || v.ETALeast {
			t.Errorf("six jobs of a lane of 1/m are called in %s, at least: %t", v.ETA, v.ETALeast)
		}
		waits := "refundm0-0000"
		for i := 1; r.find(waits).State != job.Queued; i++ {
			waits = fmt.Sprintf("refundm%d-0000", i)
		}
		for id, want := range map[string]struct {
			why      string
			from, to time.Duration
			most     bool
		}{
			"hog-0003":       {"waiting for its lane hog (1/m; 3 jobs of it go before it), about ", 3 * time.Minute, 4 * time.Minute, false},
			waits:            {"waiting for its route refund (2/h; ", 29 * time.Minute, 91 * time.Minute, true},
			"urgenthog-0000": {"done since ", -1, -1, false},
		} {
			w, err := WaitOf(t.Context(), r.db.Client, g, r.find(id))
			if err != nil || !strings.HasPrefix(w.Why, want.why) || w.In < want.from || w.In > want.to || w.Most != want.most {
				t.Errorf("%s: %+v, %v", id, w, err)
			}
		}
		for name, want := range map[string]float64{`route_queued_jobs route="refund"`: 3, `class_queued_jobs class="normal"`: 9, "lanes_with_jobs": 4,
			"lanes_queued_jobs": 9, `lane_queued_jobs rank="1"`: 6, `lane_queued_jobs rank="4"`: 1, "lanes_other_queued_jobs": 0, "lanes_stuck_seconds": 0} {
			name, label, _ := strings.Cut(name, " ")
			labels := []string{label}
			if label == "" {
				labels = nil
			}
			if is := patientValue(t, reg, "spillway_"+name, labels...); is != want {
				t.Errorf("%s %s is %v", name, label, is)
			}
		}
		if _, there := value(t, reg, "spillway_lane_queued_jobs", `rank="5"`); there {
			t.Error("there are more lanes than there are")
		}
		r.clean()
	})
}

// patientValue is like value, and waits until the metric exists: a scrape waits 3 s for Redis, which is too short on a busy machine.
func patientValue(t *testing.T, reg prometheus.Gatherer, name string, labels ...string) (is float64) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, "the metric "+name, func() (there bool) {
		is, there = value(t, reg, name, labels...)
		return there
	})
	return is
}

// Gauges show for each route whether it is held or paused, and of the lanes with most jobs how many are held.
func TestHoldsOfOneLaneAndOneRouteAreSeen(t *testing.T) {
	t.Parallel()
	r := routed(t, &stamped{}, `{url: URL/, idempotency_prefix: ""}`, viewed)
	g, reg := r.cfg.Gateways[0], r.instruments()
	r.admit(laneJobs("hog", "", "", 6)...)
	r.admit(laneJobs("hog", "refund", "", 1)...)
	r.admit(laneJobs("m", "", "", 2)...)
	p, err := Pacer(r.db.Client, g, bucket.NewMetrics(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(t.Context()) })
	p.AtMost(10)
	if _, err := p.Next(t.Context()); err != nil { // the jobs go to their lanes
		t.Fatal(err)
	}
	check := func(when string, want map[string]float64) {
		t.Helper()
		for name, at := range want {
			name, label, _ := strings.Cut(name, " ")
			labels := []string{label}
			if label == "" {
				labels = nil
			}
			if is := patientValue(t, reg, "spillway_"+name, labels...); is < at-600 || is > at {
				t.Errorf("%s: %s %s is %v, want %v", when, name, label, is, at)
			}
		}
	}
	check("before", map[string]float64{`route_held_seconds route="refund"`: 0, `route_paused route="refund"`: 0, `route_held_seconds route=""`: 0, "lanes_held": 0})
	for scope, long := range map[job.Scope]time.Duration{job.ScopeLane: 2 * time.Hour, job.ScopeRoute: time.Hour} {
		f := job.Failure{Kind: job.Wait, For: long, Written: true, Why: "HTTP 429", Scope: scope, Flow: job.Flow{Lane: "hog", Route: "refund", Kept: true}}
		if _, err := p.Failed(t.Context(), job.Circuit{}, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.PauseRoute(t.Context(), "refund", true); err != nil {
		t.Fatal(err)
	}
	check("held", map[string]float64{`route_held_seconds route="refund"`: 3600, `route_held_seconds route=""`: 0})
	if is := patientValue(t, reg, "spillway_lanes_held"); is != 1 {
		t.Errorf("%v of two lanes are held", is)
	}
	if is := patientValue(t, reg, "spillway_route_paused", `route="refund"`); is != 1 {
		t.Errorf("the paused route: %v", is)
	}
}

// A lane is reported as stuck if nothing holds it back and its next job stays the same.
func TestALaneThatIsStuckIsSeen(t *testing.T) {
	t.Parallel()
	w, now := &laneWatch{}, time.Now()
	g := config.Gateway{Priority: &config.Priority{Classes: []string{"urgent", "normal"}, Default: "normal"}}
	for _, step := range []struct {
		next  string
		until time.Duration
		hold  bool
		above int64
		route string
		want  time.Duration
	}{{next: "a~1"}, {next: "a~1", want: 50 * time.Second}, {next: "a~1", want: 110 * time.Second}, {next: "a~1", until: time.Hour}, {next: "a~1"}, {next: "a~1", want: 50 * time.Second},
		{next: "b~1"}, {next: "b~1", hold: true}, {next: "b~1"}, {next: "b~1", above: 1}, {next: "b~1"}, {next: "b~1", route: "limited"}, {next: "b~1"}, {next: "b~1", route: "paused"}, {next: "b~1"}, {next: "b~1", route: "held"}, {next: "b~1"}, {next: "b~1", want: 50 * time.Second}} {
		now = now.Add(time.Minute)
		v := Glance{Parts: Parts{Routes: []Part{{Name: "limited", Limits: []job.Limit{{N: 1, Window: time.Hour}}}, {Name: "paused", Paused: true}, {Name: "held", Hold: bucket.Standing{HeldUntil: now.Add(time.Hour)}}}, Lanes: &bucket.LaneTotals{Busy: 10, Flows: map[job.Flow]int64{{Class: "urgent"}: step.above}}}} // three turns take 10 s
		v.Now, v.Hold.Paused, v.Rate = now, step.hold, 3
		w.largest = []bucket.LaneSize{{Lane: "m", Jobs: 1, Next: step.next, Route: step.route}}
		if step.until > 0 {
			w.largest[0].Until = now.Add(step.until)
		}
		if is := w.stuck(v, g); is != step.want {
			t.Errorf("%+v: %s", step, is)
		}
	}
}
