package bucket

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// turnRun is a stretch in which a flow had jobs, and room on its route, at each binding. It has how many calls its lane has made of its class since the flow's last one, the flows that
// had jobs meanwhile, the flows whose route has no room, and how often one of these came back. A flow that came back may be called once before the others, as it has paid for less.
// A flow that has paid for its last call by an older weight may have paid for many of the others' calls.
type turnRun struct {
	calls, back int
	flows, shut map[job.Flow]bool
}

// checkTurns fails if a flow is not called although its lane has made as many calls of its class as it has flows with jobs.
func (w *lanesWorld) checkTurns(by windowsNow, s job.Slot) {
	served := flowKey(s.Flow)
	with, shut := map[job.Flow]bool{}, map[job.Flow]bool{}
	for f, lines := range w.queue {
		room := max(roomInAll(w.ofRoute[f.Route], by.routes[f.Route], 1, s.At), w.scopes.routeReady(w, f.Route, s.At))
		shut[f] = w.paused(f) || room > s.At
		if f.Lane == served.Lane && f.Class == served.Class && !lines.empty() {
			with[f] = true
		}
	}
	of, calls := job.Flow{Class: served.Class, Lane: served.Lane}, 1
	if w.again[of] > 0 { // it has paid for this one already
		w.again[of]--
		calls = 0
	}
	for f, lines := range w.queue {
		if f == served || lines.empty() || shut[f] || w.set.owing(f) {
			delete(w.turns, f)
			continue
		}
		run := w.turns[f]
		if run == nil {
			run = &turnRun{flows: map[job.Flow]bool{}, shut: map[job.Flow]bool{}}
			w.turns[f] = run
		}
		for other := range shut {
			if run.shut[other] && !shut[other] {
				if other.Lane == f.Lane && other.Class == f.Class {
					run.back++
				}
			}
			run.shut[other] = shut[other]
		}
		if !with[f] {
			continue
		}
		run.calls += calls
		for other := range with {
			run.flows[other] = true
		}
		if run.calls >= len(run.flows)+run.back {
			w.fail("%v waits, though its lane has made %d calls and has %d flows with jobs", f, run.calls, len(run.flows))
		}
	}
}

// drawTurns draws a trial of few lanes that have jobs on several routes each.
func drawTurns(seed uint64) laneTrial {
	tr := drawLanes(seed)
	tr.alike, tr.costs, tr.load, tr.late, tr.lanes, tr.back = false, 1, 3, 0, 1+int(seed%4), 0
	for i := range 3 {
		name := fmt.Sprintf("t%d", i)
		tr.cfg.Routes = append(tr.cfg.Routes, Route{Name: name})
		if i == 2 {
			tr.cfg.Routes[len(tr.cfg.Routes)-1].Limits = []job.Limit{{N: 2, Window: tr.cfg.Limits[0].Window}}
		}
	}
	if len(tr.cfg.Lanes.Limits) == 0 && seed%2 == 0 {
		tr.cfg.Lanes.Limits = []job.Limit{{N: 2, Window: tr.cfg.Limits[0].Window}}
	}
	return tr
}

// A lane's flows of one class, on several routes, take turns.
func TestRoutesOfALaneTakeTurns(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	for _, seed := range laneSeeds(600, 0, 1, 2, 3) {
		tr := drawTurns(seed)
		if wrong := newLanesWorld(newWorld(t, client, seed), tr).play(); len(wrong) > 0 {
			t.Fatalf("seed %d: %v\n%+v", seed, wrong, tr)
		}
	}
}

// routed returns a gateway in which each lane always has jobs, and a function that runs it and counts the calls of each flow.
func routed(t *testing.T, cfg PacerConfig, flows ...job.Flow) (*lanesWorld, func(d time.Duration) map[job.Flow]int) {
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{cfg: cfg, processes: 1})
	made := 0
	return w, func(d time.Duration) map[job.Flow]int {
		calls, end := map[job.Flow]int{}, w.now+d.Microseconds()
		for w.now < end {
			for _, f := range flows {
				made++
				if lines := w.flowOf(f).lines[1]; len(lines) < 20 {
					w.put(laneJob{id: fmt.Sprintf("j%d", made), generation: 1, cost: 1, flow: f}, 1, w.keys.Pending(), true)
				}
			}
			for _, s := range w.reserve(w.processes[0], wish{want: 1, lead: 1000}).slots {
				calls[flowKey(s.Flow)]++
				w.flowOf(flowKey(s.Flow)).take(false)
				w.last = s.At
			}
			w.now += 6000 // less than a slot may be off
		}
		return calls
	}
}

// A gateway with routes and without lanes calls each route, though all jobs are in one lane.
func TestRoutesShareAnAccount(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	of := func(limits ...int64) (cfg PacerConfig) {
		cfg = PacerConfig{Limits: []job.Limit{per(40, time.Second)}, Jitter: time.Millisecond}
		for i, n := range limits {
			cfg.Routes = append(cfg.Routes, Route{Name: string(rune('r' + i)), Limits: []job.Limit{per(n, time.Second)}})
		}
		return cfg
	}
	r, s, both := job.Flow{Route: "r"}, job.Flow{Route: "s"}, []job.Flow{{Route: "r"}, {Route: "s"}}
	lanes := func(cfg PacerConfig, limits ...job.Limit) PacerConfig {
		cfg.Lanes = &Lanes{Limits: limits}
		return cfg
	}
	for name, tc := range map[string]struct {
		cfg   PacerConfig
		flows []job.Flow
		want  map[job.Flow]float64 // a second
	}{
		"both have room":              {of(25, 25), both, map[job.Flow]float64{r: 19.5, s: 19.5}},
		"one has jobs":                {of(25, 25), both[1:], map[job.Flow]float64{s: 24.5}},
		"one has little room":         {of(100, 5), both, map[job.Flow]float64{r: 34, s: 4.8}},
		"the first has little room":   {of(5, 100), both, map[job.Flow]float64{r: 4.8, s: 34}},
		"the lane has a limit":        {lanes(of(25, 25), per(4, time.Second)), both, map[job.Flow]float64{r: 1.8, s: 1.8}},
		"another lane uses one route": {lanes(of(100, 100)), []job.Flow{r, s, {Route: "s", Lane: "a"}}, map[job.Flow]float64{r: 9.5, s: 9.5, {Route: "s", Lane: "a"}: 19.5}},
		"and it is the first":         {lanes(of(100, 100)), []job.Flow{{Route: "s", Lane: "m"}, {Route: "r", Lane: "m"}, {Route: "r"}}, map[job.Flow]float64{{Route: "s", Lane: "m"}: 9.5, {Route: "r", Lane: "m"}: 9.5, r: 19.5}},
	} {
		t.Run(name, func(t *testing.T) {
			_, run := routed(t, tc.cfg, tc.flows...)
			run(3 * time.Second)
			seconds := testkit.Often(10, 20)
			calls, sum := run(time.Duration(seconds)*time.Second), 0
			for f, n := range calls {
				sum += n
				if float64(n) < float64(seconds)*tc.want[f] {
					t.Errorf("%v has %d calls in %d s, of %v", f, n, seconds, calls)
				}
				for i, route := range tc.cfg.Routes {
					if f.Route == route.Name && n > seconds*int(tc.cfg.Routes[i].Limits[0].N)+1 {
						t.Errorf("%v has %d calls in %d s, above the limit of its route", f, n, seconds)
					}
				}
			}
			if len(calls) != len(tc.want) || sum > 40*seconds+1 {
				t.Errorf("%d calls in %d s: %v", sum, seconds, calls)
			}
		})
	}
}
