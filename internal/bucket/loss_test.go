package bucket

import (
	"context"
	"math/rand/v2"
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

// live runs an upheaval. In each spell some process works; now and then one dies or a new one comes; then Redis forgets everything. It returns all that was granted
// and used.
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
		processes[dying] = w.pacer(u.cfg) // it dies after a last spell that no other process heard of; a fresh one comes
		w.lose()
		w.object(processes[dying], processes)
	}
	for _, p := range processes {
		w.work(tr, p, u.spell, &out)
	}
	return out
}

// object has the fresh process ask first: the others are called, and object.
func (w *world) object(fresh *Pacer, all []*Pacer) {
	w.reserve(fresh, wish{want: 16, cost: 1})
	for _, p := range all {
		w.pass(time.Millisecond)
		w.reserve(p, wish{want: 0, cost: 1})
	}
}

// work takes all slots that are available for a time.
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

// listen makes Redis see two processes that listen. The Redis must be the world's own.
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
	"20/s and 300/h":           {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 300, Window: time.Hour}}}, losses: 8, pause: time.Hour},
	"20/s and 1500/h in parts": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1500, Window: time.Hour}}}, losses: 8, pause: time.Hour, spell: time.Minute},
	"1000/h alone":             {cfg: PacerConfig{Limits: []job.Limit{{N: 1000, Window: time.Hour}}, Burst: 9}, losses: 20, pause: time.Minute, spell: time.Hour},
	"three windows, released": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 30 * time.Second}, {N: 500, Window: time.Hour}}, Burst: 5},
		losses: 12, drop: 0.3, pause: time.Hour},
	"costs": {cfg: PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 300, Window: time.Minute}}}, losses: 12, drop: 0.1, pause: time.Minute,
		cost: func(r *rand.Rand) int64 { return 1 + r.Int64N(5) }},
}

// However often Redis forgets everything, no window holds more than its limit, as long as a process lives that knew of the slots.
func TestLossesOfUnknownSizeBreakNoLimit(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, u := range upheavals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u.cfg.Jitter, u.losses = 5*time.Millisecond, testkit.Often(min(u.losses, 8), u.losses)
			w := newWorld(t, testkit.Server(t).Client(), 11)
			w.listen()
			got := w.live(u)
			for i, most := range got.most(u.cfg.Limits) {
				if most > u.cfg.Limits[i].N {
					t.Errorf("%d units in a window of %s", most, u.cfg.Limits[i])
				}
			}
			if n := len(got.slot); n < 600 {
				t.Errorf("%d calls: too few to tell", n)
			}
			t.Logf("%d calls in %s, %v in the worst windows", len(got.slot), time.Duration(got.slot[len(got.slot)-1]-got.slot[0])*time.Microsecond, got.most(u.cfg.Limits))
		})
	}
}

// Without the handling of losses, the check above finds windows above the limit.
func TestMutantsOfTheChargeBreakTheLimit(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, pairs := range map[string][]string{
		"what was lost is not charged": {"    loss_charge(KEYS[9 + k], mark, missing, younger)", "missing = 0; loss_charge(KEYS[9 + k], mark, missing, younger)"},
		"an older life means nothing":  {"floor > last and floor_kept > now or not pace[1] and root > 0 and kept_long > now", "false", "pace[1] and root > 0 and root < life", "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := upheavals["20/s and 300/h"]
			u.swap = swap{reserveText, pairs}
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

// spread takes n slots over a time, while others ask now and then.
func (w *world) spread(p *Pacer, n int, over time.Duration, others ...*Pacer) {
	for i := range n {
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
		if len(others) > 0 {
			w.reserve(others[i%len(others)], wish{want: 0, cost: 1})
		}
		w.pass(over / time.Duration(n))
	}
}

// No process lives that knew of the slots. Then as much is charged as can have been granted.
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

// Redis was emptied, and a process went on that had never heard of a slot. A process that had heard of one notices, and both lives count.
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
	w.charges(a, Charge{Limit: cfg.Limits[1], Units: 1000})
	if freed, err := a.Forgive(ctx); err != nil || len(freed) != 1 || freed[0].Units != 1000 {
		t.Errorf("forgiven are %+v: %v", freed, err)
	}
	w.audited(a)
	if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()); n != 60 {
		t.Errorf("%d units are left of the 60 of the younger life", n)
	}
	w.pass(2 * time.Second)
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateOK, 1)
}

// Everything is lost while a lower limit is in force. What the higher limit allows is charged, because the higher limit may come back.
func TestALossUnderLowerLimitsIsChargedForHigherOnes(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	thousand := job.Limit{N: 1000, Window: day}
	limits := func(n int64) []job.Limit { return []job.Limit{{N: 20, Window: time.Second}, {N: n, Window: day}} }
	p := w.pacer(PacerConfig{Limits: limits(1000)})
	change := func(version, n int64) {
		t.Helper()
		if err := p.Change(t.Context(), PacerConfig{Gateway: p.gateway, NowMicros: func() int64 { return w.now }, Limits: limits(n), Version: version}); err != nil {
			t.Fatal(err)
		}
	}
	var out ran
	w.spend(p, &out, 45*time.Second) // 900
	change(1, 100)
	w.spend(p, &out, time.Second)
	w.lose()
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	change(2, 1000)
	w.spend(p, &out, time.Minute)
	if n := int64(len(out.slot)); n > thousand.N {
		t.Errorf("%d slots of %s", n, thousand)
	}
	w.charges(p, Charge{Limit: thousand, Units: 1000})
}

// A process whose limits are newer than those of a life that begins from nothing objects to that life, too.
func TestALifeOfOtherLimitsIsObjectedTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	newer := cfg
	newer.Version = 1
	a, fresh := w.pacer(newer), w.pacer(cfg)
	w.spread(a, 10, time.Second)
	w.lose()
	w.listen()
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(time.Millisecond)
	a.Report()
	a.work.Wait()
	w.charges(a, Charge{Limit: cfg.Limits[1], Units: 1000})
}

// Redis was emptied while a limit was out of force. It is unknown what was called, so the limit is charged in full when it comes back.
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

// If other processes that listen may know of an older life, a new one waits for their objections.
func TestANewLifeWaitsForObjections(t *testing.T) {
	testkit.OneGoroutine(t)
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

// A day's limit is not forgotten after hours without a question.
func TestALossAfterHoursIsNoticed(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}})
	w.spread(p, 100, 10*time.Second)
	w.pass(5 * time.Hour)
	w.lose()
	w.expect(w.reserve(p, wish{want: 16, cost: 1}), stateLost, 0)
	w.charges(p, Charge{Limit: job.Limit{N: 1000, Window: day}, Units: 1000})
}

// A process that heard of a state before anything was granted knows that there was one.
func TestAStateWithoutSlotsIsMissedToo(t *testing.T) {
	testkit.OneGoroutine(t)
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
