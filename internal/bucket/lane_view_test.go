package bucket

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// What is shown of lanes is what their lines hold, and what they have used of their limits.
func TestLanesCanBeLookedAt(t *testing.T) {
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{per(1000, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(2, time.Second), per(100, time.Minute)}},
		Routes:  []Route{{Name: "r", Limits: []job.Limit{per(3, time.Second)}}},
		Classes: []job.Class{{Name: "urgent"}, {Name: "normal", Usual: true}}}
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{cfg: cfg, processes: 1})
	p, n := w.processes[0], 0
	add := func(f job.Flow, jobs int) {
		for range jobs {
			n++
			door := w.keys.Pending()
			if f.Class != "" {
				door = w.keys.First(f.Class)
			}
			w.put(laneJob{id: fmt.Sprint("j", n), generation: 1, cost: 1, flow: f}, 1, door, true)
		}
	}
	add(job.Flow{Lane: "hog"}, 30)
	add(job.Flow{Lane: "hog", Route: "r"}, 5)
	add(job.Flow{Lane: "hog", Class: "urgent"}, 4)
	add(job.Flow{Lane: "small"}, 3)
	add(job.Flow{Lane: "late", Route: "r"}, 1)
	add(job.Flow{Lane: ""}, 2)
	called := map[job.Flow]int64{}
	for range 4 {
		for _, s := range w.reserve(p, wish{want: 2, lead: 1000}).slots {
			called[job.Flow{Lane: s.Flow.Lane}]++
			called[job.Flow{Class: s.Flow.Class, Route: s.Flow.Route}]++
			called[job.Flow{Class: s.Flow.Class, Route: s.Flow.Route, Lane: s.Flow.Lane}]++
		}
		w.now += 10_000
	}
	ctx, gateway := t.Context(), testkit.GatewayOf(w.keys.Pace())
	hogs := called[job.Flow{Lane: "hog"}]
	if hogs != 2 {
		t.Fatalf("%d calls of a lane of 2/s, of %v", hogs, called)
	}

	totals, err := LookAtLanes(ctx, w.client, gateway)
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for _, jobs := range totals.Flows {
		all += jobs
	}
	if all != totals.Jobs || totals.Jobs != 45-int64(len(w.client.LRange(ctx, w.keys.Active(), 0, -1).Val())) || totals.Throttled == 0 {
		t.Errorf("of 45 jobs it says %+v", totals)
	}
	if of := totals.Of("urgent"); of != 4-called[job.Flow{Class: "urgent"}] {
		t.Errorf("%d urgent jobs, of which %d were called", of, called[job.Flow{Class: "urgent"}])
	}
	if on := totals.On("r"); on != 6-called[job.Flow{Route: "r"}] {
		t.Errorf("%d jobs on the route, of which %d were called", on, called[job.Flow{Route: "r"}])
	}

	largest, err := Largest(ctx, w.client, gateway, 1, 1000, nil)
	if err != nil || !largest.All || len(largest.Lanes) != 1 || largest.Lanes[0].Lane != "hog" || largest.Lanes[0].Jobs != 39-hogs || largest.Looked != totals.Busy {
		t.Errorf("the largest lane is %+v, %v", largest, err)
	}
	if free, err := Largest(ctx, w.client, gateway, 5, 1000, func(s LaneSize) bool { return s.Until.IsZero() }); err != nil || int64(len(free.Lanes)) != totals.Busy-totals.Throttled {
		t.Errorf("of %+v may be called: %+v, %v", totals, free, err)
	}
	sizes, err := LaneSizesOf(ctx, w.client, gateway, []string{"hog", "nobody"})
	if err != nil || len(sizes) != 2 || sizes[0].Jobs != largest.Lanes[0].Jobs || sizes[0].Until != largest.Lanes[0].Until || sizes[0].Next == "" || sizes[1].Jobs != 0 {
		t.Errorf("they are %+v, %v", sizes, err)
	}

	l, err := p.LookAtLane(ctx, "hog")
	if err != nil {
		t.Fatal(err)
	}
	want := []LimitUse{{per(2, time.Second), 2}, {per(100, time.Minute), 2}}
	if !reflect.DeepEqual(l.Used, want) || l.Jobs() != 39-hogs || len(l.Flows) != 3 || len(l.Flows[0].Next) == 0 {
		t.Errorf("the hog is %+v", l)
	}
	if in := l.Ready.Sub(l.Now); in < 900*time.Millisecond || in > 1100*time.Millisecond || l.Until.IsZero() || l.Until != sizes[0].Until {
		t.Errorf("it has a permit in %s, and is throttled until %s", in, l.Until)
	}
	if r, err := p.LookAtRoute(ctx, "r"); err != nil || len(r.Used) != 1 || r.Used[0] != (LimitUse{per(3, time.Second), called[job.Flow{Route: "r"}]}) {
		t.Errorf("the route is %+v, %v", r, err)
	}
}

// A caller that goes through the lanes a few at a time sees each of them.
func TestLanesAreGoneThroughAFewAtATime(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{cfg: PacerConfig{Limits: []job.Limit{per(10, time.Second)}, Lanes: &Lanes{}}, processes: 1})
	const lanes = 2000
	for i := range lanes {
		w.put(laneJob{id: fmt.Sprint("j", i), generation: 1, cost: 1, flow: job.Flow{Lane: fmt.Sprint("m", i)}}, 1, w.keys.Pending(), true)
	}
	for range 8 {
		w.reserve(w.processes[0], wish{want: 1, lead: 1000})
		w.now += 200_000
	}
	gateway, seen, rounds := testkit.GatewayOf(w.keys.Pace()), map[string]bool{}, 0
	var at LaneCursor
	for end := false; !end; rounds++ {
		var err error
		if at, end, err = LaneSizes(t.Context(), w.client, gateway, at, 500, func(s LaneSize) { seen[s.Lane] = true }); err != nil || rounds > 100 {
			t.Fatal(rounds, err)
		}
	}
	if some, err := Largest(t.Context(), w.client, gateway, 3, 600, nil); err != nil || some.All || some.Looked > 1100 || len(some.Lanes) != 3 {
		t.Errorf("of some lanes: %+v, %v", some, err)
	}
	totals, err := LookAtLanes(t.Context(), w.client, gateway)
	if int64(len(seen)) != totals.Busy || totals.Busy < lanes-10 || rounds < 4 || err != nil {
		t.Errorf("%d lanes of %d in %d rounds, %v", len(seen), totals.Busy, rounds, err)
	}
}
