package dispatch

import (
	"testing"
	"time"
)

// Many gateways are looked at in turns, in order, and no round trip covers all of them. After a reload with fewer gateways, turns continue.
func TestManyGatewaysAreLookedAtInTurns(t *testing.T) {
	t.Parallel()
	for _, n := range []int{manyUnits + 1, 3000, 30_000} {
		d := &Dispatcher{}
		units := make([]*unit, n)
		for i := range units {
			units[i] = &unit{idle: true}
		}
		d.roster.Store(&units)
		looked, pulses := map[*unit]int{}, 0
		for len(looked) < n {
			turn := d.turn()
			if len(turn) == 0 || len(turn) > max(fewLeast, n/fewPart) {
				t.Fatalf("%d of %d gateways at a time", len(turn), n)
			}
			for _, u := range turn {
				looked[u]++
			}
			pulses++
		}
		if took := time.Duration(pulses) * d.pause(); took != d.between() || took > fewPart*fewEvery {
			t.Errorf("%d gateways have had their turns after %v, want %v", n, took, d.between())
		}
		for u, times := range looked {
			if times != 1 {
				t.Fatalf("%p had %d turns", u, times)
			}
		}
		d.turn() // those behind it are next
		units[0].woken.Store(true)
		if turn := d.turn(); turn[len(turn)-1] != units[0] {
			t.Error("a gateway of which something was published waits for its turn")
		}
		fewer := units[:manyUnits+1]
		d.turn()
		d.roster.Store(&fewer)
		for range 10 {
			if turn := d.turn(); len(turn) == 0 {
				t.Fatal("nobody's turn")
			}
		}
	}
	d := &Dispatcher{}
	units := []*unit{{}, {idle: true}}
	if d.roster.Store(&units); len(d.turn()) != 1 || len(d.turn()) != 2 {
		t.Error("of few gateways the idle ones have their turn every other time")
	}
}

// A job that comes due before its gateway is read again is moved in time, also if a round takes longer than planned.
func TestASlowRoundMissesNothingThatComesDue(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, manyUnits + 1, 3000} {
		d := &Dispatcher{}
		units := make([]*unit, n)
		d.roster.Store(&units)
		planned, now := d.between(), time.Now()
		d.round.begin(now.Add(-9 * time.Second))
		d.round.end(now)
		if got := d.between(); got != 9*time.Second {
			t.Errorf("%d gateways: looked at again in %v, after a round of 9s", n, got)
		}
		d.round.begin(now.Add(-time.Minute))
		if got := d.between(); got < time.Minute {
			t.Errorf("%d gateways: looked at again in %v, in a round that takes a minute already", n, got)
		}
		d.round.end(now)
		d.round.end(now)
		d.round.begin(now.Add(time.Hour)) // it has just begun, however slow the machine of this test is
		if got := d.between(); got != planned {
			t.Errorf("%d gateways: looked at again in %v, after a quick round; planned: %v", n, got, planned)
		}
	}
}

// If gateways are looked at in turns, each is told within one round that the process is too slow, and only from time to time.
func TestAllOfManyGatewaysHearThatAProcessIsTooSlow(t *testing.T) {
	t.Parallel()
	d := &Dispatcher{tooSlow: func(time.Time) (int64, bool) { return 20, true }, overSaid: time.Now()}
	units := make([]*unit, 1000)
	for i := range units {
		units[i] = &unit{}
	}
	d.roster.Store(&units)
	heard := 0
	for range 2 * len(units) / few(len(units)) {
		slow, turn := d.overloaded(), d.turn()
		d.over.telling -= len(turn)
		if slow.Process != "" {
			heard += len(turn)
		}
	}
	if heard != len(units) {
		t.Errorf("%d gateways of %d heard it in two rounds", heard, len(units))
	}
}
