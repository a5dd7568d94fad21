package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A job that was already pulled asks for a slot, because it came without one or because its slot has passed. It gets none while its lane or its route is paused or held, or
// has no permit and no place left. Each of these rules is needed: without its line the job gets a slot. A job of another lane and route gets one in any case.
func TestAJobInHandWaitsForItsLaneAndRoute(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client, yes := testkit.Client(t), true
	flow := job.Flow{Lane: "m", Route: "r", Kept: true}
	hold := func(scope job.Scope) func(w *lanesWorld, p *Pacer) error {
		return func(w *lanesWorld, p *Pacer) error {
			_, err := p.Failed(t.Context(), aCircuit, job.Failure{Kind: job.Wait, Job: "x", Slot: w.now, Written: true, Why: "HTTP 429", For: time.Hour, Scope: scope, Flow: flow})
			return err
		}
	}
	called := func(w *lanesWorld, p *Pacer) error {
		w.reserve(p, wish{want: 1, cost: 1, lead: 1000, id: "a"})
		return nil
	}
	once := []job.Limit{per(1, time.Minute)}
	for name, tc := range map[string]struct {
		lanes Lanes
		route Route
		stop  func(w *lanesWorld, p *Pacer) error
		line  bent
	}{
		"a pause of the lane": {stop: func(_ *lanesWorld, p *Pacer) error {
			return p.OverrideLane(t.Context(), "m", OverrideChange{Paused: &yes})
		},
			line: bent{"if r.paused then return math.huge end", ""}},
		"a pause of the route": {stop: func(_ *lanesWorld, p *Pacer) error { return p.PauseRoute(t.Context(), "r", true) },
			line: bent{"if lanes.paused(name) then return math.huge end", ""}},
		"a hold of the lane": {stop: hold(job.ScopeLane),
			line: bent{"return math.max(at, scopes.held('l:', r.lane, r.held, on_clock)) - L.moved", "return at - L.moved"}},
		"a hold of the route": {stop: hold(job.ScopeRoute),
			line: bent{"return math.max(route_has_room(name, units, t), route_held(name))", "return route_has_room(name, units, t)"}},
		"the limit of the lane":  {lanes: Lanes{Limits: once}, stop: called, line: bent{"permits.ready(r.logs, r.limits, units, t + L.moved, L.lost, false)", "t + L.moved"}},
		"the limit of the route": {route: Route{Limits: once}, stop: called, line: bent{"if routes[name] then t = permits.ready(", "if false then t = permits.ready("}},
		"the cap of the lane":    {lanes: Lanes{MaxInFlight: 1}, stop: called, line: bent{"scopes.room('l:', r.lane, r.most or lane_cap,", "scopes.room('l:', r.lane, 0,"}},
		"the cap of the route":   {route: Route{MaxInFlight: 1}, stop: called, line: bent{"scopes.room('r:', name, route_caps[name] or 0,", "scopes.room('r:', name, 0,"}},
	} {
		tc.route.Name = "r"
		cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &tc.lanes, Routes: []Route{tc.route, {Name: "s"}}, CallTimeout: time.Minute}
		for without, swaps := range map[bool]map[string]string{false: nil, true: tc.line.texts(t)} {
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			w.swaps = swaps
			p := w.processes[0]
			for id, f := range map[string]job.Flow{"a": flow, "b": {Lane: "n", Route: "s"}} {
				w.put(laneJob{id: id, generation: 1, cost: 1, flow: f}, 1, w.keys.Pending(), true)
			}
			if err := tc.stop(w, p); err != nil {
				t.Fatal(err)
			}
			got := w.reserve(p, wish{want: 1, cost: 1, lead: 1000, id: "a"})
			if without != (len(got.slots) > 0) || !without && got.state != stateWaiting {
				t.Errorf("%s (its line is left out: %t): %s, with %d slots", name, without, got.state, len(got.slots))
			}
			w.now += 100_000
			if other := w.reserve(p, wish{want: 1, cost: 1, lead: 1000, id: "b"}); len(other.slots) == 0 {
				t.Errorf("%s (its line is left out: %t): another lane's job on another route gets no slot: %s", name, without, other.state)
			}
		}
	}
}
