package dispatch

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// upset is one event: at a dispatcher, at Redis, or by an operator.
type upset struct {
	at     time.Duration
	kind   string
	on     int           // which of the processes that live
	length time.Duration // how long it lasts, or Redis is away
	tail   time.Duration // how much of the data is lost, or how far a clock is set
	rate   float64       // of a clock
	limits upsetLimits
}

func (u upset) String() string {
	text := fmt.Sprintf("{at: %d * time.Millisecond, kind: %s", u.at.Milliseconds(), u.kind)
	if u.on > 0 {
		text += fmt.Sprintf(", on: %d", u.on)
	}
	if u.length > 0 {
		text += fmt.Sprintf(", length: %d * time.Millisecond", u.length.Milliseconds())
	}
	if u.tail != 0 {
		text += fmt.Sprintf(", tail: %d * time.Millisecond", u.tail.Milliseconds())
	}
	if u.rate != 0 {
		text += fmt.Sprintf(", rate: %g", u.rate)
	}
	if u.limits != "" {
		text += fmt.Sprintf(", limits: %q", u.limits)
	}
	return text + "},"
}

// The kinds of upsets.
const (
	flushes    = "flushes"    // FLUSHALL
	restarts   = "restarts"   // Redis restarts in order and is away for a while
	crashes    = "crashes"    // Redis restarts with the tail of its AOF lost
	failsOver  = "failsOver"  // a replica takes over that lacks the latest writes
	rollsBack  = "rollsBack"  // Redis restarts with an older snapshot
	leaps      = "leaps"      // Redis's clock is set
	slews      = "slews"      // Redis's clock runs fast or slow for a while
	sets       = "sets"       // limit set
	resets     = "resets"     // limit reset
	pauses     = "pauses"     // pause, and resume later
	stuckSet   = "stuckSet"   // a limit set stands in a buffer and comes after the limit reset that follows it
	stuckPause = "stuckPause" // the same with a pause and its resume
	reloads    = "reloads"    // one process after the other reads a file with other limits
	stands     = "stands"     // a process stands still
	cuts       = "cuts"       // its way to Redis is cut
	freezes    = "freezes"    // its way to Redis stands still: what it sends arrives later, or is given up
	standsCut  = "standsCut"  // a process stands still for a moment while its way does for longer
	dies       = "dies"       // a process is killed
	leaves     = "leaves"     // a process stops
	comes      = "comes"      // a process starts
	allLeave   = "allLeave"   // all processes stop, and come again later
)

// upsets is a schedule of upsets.
type upsets struct {
	seed      uint64
	file      upsetLimits
	processes int
	far       time.Duration // a round trip to Redis
	late      int           // calls that are written late, in percent
	all       []upset
	then      time.Duration // how long it goes on after the last
}

func (s upsets) String() string {
	text := fmt.Sprintf("upsets{seed: %d, file: %q, processes: %d, far: %d * time.Microsecond, late: %d, then: %d * time.Second, all: []upset{", s.seed, s.file,
		s.processes, s.far.Microseconds(), s.late, int(s.then.Seconds()))
	for _, u := range s.all {
		text += "\n\t" + u.String()
	}
	return text + "\n}}"
}

// upsetFiles are limits of a file, each with others that an operator sets or another file has.
var upsetFiles = []struct {
	file   upsetLimits
	others []upsetLimits
	then   time.Duration
}{
	{"10/1s", []upsetLimits{"4/1s", "15/1s", "6/2s"}, 9 * time.Second},
	{"4/1s 24/30s", []upsetLimits{"6/1s", "3/1s 24/30s", "4/1s"}, 33 * time.Second},
	{"5/1s 30/90s", []upsetLimits{"4/1s", "5/1s", "3/1s 30/90s"}, 95 * time.Second},
	{"6/2s 15/10s", []upsetLimits{"4/2s", "8/2s 15/10s"}, 14 * time.Second},
	{"40/1s", []upsetLimits{"20/1s"}, 9 * time.Second},
	{"3/1s 200/1h", []upsetLimits{"2/1s", "3/1s 200/1h"}, 12 * time.Second},
}

// drawUpsets makes the schedule of a seed: some events at random, and some that belong together.
func drawUpsets(seed uint64) upsets {
	d := &upsetDraw{Rand: rand.New(rand.NewPCG(seed, 7))}
	f := upsetFiles[d.IntN(len(upsetFiles))]
	d.file, d.others = f.file, f.others
	d.at = d.span(3*time.Second, 10*time.Second)
	for range 1 + d.IntN(3) {
		one(d.Rand, d.anything, d.anything, d.limitsLost, d.interlude, d.leapsOften, d.standsOften)()
	}
	return upsets{seed: seed, file: f.file, processes: 1 + d.IntN(3), late: one(d.Rand, 0, 0, 10, 40), then: f.then, all: d.all,
		far: one(d.Rand, 300*time.Microsecond, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond)}
}

// upsetDraw is a schedule under construction.
type upsetDraw struct {
	*rand.Rand
	file   upsetLimits
	others []upsetLimits
	at     time.Duration
	all    []upset
}

func (d *upsetDraw) span(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)))).Truncate(time.Millisecond)
}

// add adds an event, and leaves some time after it or after its end.
func (d *upsetDraw) add(u upset, apart time.Duration) {
	u.at, u.on = d.at, d.IntN(3)
	d.all = append(d.all, u)
	d.at += apart
}

// limitsLost adds a loss of limits that were just set.
func (d *upsetDraw) limitsLost() {
	for range 1 + d.IntN(3) {
		d.add(d.details(one(d.Rand, sets, sets, resets)), d.span(100*time.Millisecond, 1500*time.Millisecond))
	}
	d.add(d.details(one(d.Rand, flushes, crashes, failsOver, rollsBack)), d.span(time.Second, 8*time.Second))
}

// interlude adds other limits for a while.
func (d *upsetDraw) interlude() {
	if d.IntN(2) == 0 {
		d.add(d.details(sets), d.span(500*time.Millisecond, 8*time.Second))
		d.add(upset{kind: resets}, d.span(500*time.Millisecond, 8*time.Second))
		return
	}
	d.add(d.details(reloads), d.span(500*time.Millisecond, 8*time.Second))
	d.add(upset{kind: reloads, limits: d.file, length: d.span(time.Millisecond, time.Second)}, d.span(500*time.Millisecond, 8*time.Second))
}

// leapsOften adds many changes of the clock.
func (d *upsetDraw) leapsOften() {
	for range 2 + d.IntN(5) {
		d.add(d.details(leaps), d.span(time.Second, 6*time.Second))
	}
}

// standsOften adds processes that stand still while they don't reach Redis.
func (d *upsetDraw) standsOften() {
	for range 2 + d.IntN(5) {
		d.add(d.details(one(d.Rand, standsCut, standsCut, stands, freezes)), d.span(time.Second, 4*time.Second))
	}
}

func (d *upsetDraw) anything() {
	for range 1 + d.IntN(4) {
		u := d.details(one(d.Rand, flushes, restarts, crashes, failsOver, rollsBack, leaps, slews, slews, sets, resets, pauses, stuckSet, stuckPause,
			reloads, stands, cuts, freezes, dies, leaves, comes, allLeave))
		d.add(u, one(d.Rand, d.span(20*time.Millisecond, 2*time.Second), d.span(2*time.Second, 12*time.Second), u.length+d.span(20*time.Millisecond, 3*time.Second)))
	}
}

// details draws how long an event lasts, and so on.
func (d *upsetDraw) details(kind string) upset {
	const ms, s = time.Millisecond, time.Second
	u := upset{kind: kind}
	switch kind {
	case restarts:
		u.length = one(d.Rand, d.span(s, 5*s), d.span(5*s, 90*s))
	case crashes:
		u.length, u.tail = one(d.Rand, d.span(500*ms, 5*s), d.span(5*s, time.Minute)), d.span(5*ms, 1900*ms)
	case failsOver:
		u.length, u.tail = d.span(200*ms, 5*s), d.span(5*ms, 2*s)
	case rollsBack:
		u.length, u.tail = d.span(500*ms, 5*s), d.span(2*s, 8*s)
	case leaps:
		u.tail = one[time.Duration](d.Rand, 1, -1, -1) * one(d.Rand, d.span(2*ms, 50*ms), d.span(50*ms, 2*s), d.span(2*s, 10*s), d.span(2*s, 10*s), d.span(10*s, 5*time.Minute))
	case slews:
		u.rate, u.length = one(d.Rand, 0.92, 0.99, 0.995, 1.0005, 1.005, 1.01, 1.08), d.span(3*s, 15*s)
	case sets, stuckSet:
		u.limits, u.length = one(d.Rand, d.others...), d.span(5500*ms, 20*s)
	case reloads:
		u.limits, u.length = one(d.Rand, d.others...), d.span(ms, 2*s)
	case pauses, stuckPause:
		u.length = d.span(5500*ms, 20*s)
	case stands:
		u.length = one(d.Rand, d.span(20*ms, s), d.span(s, 8*s))
	case cuts, freezes:
		u.length = one(d.Rand, d.span(50*ms, 2*s), d.span(2*s, 20*s))
	case standsCut:
		u.length = d.span(100*ms, 250*ms)
	case allLeave:
		u.length = d.span(s, time.Minute)
	}
	return u
}
