package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// After a rest, the calls of a gateway fill its window evenly, so that none of the windows after it has a pause. From then on they catch up with
// slots that were given back.
func TestCallsComeEvenlyAfterARest(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 1)
	p := w.pacer(PacerConfig{Limits: []job.Limit{per(100, time.Second)}})
	for range 2 { // at first, and after another rest
		var last, most int64
		for n := 0; n < 400; {
			g := w.reserve(p, wish{want: 4, cost: 1})
			for _, s := range g.slots {
				if last > 0 {
					most = max(most, s.At-last)
				}
				last, n = s.At, n+1
			}
			w.now = max(w.now+g.hint.Microseconds(), last-ahead)
		}
		if most > 25_000 {
			t.Errorf("%d µs are between two calls, where 10,000 would do", most)
		}
		w.pass(time.Minute)
	}
	g := w.reserve(p, wish{want: 1, cost: 1})
	w.expect(g, stateOK, 1)
	w.pass(1500 * time.Millisecond)
	for n := 0; n < 150; n++ {
		w.now = max(w.now, w.reserve(p, wish{want: 1, cost: 1}).slots[0].At)
	}
	if at := p.plan.Load().spacing; w.spacing != at {
		t.Errorf("the second window's calls are %d µs apart at least, and %d lets them catch up", w.spacing, at)
	}
}

const ahead = 50_000 // µs that slots are taken before they are due

// The same holds for a process that does not know Redis's clock before the first answer.
func TestAProcessBeginsEvenly(t *testing.T) {
	t.Parallel()
	p := newTestPacer(t, testkit.Client(t), PacerConfig{Gateway: testkit.Gateway(t), Limits: []job.Limit{per(100, time.Second)}})
	pl := p.plan.Load()
	if at := p.known.spacing(pl, p.earliest()); at != pl.even {
		t.Errorf("the first calls are %d µs apart, want %d", at, pl.even)
	}
	g, err := p.reserve(t.Context(), wish{want: 1, cost: 1})
	if err != nil || len(g.slots) != 1 {
		t.Fatalf("%+v, %v", g, err)
	}
	k := p.known
	for _, after := range []int64{0, pl.wave - 1} {
		if at := k.spacing(pl, k.floor+after); at != pl.even {
			t.Errorf("%d µs after the first call the next ones are %d µs apart, want %d", after, at, pl.even)
		}
	}
	k.floor += pl.wave
	if at := k.spacing(pl, k.floor); at != pl.spacing {
		t.Errorf("calls of the second window are %d µs apart, want %d", at, pl.spacing)
	}
}

// All calls of a long window have the spacing by which a loss is charged.
func TestCallsOfALongWindowAreSpacedAsALossCountsThem(t *testing.T) {
	t.Parallel()
	if quick, even, _ := spacing([]job.Limit{per(300, time.Minute)}); even != quick {
		t.Errorf("calls are %d or %d µs apart, and a loss is charged by one of them", quick, even)
	}
}

// A limit has a pace even if it allows a call in less than a microsecond.
func TestAnyLimitHasAPace(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, l := range []job.Limit{per(900_001, time.Second), per(1_000_000, time.Second), per(1, time.Microsecond), per(job.MaxCount, time.Second), per(1, longestW)} {
		w := newWorld(t, testkit.Client(t), 1)
		w.expect(w.reserve(w.pacer(PacerConfig{Limits: []job.Limit{l}}), wish{want: 1, cost: 1}), stateOK, 1)
	}
}

// Calls catch up with slots that were given back, even if Redis's clock was set back since the last rest.
func TestAClockSetBackIsNoLongRest(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	s := newStory(t, PacerConfig{Limits: []job.Limit{per(100, time.Second)}}, 1)
	s.pass(3 * time.Second)
	s.clock.set(s.w.now, -time.Hour.Microseconds(), 0)
	s.pass(5 * time.Second)
	if at := s.callers[0].p.plan.Load().spacing; s.w.spacing != at {
		t.Errorf("5 s after the clock was set back, calls are %d µs apart at least, and %d lets them catch up", s.w.spacing, at)
	}
}
