package bucket

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// laneTrial is a gateway with lanes, and what happens to it.
type laneTrial struct {
	cfg             PacerConfig
	parts           bool // the first window of lanes is kept in parts
	lanes           int
	costs           int64 // of a job, at most
	alike           bool  // all lanes use one route
	processes       int
	late            float64 // share of calls written late
	back, killed    float64 // share of jobs given back with their slots, and of those whose process dies
	called          float64 // share of jobs that were called before
	load            float64 // jobs that come, by what the account allows
	crowd           bool    // most jobs are of one lane
	lasts           int64   // µs
	losing          bool    // Redis loses writes now and then
	operated        bool    // an operator sets what lanes may have, and pauses lanes and routes
	together, chunk int64   // how many jobs come together, and how many slots are wanted at a time, at most
	lasting         int64   // a call ends at most this long after it was written (µs); 0 = its end is not reported
	waits           float64 // share of calls whose answer holds their lane or their route
}

// laneSeeds returns the seeds of trials to play: in the short form those with which trials find the mutants of the scripts, and in the long form (-long) the first ones, too.
func laneSeeds(first uint64, short ...uint64) []uint64 {
	for seed := range uint64(testkit.Often(0, int(first))) {
		short = append(short, seed)
	}
	return short
}

// drawLosses draws a trial in which Redis loses writes.
func drawLosses(seed uint64) laneTrial {
	tr := drawLanes(seed)
	tr.losing, tr.back, tr.killed, tr.load = true, 0, 0, 3
	tr.lasts *= 2
	return tr
}

// drawLanes draws a trial. In every third one, equal slots, jobs of several costs and lateness come together: there two calls could be mistaken for one another.
func drawLanes(seed uint64) laneTrial {
	r := rand.New(rand.NewPCG(seed, 3))
	first := []int64{200, 500, 1000, 2000}[r.IntN(4)]
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	n := 1 + r.Int64N(40)
	tr := laneTrial{lanes: 1 + r.IntN(12), costs: 1, alike: r.IntN(2) == 0, processes: 1 + r.IntN(4), load: []float64{0.5, 1.2, 3}[r.IntN(3)], crowd: r.IntN(2) == 0,
		together: 20, chunk: 8, parts: r.IntN(4) == 0, lasts: first * 1000 * (10 + r.Int64N(15))}
	tr.cfg = PacerConfig{Limits: []job.Limit{{N: n, Window: ms(first)}}, Burst: 1, Jitter: ms([]int64{1, 5, 10}[r.IntN(3)])}
	if r.IntN(2) == 0 {
		tr.cfg.Limits = append(tr.cfg.Limits, job.Limit{N: 1 + r.Int64N(4*n), Window: ms(first * (2 + r.Int64N(5)))})
	}
	if least := slices.MinFunc(tr.cfg.Limits, func(a, b job.Limit) int { return int(a.N - b.N) }).N; r.IntN(3) == 0 {
		tr.cfg.Burst = 1 + r.Int64N(least)
	}
	limits := func(most int64) (all []job.Limit) {
		for range r.IntN(3) {
			all = append(all, job.Limit{N: 1 + r.Int64N(most), Window: ms(first * (1 + r.Int64N(4)))})
		}
		return all
	}
	tr.cfg.Lanes = &Lanes{Limits: limits(n/2 + 1)}
	for i := range r.IntN(5) {
		tr.cfg.Routes = append(tr.cfg.Routes, Route{Name: "r" + strconv.Itoa(i), Limits: limits(n)})
	}
	left := int64(100)
	for i := range r.IntN(4) {
		floor := min(r.Int64N(50), left)
		left -= floor
		tr.cfg.Classes = append(tr.cfg.Classes, job.Class{Name: "c" + strconv.Itoa(i), Floor: floor, Usual: i == 0})
	}
	if r.IntN(2) == 0 {
		tr.back, tr.killed = 0.1*r.Float64(), 0.05*r.Float64()
	}
	if r.IntN(2) == 0 {
		tr.late = 0.3 * r.Float64()
	}
	if r.IntN(3) == 0 {
		tr.called = 0.3
	}
	if r.IntN(3) == 0 {
		tr.costs = 1 + r.Int64N(5)
	}
	if seed%3 == 0 {
		tr.costs, tr.late, tr.cfg.Burst = 3, 0.3, max(n/2, 1)
		for _, l := range tr.cfg.Limits {
			tr.cfg.Burst = min(tr.cfg.Burst, l.N)
		}
	}
	return tr
}

// use is permits that were taken; edge is the moment at which exact windows count them.
type use struct{ slot, edge, units int64 }

// ends is the moment from which a window counts the use.
func (u use) ends(width int64) int64 {
	if width == 0 {
		return u.edge
	}
	return (u.slot + width - 1) / width * width
}

// roomIn returns the first moment, not before t, at which the units fit together with every use less than ready ago. It tries one moment after the other.
func roomIn(uses []use, w window, units, t int64) int64 {
	units = min(units, w.n)
	fits := func(t int64) bool {
		sum := units
		for _, u := range uses {
			if u.ends(w.width) > t-w.ready {
				sum += min(u.units, w.n)
			}
		}
		return sum <= w.n
	}
	if fits(t) {
		return t
	}
	var moments []int64
	for _, u := range uses {
		if m := u.ends(w.width) + w.ready; m > t {
			moments = append(moments, m)
		}
	}
	slices.Sort(moments)
	for _, m := range moments {
		if fits(m) {
			return m
		}
	}
	return math.MaxInt64
}

func roomInAll(uses []use, windows []window, units, t int64) int64 {
	for _, w := range windows {
		t = roomIn(uses, w, units, t)
	}
	return t
}

// laneJob is a job of the model.
type laneJob struct {
	id         string
	generation int
	flow       job.Flow
	cost       int64
}

func (j laneJob) task() string { return fmt.Sprintf("%s~%d", j.id, j.generation) }

// flowKey is a flow without its line.
func flowKey(f job.Flow) job.Flow { return job.Flow{Class: f.Class, Route: f.Route, Lane: f.Lane} }

// flowModel has the four lines of a flow, like those of a gateway in dequeue.lua.
type flowModel struct {
	lines  [4][]laneJob // due, pending, retries, replays
	called bool         // the last one was called before
}

// next returns the line whose turn it is, or -1. Among calls sent ahead after a hold, jobs that were never called go first.
func (f *flowModel) next(ahead bool) int {
	first := func(a, b int) int {
		switch {
		case len(f.lines[a]) > 0:
			return a
		case len(f.lines[b]) > 0:
			return b
		}
		return -1
	}
	fresh, called := first(0, 1), first(2, 3)
	if fresh >= 0 && (called < 0 || f.called || ahead) {
		return fresh
	}
	return called
}

func (f *flowModel) empty() bool { return f.next(false) < 0 }

// heads returns the first job of each line that has one.
func (f *flowModel) heads() (all []laneJob) {
	for _, line := range f.lines {
		if len(line) > 0 {
			all = append(all, line[0])
		}
	}
	return all
}

// take takes the next job.
func (f *flowModel) take(ahead bool) laneJob {
	i := f.next(ahead)
	j := f.lines[i][0]
	f.lines[i], f.called = f.lines[i][1:], i >= 2
	if f.empty() {
		f.called = false
	}
	return j
}

// fair says how far apart the calls of two lanes came while both had jobs that could be called.
type fair struct{ now, least, most float64 }

func (f *fair) add(d float64) float64 {
	f.now += d
	f.least, f.most = min(f.least, f.now), max(f.most, f.now)
	return f.most - f.least
}
