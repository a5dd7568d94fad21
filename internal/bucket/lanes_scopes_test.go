package bucket

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// scopesModel knows which calls are in flight in each route and lane, and has the holds of single ones as Redis has them. Scopes are r:ROUTE and l:LANE.
type scopesModel struct {
	flying map[string]map[string]int64 // ends of leases, by task
	holds  map[string]*holdModel
	heard  int // answers that held a scope
	ahead  int // calls that were sent ahead
}

type holdModel struct {
	until, probe int64
	need         bool
}

// drawScopes draws a trial with caps, and calls whose answers hold one lane or one route.
func drawScopes(seed uint64) laneTrial {
	tr := drawLanes(seed)
	r := func(n uint64) uint64 { return seed * 7 % n }
	tr.lasting = tr.cfg.Limits[0].Window.Microseconds() * int64(1+r(3)) / 2
	tr.waits = []float64{0, 0.02, 0.2}[seed%3]
	if tr.waits == 0 || r(2) == 0 {
		tr.cfg.Lanes.MaxInFlight = 1 + int64(r(3))
	}
	for i := range tr.cfg.Routes {
		tr.cfg.Routes[i].MaxInFlight = int64((seed + uint64(i)) % 3)
	}
	tr.cfg.Scoped = true
	if seed%4 == 0 {
		tr.killed, tr.lasts = 0.1, max(tr.lasts, 20_000_000)
	}
	return tr
}

func (m *scopesModel) of(f job.Flow) [2]string { return [2]string{"r:" + f.Route, "l:" + f.Lane} }

func capOf(w *lanesWorld, scope string) int64 {
	lane, routes := w.plan.caps()
	if scope[0] == 'l' {
		return lane
	}
	return routes[scope[2:]]
}

// ready returns when a scope may be called, at t at the earliest.
func (m *scopesModel) ready(w *lanesWorld, scope string, t int64) int64 {
	if h := m.holds[scope]; h != nil {
		if t = max(t, h.until); h.need {
			t = max(t, h.probe)
		}
	}
	most := capOf(w, scope)
	ends := slices.Sorted(maps.Values(m.flying[scope]))
	for i := 0; most > 0 && int64(len(ends)-i) >= most; i++ {
		t = max(t, ends[i])
	}
	return t
}

func (m *scopesModel) laneReady(w *lanesWorld, lane string, t int64) int64 {
	return m.ready(w, "l:"+lane, t)
}
func (m *scopesModel) routeReady(w *lanesWorld, route string, t int64) int64 {
	return m.ready(w, "r:"+route, t)
}

// read reads the holds of all scopes that were held from Redis.
func (m *scopesModel) read(w *lanesWorld) {
	for scope, h := range m.holds {
		v, err := w.client.HMGet(context.Background(), w.keys.Hold()+":"+scope, "until", "need", "probe").Result()
		if err != nil {
			w.t.Fatal(err)
		}
		number := func(i int) int64 {
			text, _ := v[i].(string)
			n, _ := strconv.ParseInt(text, 10, 64)
			return n
		}
		*h = holdModel{until: number(0), need: number(1) == 1, probe: number(2)}
	}
}

// bind checks a slot against caps and holds, and reports whether its call is one that is sent ahead.
func (m *scopesModel) bind(w *lanesWorld, s job.Slot) (ahead bool) {
	for i, scope := range m.of(s.Flow) {
		if t := m.ready(w, scope, s.At); t > s.At && !w.lost && !w.losing {
			w.fail("%s of %s is called %d µs before that may be (%+v, %v under way)", s.Task, scope, t-s.At, m.holds[scope], m.flying[scope])
		}
		if m.flying == nil {
			m.flying = map[string]map[string]int64{}
		}
		if m.flying[scope] == nil {
			m.flying[scope] = map[string]int64{}
		}
		maps.DeleteFunc(m.flying[scope], func(_ string, end int64) bool { return end <= w.now })
		m.flying[scope][s.Task] = s.At + w.plan.outlives
		h := m.holds[scope]
		first := h != nil && h.need
		if first != (s.Flow.Marks&[]int64{routeMark, laneMark}[i] != 0) {
			w.fail("%s of %s has the marks %d, and the hold is %+v", s.Task, scope, s.Flow.Marks, h)
		}
		if first {
			h.probe, ahead = s.At+5_000_000, true
			m.ahead++
		}
	}
	return ahead
}

func (m *scopesModel) over(s job.Slot) {
	for _, scope := range m.of(s.Flow) {
		delete(m.flying[scope], s.Task)
	}
}

var aCircuit = job.Circuit{Failures: 5, Ratio: 50, Calls: 20, Window: 10 * time.Second, Max: 5 * time.Second}

// end ends a call: its answer may hold the lane or the route.
func (w *lanesWorld) end(p *Pacer, s job.Slot, j laneJob) {
	ctx := context.Background()
	switch x := w.rng.Float64(); {
	case x < w.waits:
		f := job.Failure{Kind: job.Wait, Job: j.id, Slot: s.At, Written: true, Why: "HTTP 429", Scope: job.ScopeLane, Flow: s.Flow}
		scope := "l:" + s.Flow.Lane
		if w.rng.IntN(3) == 0 {
			f.Scope, scope = job.ScopeRoute, "r:"+s.Flow.Route
		}
		if w.rng.IntN(2) == 0 {
			f.For = time.Duration(1+w.rng.Int64N(2000)) * time.Millisecond
		}
		if _, err := p.Failed(ctx, aCircuit, f); err != nil {
			w.t.Fatal(err)
		}
		if w.scopes.holds == nil {
			w.scopes.holds = map[string]*holdModel{}
		}
		w.scopes.holds[scope] = &holdModel{}
		w.scopes.heard++
	case w.waits == 0 || x < 0.8: // else its outcome is not reported
		p.Succeeded(ctx, s, true)
	}
	p.End(ctx, s)
	w.scopes.over(s)
	for _, scope := range w.scopes.of(s.Flow) {
		if w.client.HGet(ctx, w.keys.Hold()+":"+scope, "slot").Val() == strconv.FormatInt(s.At, 10) {
			w.fail("the call of %s is over, and %s waits for news of it", s.Task, scope)
		}
	}
}

// Caps and holds of single lanes and routes: each slot is at the first moment that they allow, and they delay no other lane or route.
func TestScopesAgainstTheModel(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	heard, ahead := 0, 0
	for _, seed := range laneSeeds(1000, 1, 4, 7, 8, 11, 13) {
		tr := drawScopes(seed)
		w := newLanesWorld(newWorld(t, client, seed), tr)
		if wrong := w.play(); len(wrong) > 0 {
			t.Fatalf("seed %d: %v\n%+v", seed, wrong, tr)
		}
		heard, ahead = heard+w.scopes.heard, ahead+w.scopes.ahead
	}
	if heard < 50 || ahead < 50 {
		t.Errorf("%d answers held a lane or a route, %d calls were sent ahead: too few to tell", heard, ahead)
	}
}

// The hold of one lane grows like that of a gateway, and ends with the first success. No other lane is held.
func TestTheHoldOfALaneGrows(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}, Routes: []Route{{Name: "r"}}}
	w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
	p, ctx := w.processes[0], t.Context()
	add := func(id, lane string) {
		w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: lane}}, 1, w.keys.Pending(), true)
	}
	next := func() job.Slot {
		for range 200 {
			if g := w.reserve(p, wish{want: 1, lead: 1000}); len(g.slots) > 0 {
				return g.slots[0]
			}
			w.now += 100_000
		}
		t.Fatal("no job is called within 20 s")
		return job.Slot{}
	}
	add("a", "m")
	slot, before := next(), time.Duration(0)
	for i := range 4 {
		out, err := p.Failed(ctx, aCircuit, job.Failure{Kind: job.Wait, Job: "a" + strconv.Itoa(i), Slot: slot.At, Written: true, Why: "HTTP 429", Scope: job.ScopeLane, Flow: slot.Flow})
		if err != nil || out.Held != max(2*before, time.Second) || out.Outage.IsZero() {
			t.Fatalf("%+v after %s: %v", out, before, err)
		}
		p.End(ctx, slot)
		before = out.Held
		add("a"+strconv.Itoa(i+1), "m")
		add("b"+strconv.Itoa(i), "other")
		if other := next(); other.Flow.Lane != "other" {
			t.Fatalf("%+v is called next", other)
		}
		held := w.now
		slot = next()
		if waited := time.Duration(slot.At-held) * time.Microsecond; waited < before-200*time.Millisecond || waited > before+200*time.Millisecond || slot.Flow.Lane != "m" {
			t.Fatalf("%+v is called after %s of %s", slot, waited, before)
		}
	}
	_, lane, err := LookIn(ctx, client, p.gateway, slot.Flow)
	if err != nil || lane.Reason != "HTTP 429" || !lane.Probing && lane.HeldUntil.IsZero() {
		t.Errorf("the lane's hold is %+v: %v", lane, err)
	}
	add("c", "m")
	add("d", "m")
	p.Succeeded(ctx, slot, true)
	from := w.now
	if next(); next().At > from+1_000_000 {
		t.Error("the lane is not called as ever after a success")
	}
	p.End(ctx, slot)
	if n := client.HLen(ctx, w.keys.Hold()).Val(); n > 0 {
		t.Errorf("the gateway's own hold has %d fields", n)
	}
}

// The hold of a lane is known for longer than it lasts, whatever the time to live of the lane's record is, and is forgotten some time later.
func TestAHoldIsKnownAsLongAsItLasts(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}}, processes: 1})
	p, ctx := w.processes[0], t.Context()
	f := job.Failure{Kind: job.Wait, Job: "a", Slot: w.now, Written: true, Why: "HTTP 429", For: time.Hour, Scope: job.ScopeLane, Flow: job.Flow{Lane: "m", Kept: true}}
	if _, err := p.Failed(ctx, aCircuit, f); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{w.keys.HoldOfLane("m"), redisdb.NewKeys(p.gateway).Lane("m")} {
		if left := client.PTTL(ctx, key).Val(); left < time.Hour || left > 3*time.Hour {
			t.Errorf("%s is gone in %s", key, left)
		}
	}
	w.put(laneJob{id: "b", generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
	for range 10 {
		if g := w.reserve(p, wish{want: 1, lead: 1000}); len(g.slots) > 0 {
			t.Fatalf("%+v is called", g.slots)
		}
		w.now += 100_000
	}
}
