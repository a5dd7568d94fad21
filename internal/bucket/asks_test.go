package bucket

import (
	"context"
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// While a lane has jobs, look-ups take a tenth of its permits: no more, however many look-ups there are, and no less.
func TestLookUpsTakeATenthOfALaneWithJobs(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	ctx := context.Background()
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{processes: 1, cfg: PacerConfig{
		Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(4, time.Second)}}}})
	p := w.processes[0]
	for i := range 500 {
		w.put(laneJob{id: strconv.Itoa(i), generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
	}
	jobs, looks, again := 0, 0, w.now
	for end := w.now + time.Minute.Microseconds(); w.now < end; w.pass(20 * time.Millisecond) {
		jobs += len(w.reserve(p, wish{want: 4}).slots)
		if w.now < again {
			continue
		}
		g := w.reserve(p, wish{want: 1, cost: 1})
		w.expect(g, stateOK, 1)
		s, wait, err := p.Ask(ctx, g.slots[0], "m")
		if err == nil && wait > 0 {
			err = p.Release(ctx, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		if again = w.now + wait.Microseconds(); wait == 0 {
			looks++
		}
	}
	t.Logf("%d jobs and %d look-ups in a minute of 240 permits", jobs, looks)
	if jobs < 200 || looks < 15 || looks > 30 {
		t.Errorf("%d jobs and %d look-ups in a minute of 240 permits", jobs, looks)
	}
}

// A look-up and the jobs of its lane share the lane's permits: when they take them, when they give them back, and when they use them late.
func TestALookUpTakesAPermitOfItsLane(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newLanesWorld(newWorld(t, testkit.Client(t), 1), laneTrial{processes: 1, cfg: PacerConfig{
		Limits: []job.Limit{per(100, time.Second)}, Routes: []Route{{Name: "r", Limits: []job.Limit{per(2, time.Second)}}}, Lanes: &Lanes{Limits: []job.Limit{per(3, time.Second)}}}})
	p := w.processes[0]
	ask := func(lane string) (job.Slot, time.Duration) {
		t.Helper()
		g := w.reserve(p, wish{want: 1, cost: 1})
		w.expect(g, stateOK, 1)
		s, wait, err := p.Ask(ctx, g.slots[0], lane)
		if err == nil && wait > 0 {
			err = p.Release(ctx, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.now = max(w.now, s.At)
		return s, wait
	}
	may := func(lane string) job.Slot {
		t.Helper()
		s, wait := ask(lane)
		if wait != 0 {
			t.Fatalf("a look-up of %s waits %v", lane, wait)
		}
		return s
	}
	bound := func() int { t.Helper(); return len(w.reserve(p, wish{want: 4}).slots) }
	put := func(id string) {
		w.put(laneJob{id: id, generation: 1, cost: 1, flow: job.Flow{Route: "r", Lane: "m"}}, 1, w.keys.Pending(), true)
	}

	may("m")
	if err := p.Release(ctx, may("m")); err != nil {
		t.Fatal(err)
	}
	may("m")
	last := may("m")
	may("other")
	if _, wait := ask("m"); wait < 900*time.Millisecond || wait > 1100*time.Millisecond {
		t.Errorf("the fourth look-up in a second waits %v", wait)
	}
	put("a")
	if n := bound(); n != 0 {
		t.Errorf("%d jobs are called in a lane whose permits look-ups have taken", n)
	}
	p.reportLate([]lateCall{wasLate(p, last, last.At+100_000)})
	_, wait := ask("m")
	w.now += wait.Microseconds()
	if n := bound(); n != 0 {
		t.Errorf("%d jobs have the permit that is left to a look-up", n)
	}
	may("m")
	w.pass(50 * time.Millisecond)
	if n := bound(); n != 1 {
		t.Errorf("%d jobs are called once the look-up is made, and there is a permit", n)
	}
	if _, wait = ask("m"); wait < 20*time.Millisecond {
		t.Errorf("the permit of a call that was late is ready after %v", wait)
	}
	put("b")
	w.pass(wait + 400*time.Millisecond)
	early := bound()
	w.pass(200 * time.Millisecond)
	if n := bound(); early != 0 || n != 1 {
		t.Errorf("%d jobs are called while a look-up may come, and %d when it has not come", early, n)
	}

	w.pass(10 * time.Second)
	may("m")
	w.now -= time.Hour.Microseconds() // the account's own is the world's concern
	if _, wait, err := p.Ask(ctx, job.Slot{At: w.now + 1000, Cost: 1, Counted: w.now + 1000}, "m"); err != nil || wait != 0 {
		t.Errorf("when Redis's clock was set back a look-up waits %v, %v", wait, err)
	}
	if all, err := w.client.Keys(ctx, w.keys.Pace()[:len(w.keys.Pace())-len("pace")]+"route:*").Result(); err != nil || len(all) != 1 {
		t.Errorf("look-ups have left something of routes: %v, %v", all, err)
	}
}
