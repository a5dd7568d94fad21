package bucket

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// upheaval is a run in which Redis forgets everything now and then, while processes come and go.
type upheaval struct {
	cfg    PacerConfig
	losses int
	drop   float64                // share of slots released
	cost   func(*rand.Rand) int64 // nil: 1
	swap   swap                   // a change of a script
	spell  time.Duration          // of work, at most; 0: 20 s
	pause  time.Duration          // between two spells, at most
}

// live runs an upheaval: each spell some process works; now and then one dies or a new one comes; then Redis forgets.
// Every process asks once within the 10 s before, as idle ones do. It returns all that was granted and used.
func (w *world) live(u upheaval) (out ran) {
	w.swaps = u.swap.mutant(w.t)
	processes := []*Pacer{w.pacer(u.cfg), w.pacer(u.cfg), w.pacer(u.cfg)}
	tr := trial{cfg: u.cfg, drop: u.drop, cost: u.cost, late: 0.05, lateMost: 200_000}
	if u.spell == 0 {
		u.spell = 20 * time.Second
	}
	for range u.losses {
		for range 4 {
			w.work(tr, processes[w.rng.IntN(3)], time.Duration(w.rng.Int64N(int64(u.spell))), &out)
			w.pass(time.Duration(w.rng.Int64N(int64(u.pause))))
		}
		for _, p := range processes {
			w.reserve(p, wish{want: 0, cost: 1})
			w.pass(time.Duration(w.rng.Int64N(int64(3 * time.Second))))
		}
		dying := w.rng.IntN(3)
		w.work(tr, processes[dying], time.Second, &out)
		processes[dying] = w.pacer(u.cfg) // it dies after a last spell that nobody heard of; a fresh one comes
		w.lose()
		w.object(processes[dying], processes)
	}
	for _, p := range processes {
		w.work(tr, p, u.spell, &out)
	}
	return out
}

// object is what happens when the fresh process is the first to ask: the others are called, and say what they know.
func (w *world) object(fresh *Pacer, all []*Pacer) {
	w.reserve(fresh, wish{want: 16, cost: 1})
	for _, p := range all {
		w.pass(time.Millisecond)
		w.reserve(p, wish{want: 0, cost: 1})
	}
}

// work takes what can be had for so long.
func (w *world) work(tr trial, p *Pacer, d time.Duration, out *ran) {
	for end := w.now + d.Microseconds(); w.now < end; {
		cost := int64(1)
		if tr.cost != nil {
			cost = tr.cost(w.rng)
		}
		out.overdue = w.reportOverdue(out.overdue)
		g := w.reserve(p, wish{want: 1 + w.rng.Int64N(p.plan.Load().batch), cost: cost})
		for _, s := range g.slots {
			w.send(tr, p, s, out, tr.cfg.Jitter.Microseconds())
		}
		w.now += min(w.pause(g), max(end-w.now, 1))
	}
}

// listen has two processes listen, as far as Redis knows, which must be the world's own.
func (w *world) listen() {
	for range 2 {
		sub := w.client.Subscribe(context.Background(), HoldChannel)
		if _, err := sub.Receive(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = sub.Close() })
	}
}

var day = 24 * time.Hour

var upheavals = map[string]upheaval{
	"20/s and 1000/d":          {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}, losses: 8, pause: 4 * time.Hour},
	"20/s and 2000/d in parts": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 2000, Window: day}}}, losses: 8, pause: time.Hour},
	"1000/d alone":             {cfg: PacerConfig{Limits: []job.Limit{{N: 1000, Window: day}}, Burst: 9}, losses: 20, pause: time.Minute, spell: time.Hour},
	"three windows, released": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 30 * time.Second}, {N: 500, Window: time.Hour}}, Burst: 5},
		losses: 12, drop: 0.3, pause: 10 * time.Minute},
	"costs": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 300, Window: time.Minute}}}, losses: 12, drop: 0.1, pause: time.Minute,
		cost: func(r *rand.Rand) int64 { return 1 + r.Int64N(5) }},
}

// However often Redis forgets everything, no window holds more than its limit, as long as somebody lives who knew.
func TestLossesOfUnknownSizeBreakNoLimit(t *testing.T) {
	t.Parallel()
	for name, u := range upheavals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u.cfg.Jitter = 5 * time.Millisecond
			w := newWorld(t, testkit.Server(t).Client(), 11)
			w.listen()
			got := w.live(u)
			for i, most := range got.most(u.cfg.Limits) {
				if most > u.cfg.Limits[i].N {
					t.Errorf("%d units in a window of %s", most, u.cfg.Limits[i])
				}
			}
			t.Logf("%d calls in %s, %v in the worst windows", len(got.slot), time.Duration(got.slot[len(got.slot)-1]-got.slot[0])*time.Microsecond, got.most(u.cfg.Limits))
		})
	}
}

// Each part of the rebuilding is needed: left out, the check above finds windows above the limit.
func TestMutantsOfTheRebuildingBreakTheLimit(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		of   string
		swap swap
	}{
		"what nobody told of is not charged": {"20/s and 1000/d", swap{seedText, []string{"math.min(missing, N[k])", "0"}}},
		"nothing is told":                    {"20/s and 1000/d", swap{seedText, []string{"edge + R[k] > now", "false"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := upheavals[m.of]
			u.swap = m.swap
			w := newWorld(t, testkit.Server(t).Client(), 11)
			w.listen()
			got := w.live(u)
			for i, most := range got.most(u.cfg.Limits) {
				if most > u.cfg.Limits[i].N {
					return
				}
			}
			t.Errorf("the mutant lives: %v in the worst windows", got.most(u.cfg.Limits))
		})
	}
}

// A day's limit goes on after FLUSHALL in mid-run with what is left of it, although who made most of the calls has died, and the
// first one to ask is new.
func TestADaysLimitOutlivesFlushAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   PacerConfig
		over  time.Duration // in which the first 500 are taken
		rest  time.Duration // in which all of the rest can be had
		freed int           // calls in the last half of the time in which the first 500 leave the day
	}{
		"beside a second's": {PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}, time.Hour, time.Minute, 470},
		"alone":             {PacerConfig{Limits: []job.Limit{{N: 1000, Window: day}}, Burst: 10}, 11 * time.Hour, 11 * time.Hour, 240},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Server(t).Client(), 5)
			w.listen()
			a, b := w.pacer(c.cfg), w.pacer(c.cfg)
			w.expect(w.reserve(a, wish{want: 16, cost: 1}), "horizon", 0) // somebody may object
			w.pass(time.Second)
			w.spread(b, 500, c.over, a)
			w.reserve(a, wish{want: 0, cost: 1})
			w.pass(500 * time.Millisecond)
			before := w.now // b dies, and then
			w.lose()
			fresh := w.pacer(c.cfg)
			w.object(fresh, []*Pacer{a, fresh})
			var after ran
			w.spend(fresh, &after, c.rest)
			if n := len(after.slot); n > 500 || n < 455 {
				t.Fatalf("%d of the 500 that were left of the day after the loss", n)
			}
			if pause := time.Duration(after.slot[0]-before) * time.Microsecond; pause > 2*time.Second {
				t.Errorf("the first call after the loss comes %s later", pause)
			}
			w.now = before + (day - c.over/2).Microseconds()
			freed := len(after.slot)
			w.spend(fresh, &after, c.over/2-time.Minute)
			if n := len(after.slot) - freed; n < c.freed {
				t.Errorf("%d calls while those from before the loss leave the day, want nearly %d", n, c.freed)
			}
		})
	}
}

// spread takes n slots over that time, while others ask now and then.
func (w *world) spread(p *Pacer, n int, over time.Duration, others ...*Pacer) {
	for i := range n {
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
		if len(others) > 0 {
			w.reserve(others[i%len(others)], wish{want: 0, cost: 1})
		}
		w.pass(over / time.Duration(n))
	}
}

// Nobody lives who knew: then as much is charged as can have been granted.
func TestNobodyKnew(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	w.spread(w.pacer(cfg), 10, time.Second)
	w.client.Del(ctx, w.keys.PaceWindow(2)) // and its process is dead
	fresh := w.pacer(cfg)
	w.expect(w.reserve(fresh, wish{want: 16, cost: 1}), stateLost, 0)
	w.pass(time.Minute)
	w.expect(w.reserve(fresh, wish{want: 16, cost: 1}), "horizon", 0)
	w.pass(day)
	w.pass(time.Minute)
	w.expect(w.reserve(fresh, wish{want: 16, cost: 1}), stateOK, 3)
}

func sum(list []string) (units int64) {
	for i := 1; i < len(list); i += 2 {
		n, err := number(list[i])
		if err != nil {
			return -1
		}
		units += n
	}
	return units
}

// Whoever knows more replaces what was told before; nobody's news is added to another's.
func TestTheBestMemoryCounts(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a, b, c := w.pacer(cfg), w.pacer(cfg), w.pacer(cfg)
	for _, p := range []*Pacer{a, b, c} {
		w.reserve(p, wish{want: 0, cost: 1})
	}
	w.spread(a, 100, 20*time.Second)
	w.pass(2 * time.Second)
	w.reserve(b, wish{want: 0, cost: 1})
	w.spread(c, 100, 10*time.Second)
	w.pass(time.Second)
	w.lose()
	var units []int64
	for _, p := range []*Pacer{a, b, b, c, a, b, c} {
		w.reserve(p, wish{want: 0, cost: 1})
		list := w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()
		units = append(units, sum(list))
		n, _ := w.client.HGet(ctx, w.keys.Pace(), "n2").Int64()
		if n != sum(list) {
			t.Errorf("%d units are counted, the list holds %d", n, sum(list))
		}
	}
	// a and b know of 100 calls, and miss 13 and 11 s; c knows of all 200, and misses a second.
	if !slices.Equal(units, []int64{380, 340, 340, 240, 240, 240, 240}) {
		t.Errorf("counted after each one's news: %v", units)
	}
}

// A slot that is given back at once doesn't count; one that comes back after its part of the time was closed does, or the part
// after it would seem to hold less than it does.
func TestSlotsGivenBackLateStayCounted(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a, b := w.pacer(cfg), w.pacer(cfg)
	first := w.reserve(b, wish{want: 3, cost: 1}).slots
	w.reserve(a, wish{want: 0, cost: 1})
	w.pass(10 * time.Minute)
	second := w.reserve(b, wish{want: 3, cost: 1}).slots
	for _, s := range []job.Slot{first[2], second[2]} {
		if err := b.Release(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	w.reserve(a, wish{want: 0, cost: 1})
	if told := a.known.memory.told(0); told[0] != 2 || told[2] != int64(3) || told[4] != int64(2) {
		t.Errorf("remembered: %v, want 3 units and 2", told)
	}
}

// A process that waits with nothing to do hears of what others are granted, and of a loss.
func TestAnIdleProcessHears(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a, b := w.pacer(cfg), w.pacer(cfg)
	hear := func() {
		t.Helper()
		if err := Hear(ctx, w.client, []*Pacer{a}); err != nil {
			t.Fatal(err)
		}
		a.work.Wait()
	}
	hear()
	if a.asks.Load() > 0 {
		t.Error("a pacer that was never asked asks")
	}
	w.reserve(a, wish{want: 0, cost: 1})
	for range 20 {
		w.spread(b, 5, 500*time.Millisecond)
		hear()
	}
	if n := a.asks.Load(); n != 2 { // once more when the state began, to look at the lists
		t.Errorf("it asked %d times", n)
	}
	w.lose()
	w.pass(500 * time.Millisecond)
	hear()
	if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()); n != 120 {
		t.Errorf("%d units are counted after the loss, want the 100 that were granted and 20 that may have been", n)
	}
}

// Redis was emptied, and one who never heard of a slot has gone on: whoever heard of one notices, and both lives count.
func TestAnOlderLifeIsNoticed(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a, same := w.pacer(cfg), w.pacer(cfg)
	w.spread(a, 100, 10*time.Second, same)
	w.lose()
	fresh := w.pacer(cfg)
	w.spread(fresh, 60, time.Minute)
	w.expect(w.reserve(a, wish{want: 16, cost: 1}), stateLost, 0)
	w.expect(w.reserve(fresh, wish{want: 0, cost: 1}), "horizon", 0)
	w.expect(w.reserve(same, wish{want: 0, cost: 1}), "horizon", 0) // the same life is not suspected twice
	if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()); n != 180 {
		t.Errorf("%d units are counted, want 100 of the older life, 60 of the younger, and 20 that may have been", n)
	}
	w.pass(2 * time.Second)
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateOK, 1)
}

// Redis was emptied while a limit was out of force: nobody knows what was called, and the limit is charged in full when it comes back.
func TestALimitOutOfForceIsChargedWhenAllIsLost(t *testing.T) {
	for name, c := range map[string]job.Limit{"exact": {N: 300, Window: 10 * time.Minute}, "in parts": {N: exactN + 1, Window: 10 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			w, ctx := scenario(t)
			second := job.Limit{N: 20, Window: time.Second}
			change := func(p *Pacer, version int64, limits ...job.Limit) {
				t.Helper()
				if err := p.Change(ctx, PacerConfig{Gateway: p.gateway, NowMicros: func() int64 { return w.now }, Limits: limits, Version: version}); err != nil {
					t.Fatal(err)
				}
			}
			p := w.pacer(PacerConfig{Limits: []job.Limit{second, c}})
			var out ran
			w.spend(p, &out, time.Minute)
			change(p, 1, second)
			w.spend(p, &out, time.Second)
			w.lose()
			w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
			w.pass(2 * time.Second)
			w.spend(p, &out, time.Second)
			change(p, 2, second, c)
			back := w.now
			w.spend(p, &out, 20*time.Minute)
			if most := mostBefore(out.slot, back, c.Window.Microseconds()); most > c.N {
				t.Errorf("%d slots within %s", most, c)
			}
			if n := int64(len(out.slot)); n < 2*c.N {
				t.Errorf("%d slots in all: the limit did not come back", n)
			}
			w.lose()
			w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
			w.pass(2 * time.Second)
			change(p, 3, second, job.Limit{N: 2 * c.N, Window: time.Hour})
			w.spend(p, &out, time.Second)
			freed, err := p.Forgive(ctx)
			if err != nil || len(freed) != 1 || freed[0].Units != 2*c.N {
				t.Errorf("forgiven are %+v: %v", freed, err)
			}
			w.audited(p)
		})
	}
}

// While an older life may be known to others who listen, a new one waits for them.
func TestANewLifeWaitsForObjections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	sub := w.client.Subscribe(t.Context(), HoldChannel, "another")
	t.Cleanup(func() { _ = sub.Close() })
	for range 2 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1) // only p itself listens
	w.lose()
	w.listen()
	fresh := w.pacer(hundred())
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), "horizon", 0)
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Channel != HoldChannel || m.Payload != p.gateway {
		t.Errorf("heard %v (%v), want the gateway's name", m, err)
	}
	w.expect(w.reserve(p, wish{want: 0, cost: 1}), stateLost, 0)
	w.pass(time.Second)
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(300 * time.Millisecond)
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateOK, 1)
	w.lose()
	w.pass(1000 * time.Hour) // so long that the state may be gone without a loss
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(250 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
}

// A day's limit is not forgotten because nobody asked for hours.
func TestALossAfterHoursIsNoticed(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}})
	w.spread(p, 100, 10*time.Second)
	w.pass(5 * time.Hour)
	w.lose()
	w.expect(w.reserve(p, wish{want: 16, cost: 1}), stateLost, 0)
	if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()); n != 1100 {
		t.Errorf("%d units are counted, want what p knows, and all that others may have been granted for hours", n)
	}
}

// Who heard of a state before anything was granted knows that there was one.
func TestAStateWithoutSlotsIsMissedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	w.listen()
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a, b := w.pacer(cfg), w.pacer(cfg)
	w.reserve(a, wish{want: 0, cost: 1})
	w.pass(time.Second)
	w.spread(b, 10, time.Second)
	w.lose()
	w.expect(w.reserve(a, wish{want: 1, cost: 1}), stateLost, 0)
}
