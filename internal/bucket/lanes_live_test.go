package bucket

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// laneSpan is the time from one act upon a lane to the next.
type laneSpan struct {
	from       int64
	windows    []window
	remembered bool // all that was called before counts

	longest, most int64 // uses of the longest window are remembered, and no more units than the most that any window has
}

// liveSet is what an operator has set.
type liveSet struct {
	lanes  map[string]Override
	routes map[string]bool
	spans  map[string][]*laneSpan // the latest last; nil: nothing was set so far
	vague  int64                  // until then a lane has limits that count more than was remembered when they were set

	weighed map[string]int   // how often a lane got another weight
	paid    map[job.Flow]int // how often it had when a job of the flow was called
}

// owing reports whether a flow has paid for its last call by an older weight.
func (s liveSet) owing(f job.Flow) bool { return s.paid[f] != s.weighed[f.Lane] }

func newLiveSet() liveSet {
	return liveSet{map[string]Override{}, map[string]bool{}, map[string][]*laneSpan{}, 0, map[string]int{}, map[job.Flow]int{}}
}

func (s liveSet) lane(name string) Override { return s.lanes[name] }

// drawLive draws a trial in which an operator is at work.
func drawLive(seed uint64) laneTrial {
	tr := drawLanes(seed)
	r := rand.New(rand.NewPCG(seed, 5))
	tr.operated, tr.cfg.Lanes.Weight = true, []int64{0, 1, 3, 1000}[r.IntN(4)]
	return tr
}

// drawShares draws a trial in which lanes of many weights compete for a whole account.
func drawShares(seed uint64) laneTrial {
	tr := drawLive(seed)
	tr.alike, tr.load, tr.back, tr.killed, tr.parts = true, 3, 0, 0, false
	return tr
}

func (w *lanesWorld) paused(f job.Flow) bool {
	return w.set.lane(f.Lane).Paused || w.set.routes[f.Route]
}

func (w *lanesWorld) weight(lane string) float64 {
	if own := w.set.lane(lane).Weight; own > 0 {
		return float64(own)
	}
	return float64(w.cfg.Lanes.weight())
}

// laneWindows returns the windows of a lane that all processes see alike.
func (w *lanesWorld) laneWindows(lane string) []window {
	own := w.set.lane(lane).Limits
	if own == nil {
		return w.plan.lane
	}
	out := make([]window, len(own))
	for i, l := range own {
		out[i] = w.plan.ownWindow(l)
	}
	return out
}

// ownWindows returns the windows of lanes with limits of their own, as a process computes them.
func (w *lanesWorld) ownWindows(pl *plan, text string) map[string][]window {
	all := map[string][]window{}
	if len(w.set.lanes) == 0 {
		return all
	}
	var arg ownArg
	if err := json.Unmarshal([]byte(text), &arg); err != nil {
		w.t.Fatal(err)
	}
	for lane, o := range w.set.lanes {
		for _, l := range o.Limits {
			win := pl.ownWindow(l)
			i := slices.IndexFunc(arg.Longer, func(step [2]int64) bool { return step[0] >= win.length })
			win.ready += arg.Longer[i][1]
			all[lane] = append(all[lane], win)
		}
	}
	return all
}

// operate does one act after another, until the end.
func (w *lanesWorld) operate(end int64) {
	if w.now > end {
		return
	}
	ctx, p, first := context.Background(), w.processes[w.rng.IntN(len(w.processes))], w.plan.windows[0].length
	lane := w.newJob().flow.Lane
	o := w.set.lane(lane)
	c := OverrideChange{}
	switch what := w.rng.IntN(10); {
	case what < 4:
		o.Limits = w.drawOwn()
		c.Limits = &o.Limits
	case what < 6:
		o.Weight = []int64{1, 2, 5, 1000}[w.rng.IntN(4)]
		c.Weight = &o.Weight
	case what < 7:
		o.Limits, o.Weight = nil, 0
		c.Limits, c.Weight = &o.Limits, &o.Weight
	case what < 8 || o.Paused:
		o.Paused = !o.Paused
		c.Paused = &o.Paused
	case len(w.cfg.Routes) > 0:
		route := w.cfg.Routes[w.rng.IntN(len(w.cfg.Routes))].Name
		w.set.routes[route] = !w.set.routes[route]
		if err := p.PauseRoute(ctx, route, w.set.routes[route]); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := p.OverrideLane(ctx, lane, c); err != nil {
		w.t.Fatal(err)
	}
	w.began(lane, o)
	w.at(w.now+1+w.rng.Int64N(first), func() { w.operate(end) })
}

// drawOwn draws limits for a lane. Half of them count no more than is remembered.
func (w *lanesWorld) drawOwn() (all []job.Limit) {
	least, first := w.plan.shortest.Microseconds(), w.plan.windows[0].length
	for range 1 + w.rng.IntN(2) {
		l := job.Limit{N: 1 + w.rng.Int64N(w.plan.windows[0].n+1), Window: time.Duration(max(least, first*(1+w.rng.Int64N(4)))) * time.Microsecond}
		if n := len(w.plan.lane); n > 0 && w.rng.IntN(2) == 0 {
			of := w.plan.lane[w.rng.IntN(n)]
			l = job.Limit{N: 1 + w.rng.Int64N(of.n), Window: time.Duration(max(least, of.length)) * time.Microsecond}
		}
		if !slices.ContainsFunc(all, func(other job.Limit) bool { return other.Window == l.Window }) {
			all = append(all, l)
		}
	}
	return all
}

// now returns the present span, or nil if nothing was set so far.
func (s liveSet) now(lane string) *laneSpan {
	if all := s.spans[lane]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// span returns one that begins now.
func (w *lanesWorld) span(from int64, windows []window) *laneSpan {
	s := &laneSpan{from: from, windows: windows, remembered: true}
	for _, win := range append(slices.Clone(w.plan.lane), windows...) {
		s.longest, s.most = max(s.longest, win.length), max(s.most, win.n)
	}
	return s
}

// began records what an act has set for a lane.
func (w *lanesWorld) began(lane string, o Override) {
	if o.Weight != w.set.lane(lane).Weight {
		w.set.weighed[lane]++
	}
	w.set.lanes[lane] = o
	before := w.set.spans[lane]
	if before == nil {
		before = []*laneSpan{w.span(math.MinInt64, w.plan.lane)}
	}
	span := w.span(w.now, w.laneWindows(lane))
	for _, win := range span.windows {
		lasts := 2*win.ready + win.width + w.plan.horizon + w.plan.tooLate
		forgot := func(i int) bool {
			over := i+1 < len(before) && before[i+1].from < w.now-lasts
			return !over && (before[i].longest < win.length || before[i].most < win.n)
		}
		for i := range before {
			if w.parts || forgot(i) {
				span.remembered, w.set.vague = false, max(w.set.vague, w.now+lasts)
			}
		}
	}
	w.set.spans[lane] = append(before, span)
}

// checkSpans counts what the gateway has seen of each lane, in every rolling window. A call that is bound after an act is within the lane's new limits, together with everything
// bound before, or at least with what was called since the act.
func (w *lanesWorld) checkSpans() {
	for lane := range w.ofLane {
		var calls []sentCall
		for _, c := range w.sent {
			if c.flow.Lane == lane {
				calls = append(calls, c)
			}
		}
		for _, c := range calls {
			span := c.span
			if span == nil {
				span = w.span(math.MinInt64, w.plan.lane)
			}
			for _, win := range span.windows {
				w.checkSpan(lane, calls, c, span, win)
			}
		}
	}
}

// checkSpan counts the windows that contain a call and in which it is the one bound last.
func (w *lanesWorld) checkSpan(lane string, calls []sentCall, last sentCall, span *laneSpan, win window) {
	var near []sentCall
	for _, c := range calls {
		counts := c.bound <= last.bound && (span.remembered || c.at >= span.from && (c.span == last.span || len(w.plan.lane) > 0))
		if counts && c.at > last.at-win.length && c.at < last.at+win.length {
			near = append(near, c)
		}
	}
	for _, first := range near {
		var units int64
		for _, c := range near {
			if c.at >= first.at && c.at < first.at+win.length {
				units += c.cost
			}
		}
		if first.at <= last.at && last.at < first.at+win.length && units > win.n {
			w.fail("the lane %q: %d units in a window of %d µs, the limit was %d since %d", lane, units, win.length, win.n, span.from-epoch)
			return
		}
	}
}

// What an operator sets for a lane holds from the answer on, in every window and over all processes. Nothing beyond that makes a job wait.
func TestLanesSetLiveAgainstTheModel(t *testing.T) {
	t.Parallel()
	testkit.OneGoroutine(t)
	client := testkit.Client(t)
	for name, trials := range map[string]struct {
		draw  func(uint64) laneTrial
		seeds []uint64
	}{
		"all":    {drawLive, laneSeeds(1000, 139, 0, 1, 8)}, // 139: a lane without jobs, throttled by a limit that is raised then
		"shares": {drawShares, laneSeeds(1000, 1, 9)},
	} {
		for _, seed := range trials.seeds {
			tr := trials.draw(seed)
			w := newLanesWorld(newWorld(t, client, seed), tr)
			if wrong := w.play(); len(wrong) > 0 {
				t.Fatalf("%s, seed %d: %v\n%+v\n%+v", name, seed, wrong, tr, tr.cfg.Lanes)
			}
			t.Logf("%s, seed %d: %d jobs, %d bound, %d called", name, seed, w.granted, w.misses, len(w.sent))
		}
	}
}

// A lane gets limits of its own, and they are reset. From then on it has the limits of all lanes, and what it called meanwhile counts. The mutant remembers
// calls only as long as the lane's own limits need them.
func TestAResetCountsWhatWasCalledBefore(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	mutant := bent{"r.kept = permits.both(r.limits, L.limits)", "r.kept = r.limits"}.texts(t)
	for name, swaps := range map[string]map[string]string{"as it is": nil, "mutant": mutant} {
		t.Run(name, func(t *testing.T) {
			cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(4, time.Minute)}}}
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			w.swaps = swaps
			p := w.processes[0]
			limits := func(own ...job.Limit) {
				t.Helper()
				if err := p.OverrideLane(t.Context(), "m", OverrideChange{Limits: &own}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 20 {
				w.put(laneJob{id: "j" + strconv.Itoa(i), generation: 1, cost: 1, flow: job.Flow{Lane: "m"}}, 1, w.keys.Pending(), true)
			}
			calls := func(d time.Duration) (n int) {
				for end := w.now + d.Microseconds(); w.now < end; w.pass(100 * time.Millisecond) {
					n += len(w.reserve(p, wish{want: 4, lead: 1000}).slots)
				}
				return n
			}
			limits(per(1, time.Second))
			if n := calls(8 * time.Second); n < 6 || n > 9 {
				t.Fatalf("%d calls in 8 s at a limit of 1/s", n)
			}
			limits()
			n := calls(40 * time.Second)
			if forgotten := n > 0; forgotten != (swaps != nil) {
				t.Errorf("%d calls in the 40 s after the reset to a limit of 4/m", n)
			}
			if n += calls(time.Minute); n < 3 {
				t.Errorf("%d calls in the 100 s after the reset to a limit of 4/m", n)
			}
		})
	}
}

// A lane without jobs has used up its limit, which is raised then: its next job does not wait for the old one. The mutant looks only at lanes with jobs.
func TestARaisedLimitHoldsForALaneWithoutJobs(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	client := testkit.Client(t)
	look := "lanes.look(ARGV[2], lanes.record(ARGV[2]))"
	mutant := bent{look, "if next(lanes.record(ARGV[2]).work) then " + look + " end"}.texts(t)
	for name, swaps := range map[string]map[string]string{"as it is": nil, "mutant": mutant} {
		t.Run(name, func(t *testing.T) {
			cfg := PacerConfig{Limits: []job.Limit{per(100, time.Second)}, Lanes: &Lanes{Limits: []job.Limit{per(1, time.Minute)}}}
			w := newLanesWorld(newWorld(t, client, 1), laneTrial{cfg: cfg, processes: 1})
			w.swaps = swaps
			p := w.processes[0]
			called := func(job laneJob) (n int) {
				w.put(job, 1, w.keys.Pending(), true)
				for end := w.now + 5_000_000; w.now < end; w.pass(100 * time.Millisecond) {
					n += len(w.reserve(p, wish{want: 4, lead: 1000}).slots)
				}
				return n
			}
			lane := job.Flow{Lane: "m"}
			if n := called(laneJob{id: "first", generation: 1, cost: 1, flow: lane}); n != 1 {
				t.Fatalf("%d calls of one job", n)
			}
			if err := p.OverrideLane(t.Context(), "m", OverrideChange{Limits: &[]job.Limit{per(10, time.Second)}}); err != nil {
				t.Fatal(err)
			}
			if n := called(laneJob{id: "second", generation: 1, cost: 1, flow: lane}); (n == 0) != (swaps != nil) {
				t.Errorf("%d calls in the 5 s after the limit was raised", n)
			}
		})
	}
}
