package bucket

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A call does not go out late where a window does not have its permit: that window would count it too early.
func TestALateCallWaitsForEachWindowToCountIt(t *testing.T) {
	t.Parallel()
	limits := []job.Limit{{N: 100, Window: time.Second}, {N: 1000, Window: 10 * time.Second}, {N: 1_000_000, Window: time.Hour}}
	for without := range len(limits) + 1 { // 0: each window has it
		t.Run(fmt.Sprint("window ", without, " has no permit"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t), 7)
			p := w.pacer(PacerConfig{Limits: limits})
			s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
			late := p.Due(s).Add(20 * time.Millisecond)
			if without > 0 && w.client.Del(t.Context(), w.keys.PaceWindow(without)).Val() != 1 {
				t.Fatal("the window is empty")
			}
			w.now = late.UnixMicro()
			if got, want := p.TooLate(s, late), without > 0; got != want {
				t.Errorf("too late is %v, want %v", got, want)
			}
		})
	}
}

// Redis counts a late call at the last moment at which it can be written until it is, and then at the moment at which it was.
func TestALateCallIsCountedAtTheMomentOfItsWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}, {N: 100_000, Window: time.Hour}}})
	p.done = true // what runs in the background runs at once
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	inParts := fmt.Sprint(p.pairs(t, 2))
	counted := func(when string, at int64) {
		t.Helper()
		if got, want := fmt.Sprint(p.pairs(t, 1)), fmt.Sprintf("[%d 1]", at); got != want {
			t.Errorf("%s Redis counts %s, want %s", when, got, want)
		}
		if got := fmt.Sprint(p.pairs(t, 2)); got != inParts {
			t.Errorf("%s the window in parts, which allows for lateness, has %s, want %s", when, got, inParts)
		}
	}
	counted("when it is reserved", s.At)
	w.now = s.At + 30_000
	if p.TooLate(s, w.Now()) {
		t.Fatal("it is too late")
	}
	counted("before it is written", s.At+p.plan.Load().tooLate)
	p.Written(s, w.Now())
	counted("when it is written", p.bounds.notAfter(p.local(w.Now())))
	if len(p.late.told) != 0 {
		t.Errorf("%d slots are remembered", len(p.late.told))
	}
}

// Once the lists were made anew, a pair can be another call's: none comes to count earlier.
func TestNoCallIsCountedEarlierInOtherBooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	p.done = true // what runs in the background runs at once
	p.late.lateness = readiness{mean: 60_000}
	s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
	w.client.HSet(t.Context(), w.keys.Pace(), "o", fmt.Sprintf("%d %d", s.books, s.books+1))
	w.now = s.At
	p.Written(s, w.Now())
	if got, want := fmt.Sprint(p.pairs(t, 1)), fmt.Sprintf("[%d 1]", s.At+60_000); got != want {
		t.Errorf("Redis counts %s, want %s", got, want)
	}
}

// A call is counted later than its slot from the beginning where calls are usually late, not where they are now and then.
func TestAnAllowanceIsForUsualLatenessAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	for usual, want := range map[readiness]int64{
		{mean: 1000, deviation: 500}:      0,
		{mean: 4000, deviation: 1000}:     8000,
		{mean: 200_000, deviation: 60000}: p.plan.Load().tooLate, // no call is written later
	} {
		p.late.lateness = usual
		s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
		pairs := p.pairs(t, 1)
		if got := p.late.edge(s) - s.At; got != want || pairs[len(pairs)-1] != fmt.Sprintf("%d 1", s.At+want) {
			t.Errorf("late by %v: %d us are allowed, want %d; Redis has %v for %d", usual, got, want, pairs, s.At)
		}
	}
}

// What is counted late keeps none waiting that is counted earlier: the lists are in order, whatever each process allows, and stay as long.
func TestListsAreInOrderWhateverIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	var slots []Slot
	for _, allowed := range []float64{200_000, 0, 90_000, 90_000, 30_000, 0} {
		p.late.lateness = readiness{mean: allowed}
		slots = append(slots, w.reserve(p, wish{want: 2, cost: 1}).slots...)
	}
	pairs := p.pairs(t, 1) // in order
	if len(slots) != 12 || len(pairs) != len(slots) {
		t.Fatalf("%d slots, and %v", len(slots), pairs)
	}
	for _, s := range slots {
		if !slices.Contains(pairs, fmt.Sprintf("%d 1", p.late.edge(s))) {
			t.Errorf("the slot %d, counted at %d, is not in %v", s.At, p.late.edge(s), pairs)
		}
	}
	if ttl := w.client.PTTL(t.Context(), w.keys.PaceWindow(1)).Val(); ttl < time.Hour {
		t.Errorf("the list stays for %v", ttl)
	}
}
