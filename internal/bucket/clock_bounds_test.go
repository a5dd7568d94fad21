package bucket

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Whatever the delays there and back, the true distance between the clocks stays inside the bounds, with up to 100 ppm of drift.
// So a call is never due before Redis's clock shows its slot.
func TestClockBoundsHoldTheTruth(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const theta = int64(1_700_000_000_000_000)
		drift := rapid.Int64Range(-100, 100).Draw(rt, "ppm")
		redis := func(local int64) int64 { return local + theta + local*drift/1_000_000 }
		var b clockBounds
		local := int64(1000)
		for range rapid.IntRange(1, 40).Draw(rt, "answers") {
			sent := local
			there, back := rapid.Int64Range(0, 300_000).Draw(rt, "there"), rapid.Int64Range(0, 300_000).Draw(rt, "back")
			read := sent + there
			local = read + back
			if leap, _ := b.observe(sent, local, redis(read)); leap != 0 {
				rt.Fatalf("a leap of %d µs was seen where there was none", leap)
			}
			slot := redis(local) + rapid.Int64Range(-1000, 100_000).Draw(rt, "slot")
			if at := b.notBefore(slot, local); redis(max(at, local)) < slot {
				rt.Fatalf("due %d µs early", slot-redis(at))
			}
			if b.notAfter(local) < redis(local) {
				rt.Fatalf("latest is %d µs too small", redis(local)-b.notAfter(local))
			}
			local += rapid.Int64Range(0, 20_000_000).Draw(rt, "idle")
			if b.notAfter(local) < redis(local) || redis(b.notBefore(redis(local)+1, local)) < redis(local) {
				rt.Fatalf("idle, the bounds don't hold the truth any more")
			}
		}
	})
}

func TestClockLeapIsSeen(t *testing.T) {
	t.Parallel()
	var b clockBounds
	b.observe(1000, 1400, 5_000_000)
	if leap, _ := b.observe(2000, 2400, 5_001_000+3_000_000); leap < 2_999_000 || leap > 3_000_000 {
		t.Errorf("a leap of 3 s forward is seen as %d µs", leap)
	}
	if leap, _ := b.observe(3000, 3400, 5_002_000); leap > -2_999_000 {
		t.Errorf("a leap of 3 s back is seen as %d µs", leap)
	}
}

// Redis's clock leaps ahead, so all permits look ready. The process that sees it gives its slots back, and one window passes.
func TestClockLeapsAhead(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 2, Window: time.Second}}})
	leapt := int64(0)
	p.plan.Load().cfg.NowMicros = func() int64 { return w.now + leapt }
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	w.pass(500 * time.Millisecond)
	leapt = 2_000_000
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 0) // granted, and given back at once
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	w.pass(1250 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(10 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
}

// After an answer that contradicts, the clock can have moved unseen by as much as the widest answer since then left open, and not the newest.
func TestASlowAnswerHidesHowFarAClockHasMoved(t *testing.T) {
	t.Parallel()
	var b clockBounds
	redis := func(at int64) int64 { return at + max(at-10_000_000, 0)/100 } // 1 % fast from 10 s on
	ask := func(at, there, back int64) { b.observe(at, at+there+back, redis(at+there)) }
	for at := int64(0); at <= 10_000_000; at += 100_000 {
		ask(at, 100, 100)
	}
	ask(10_300_000, 20_000, 100)
	ask(11_600_000, 100, 100)
	for later := int64(50_000); later < 1_000_000; later += 50_000 {
		if now := 11_600_000 + later; b.notAfter(now) < redis(now) {
			t.Errorf("%d µs after an answer: the clock shows %d µs more than was said", later, redis(now)-b.notAfter(now))
		}
	}
}

// While a clock is slewed, and afterwards, the bounds are true. An answer inside the bounds may still show that the clock has
// moved, by as much as the way to Redis takes. Up to 1 % the bounds are true even before an answer contradicts.
func TestTheBoundsAreTrueBehindASlew(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, ppm := range []int64{83_333, -83_333, 10_000, -10_000, 5000} {
		for seed := range uint64(20) {
			dice := rand.New(rand.NewPCG(seed, 7))
			var b clockBounds
			seen := max(ppm, -ppm) <= unseen
			theta := func(at int64) int64 { return min(max(at-5_000_000, 0), 4_000_000) * ppm / 1_000_000 }
			for now := int64(0); now < 90_000_000; {
				there, back := 1000+dice.Int64N(19_000), 1000+dice.Int64N(19_000)
				if seed%2 == 1 && dice.IntN(8) > 0 { // most ways are short
					there, back = 100, 100
				}
				at := now + there
				b.observe(now, at+back, at+theta(at))
				now = at + back + dice.Int64N(150_000)
				seen = seen || b.fast.doubt+b.slow.doubt > 0
				truth := now + theta(now)
				if low, high := b.earliest(now), b.notAfter(now); seen && (truth < low || truth > high) {
					t.Fatalf("%d ppm, seed %d, after %d µs: the clock shows %d, said is %d to %d", ppm, seed, now, truth-now, low-now, high-now)
				}
			}
		}
	}
}
