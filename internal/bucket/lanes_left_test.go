package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// picked asks for slots three times, because an idle gateway's first slots come a moment later. It returns the tasks that came with them, in order.
func (w *lanesWorld) picked(p *Pacer) (tasks []string) {
	for range 3 {
		for _, s := range w.reserve(p, wish{want: 8, lead: 1000}).slots {
			tasks = append(tasks, s.Task)
		}
		w.now += 500_000
	}
	return tasks
}

// Lanes are removed from the file, and routes still have limits. Then jobs of lanes are called although limits or a pause were set live for the lane: nobody could take
// those back any more.
func TestWhatWasSetForLanesGoesWithThem(t *testing.T) {
	t.Parallel()
	client := testkit.Client(t)
	yes := true
	for name, change := range map[string]OverrideChange{
		"limits": {Limits: &[]job.Limit{per(3, time.Second)}},
		"paused": {Paused: &yes},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}, Routes: []Route{{Name: "r", Limits: []job.Limit{per(50, time.Second)}}}}
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			if err := w.processes[0].OverrideLane(context.Background(), "m", change); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"a", "b"} {
				w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
			}
			cfg.Lanes = nil
			if tasks := w.picked(w.pacer(cfg)); len(tasks) != 2 {
				t.Errorf("%v were called of two jobs", tasks)
			}
		})
	}
}

// Something else has overwritten or deleted a key of one job or one lane. Other lanes go on, and no task is lost from the queue. A lane whose record can't be
// read counts as having used up its limits.
func TestADamagedKeyTakesNoTaskOutOfTheQueue(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	ctx := context.Background()
	text := func(key func(w *lanesWorld) string) func(w *lanesWorld) error {
		return func(w *lanesWorld) error { return w.client.Set(ctx, key(w), "\xc1\xff", 0).Err() }
	}
	lane := func(w *lanesWorld) string { return w.keys.Lane("b") }
	list := func(w *lanesWorld) error {
		_ = w.client.Del(ctx, lane(w))
		return w.client.LPush(ctx, lane(w), "x").Err()
	}
	for name, damage := range map[string]struct {
		do    func(w *lanesWorld) error
		waits bool // for the lane's limit
	}{
		"record of a job":      {text(func(w *lanesWorld) string { return w.keys.Job("b1") }), false},
		"lane of another type": {list, true},
		"lane that is no such": {text(lane), true},
		"lane that is gone":    {func(w *lanesWorld) error { return w.client.Del(ctx, lane(w)).Err() }, false},
	} {
		for _, sorted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sorted %v", name, sorted), func(t *testing.T) {
				cfg := PacerConfig{Limits: []job.Limit{per(1, 100*time.Millisecond)}, Lanes: &Lanes{Limits: []job.Limit{per(9, time.Second), per(90, 10*time.Second)}}}
				w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
				p := w.processes[0]
				ids := []string{"a0", "c0", "b0", "a1", "b1", "c1"}
				for _, id := range ids {
					w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: id[:1]}}, 1, w.keys.Pending(), true)
				}
				var called []string
				if sorted {
					called = w.picked(p)
				}
				if err := damage.do(w); err != nil {
					t.Fatal(err)
				}
				if _, err := LaneSizesOf(ctx, w.client, w.plan.cfg.Gateway, []string{"b"}); err != nil {
					t.Error(err)
				}
				if _, err := redisdb.LaneLines(ctx, w.client, w.keys); err != nil {
					t.Error(err)
				}
				for range 3 {
					called = append(called, w.picked(p)...)
				}
				early := slices.Clone(called)
				w.now += 20_000_000
				for range 3 {
					called = append(called, w.picked(p)...)
				}
				slices.Sort(called)
				if want := []string{"a0~1", "a1~1", "b0~1", "b1~1", "c0~1", "c1~1"}; !slices.Equal(called, want) {
					t.Errorf("%v were called, and not %v", called, want)
				}
				if waits := !slices.Contains(early, "b1~1"); waits != (damage.waits && sorted) { // else none was called
					t.Errorf("%v were called at once", early)
				}
			})
		}
	}
}

// Redis's clock is set back while a lane waits for its permit, long after a job was bound. The lane waits until the permit is ready, and at most the 5 minutes more until it is looked at again.
func TestALaneWaitsNoLongerWhenTheClockIsSetBack(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(1, 3*time.Hour)}}}
	w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
	p, ctx := w.processes[0], context.Background()
	for _, id := range []string{"a", "b"} {
		w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
	}
	if tasks := w.picked(p); len(tasks) != 1 {
		t.Fatalf("%v were called", tasks)
	}
	called := func(minutes int) (after int) {
		for after < minutes {
			g := w.reserve(p, wish{want: 1, lead: 1000})
			if len(g.slots) > 0 {
				return after
			}
			if g.state == stateReshape {
				if err := p.reshape(ctx); err != nil {
					t.Fatal(err)
				}
			}
			w.now += time.Minute.Microseconds()
			after++
		}
		return after
	}
	if after := called(120); after < 120 {
		t.Fatalf("called again after %d minutes", after)
	}
	w.now -= time.Hour.Microseconds()
	if after := called(200); after < 59 || after > 66 {
		t.Errorf("called again %d minutes after the clock was set back, and its permit was ready after 60", after)
	}
}

// Something else has overwritten what is set live for one lane. That lane waits until it is set again, and the others go on.
func TestWhatIsSetForALaneIsDamaged(t *testing.T) {
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}}
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{cfg: cfg, processes: 1})
	p, ctx := w.processes[0], context.Background()
	for _, id := range []string{"a", "b", "c"} {
		w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: id}}, 1, w.keys.Pending(), true)
	}
	if err := w.client.HSet(ctx, w.keys.Overrides(), "lane:b", "text").Err(); err != nil {
		t.Fatal(err)
	}
	if tasks := w.picked(p); !slices.Equal(slices.Sorted(slices.Values(tasks)), []string{"a~1", "c~1"}) {
		t.Errorf("%v were called while what is set for b can't be read", tasks)
	}
	no := false
	if err := p.OverrideLane(ctx, "b", OverrideChange{Paused: &no}); err != nil {
		t.Fatal(err)
	}
	if tasks := w.picked(p); !slices.Equal(tasks, []string{"b~1"}) {
		t.Errorf("%v were called when b was set again", tasks)
	}
}

// The message that a lane or a route may be called again is lost. A process that waits asks by itself, long before the lane is looked at anyway.
func TestWhoHearsOfNoResumeAsks(t *testing.T) {
	t.Parallel()
	c := testkit.Client(t)
	for _, of := range []string{"lane", "route"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			cfg := PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{}, Routes: []Route{{Name: "r", Limits: []job.Limit{per(50, time.Second)}}}}
			waits, operator, keys := newTestPacer(t, c, cfg), newTestPacer(t, c, cfg), redisdb.NewKeys(cfg.Gateway)
			pause := func(paused bool) {
				t.Helper()
				err := operator.OverrideLane(t.Context(), "m", OverrideChange{Paused: &paused})
				if of == "route" {
					err = operator.PauseRoute(t.Context(), "r", paused)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			pause(true) // before there is a job
			if err := errors.Join(c.HSet(t.Context(), keys.Job("a"), record.Short("lane"), "m", record.Short("route"), "r").Err(),
				c.HSet(t.Context(), keys.Task("a~1"), "state", "pending", "msg", "x").Err(), c.LPush(t.Context(), keys.Pending(), "a~1").Err()); err != nil {
				t.Fatal(err)
			}
			slots := make(chan job.Slot, 1)
			go func() {
				s, _ := waits.Next(t.Context())
				slots <- s
			}()
			testkit.Eventually(t, 10*time.Second, "the job to stand in its lane", func() bool { return c.HGet(t.Context(), keys.Lanes(), "n:r").Val() == "1" })
			if len(slots) > 0 {
				t.Fatal("a job that is paused was called")
			}
			pause(false)
			testkit.Eventually(t, 20*time.Second, "the job to be called", func() bool { return len(slots) > 0 })
			if s := <-slots; s.Task != "a~1" {
				t.Errorf("the slot came with %q", s.Task)
			}
		})
	}
}

// How many calls of a lane may be in flight is set live: fewer, more, or any number although the file has a cap. Afterwards what the file says holds again.
func TestTheCapOfALaneIsSetLive(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	n := func(calls int64) *int64 { return &calls }
	for file, most := range map[int64]map[int64]int{0: {2: 2, 0: 6, -1: 6}, 3: {2: 2, 5: 5, 0: 6, -1: 3}} {
		for set, want := range most {
			cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{MaxInFlight: file}, CallTimeout: time.Minute}
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			p, ctx := w.processes[0], context.Background()
			for _, to := range []OverrideChange{{MaxInFlight: n(1), Weight: n(3)}, {MaxInFlight: n(set)}} {
				if err := p.OverrideLane(ctx, "m", to); err != nil {
					t.Fatal(err)
				}
			}
			o, err := Overridden(ctx, w.client, w.plan.cfg.Gateway, redisdb.OfLane, "m")
			if err != nil || o.Weight != 3 || (o.MaxInFlight == nil) != (set < 0) || set >= 0 && *o.MaxInFlight != set {
				t.Errorf("a cap of %d is said to be %+v: %v", set, o, err)
			}
			for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
				w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
			}
			if tasks := w.picked(p); len(tasks) != want {
				t.Errorf("%d calls are under way where the file says %d and the lane has %d, want %d", len(tasks), file, set, want)
			}
			w.forget()
		}
	}
}
