package bucket

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// shifted sets Redis's clock, as this process's scripts are told it, ahead of the world's by shift µs.
func (w *world) shifted(p *Pacer, shift *int64) *Pacer {
	p.plan.Load().cfg.NowMicros = func() int64 { return w.now + *shift }
	return p
}

// change gives the pacer other limits, and rebuilds the lists.
func (w *world) change(p *Pacer, version int64, limits ...job.Limit) {
	w.t.Helper()
	cfg := PacerConfig{Gateway: p.gateway, NowMicros: func() int64 { return w.now }, Limits: limits, Version: version}
	if err := p.Change(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
	w.expect(w.reserve(p, wish{cost: 1}), stateReshape, 0)
	if err := p.reshape(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// forgives lifts everything that is charged, and expects this many units of the longest limit to be left.
func (w *world) forgives(p *Pacer, left int64) {
	w.t.Helper()
	if _, err := p.Forgive(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.charges(p)
	w.audited(p)
	if n := sum(w.client.LRange(w.t.Context(), w.keys.PaceWindow(len(p.plan.Load().windows)), 0, -1).Val()); n != left {
		w.t.Errorf("%d units are left, want %d", n, left)
	}
}

// A limit that comes into force after everything was lost is charged, whether or not earlier charges were forgiven.
func TestALimitThatComesAfterALossCanBeForgiven(t *testing.T) {
	second, thousand, week := job.Limit{N: 20, Window: time.Second}, job.Limit{N: 1000, Window: day}, job.Limit{N: 5000, Window: 7 * day}
	w, p := charged(t, thousand)
	w.forgives(p, 0)
	w.change(p, 1, second, thousand, week)
	w.charges(p, Charge{Limit: week, Units: week.N})
	w.forgives(p, 0)
}

// A second loss soon after the limits have changed includes what the first loss has charged a window in parts. Both can be forgiven.
func TestALossBehindAChargeInParts(t *testing.T) {
	parts := job.Limit{N: exactN + 1, Window: day}
	w, p := charged(t, parts)
	w.change(p, 1, job.Limit{N: 10, Window: time.Second}, parts)
	w.client.HSet(t.Context(), w.keys.Pace(), "r", fmt.Sprint("restored ", w.now))
	w.expect(w.reserve(p, wish{cost: 1}), stateLost, 0)
	w.charges(p, Charge{Limit: parts, Units: parts.N})
	w.forgives(p, 0)
}

// When a limit is back in force, an operator can forgive what a loss charged it before it left, or while it was out of force.
func TestAChargeOfALimitOutOfForceCanBeForgiven(t *testing.T) {
	second := job.Limit{N: 20, Window: time.Second}
	for name, long := range map[string]job.Limit{"exact": {N: 1000, Window: day}, "in parts": {N: exactN + 1, Window: day}} {
		for when, before := range map[string]bool{"charged before it left": true, "charged while it was out of force": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				w, ctx := scenario(t)
				p := w.pacer(PacerConfig{Limits: []job.Limit{second, long}})
				w.spread(p, 10, time.Second)
				lose := func() {
					w.pass(9 * time.Second)
					w.client.HSet(ctx, w.keys.Pace(), "r", fmt.Sprint("restored ", w.now))
					w.expect(w.reserve(p, wish{cost: 1}), stateLost, 0)
					w.pass(5 * time.Second)
				}
				if before {
					lose()
				}
				w.change(p, 1, second)
				if !before {
					lose()
				}
				w.pass(10 * time.Minute)
				w.change(p, 2, second, long)
				if got, err := p.Charged(ctx); err != nil || len(got) != 1 || got[0].Limit != long || got[0].Units < 200 || got[0].Units > 300 {
					t.Errorf("charged are %+v (%v), want what 10 s can have used", got, err)
				}
				w.forgives(p, 10)
			})
		}
	}
}

// A state keeps its age when Redis's clock is set back: a process that knows of the state knows of the slots that are lost with it.
func TestALossAfterAStepBackIsNoticed(t *testing.T) {
	w, _ := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	var shift int64
	var out ran
	p := w.shifted(w.pacer(cfg), &shift)
	w.spend(p, &out, time.Second)
	w.pass(time.Minute)
	shift = -(30 * time.Minute).Microseconds()
	w.spend(p, &out, 20*time.Second)
	before := len(out.slot)
	w.lose()
	w.spend(w.shifted(w.pacer(cfg), &shift), &out, 10*time.Second)
	if len(out.slot) == before {
		t.Fatal("the younger life gave no slot")
	}
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	if got, err := p.Charged(t.Context()); err != nil || len(got) != 1 || got[0].Units != 1000 {
		t.Errorf("charged are %+v (%v), want all", got, err)
	}
}

// After a fail-over to a Redis whose clock is behind, it is unknown since when slots are missing. But Redis's own append-only file lacks only its last
// seconds, whatever the clock says.
func TestAFailOverToAClockBehind(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	for name, c := range map[string]struct {
		persist []string
		charged [2]int64
		why     int64
	}{
		"a fail-over": {[]string{"--appendonly", "no"}, [2]int64{1000, 1000}, 6},
		"its file":    {nil, [2]int64{80, 140}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, c.persist...)
			var shift int64
			var out ran
			d.spend(d.pacer(cfg), &out, 2*time.Second)
			d.save()
			d.server.Stop()
			shift = -(30 * time.Second).Microseconds()
			d.back(10 * time.Second)
			fresh := d.shifted(d.pacer(cfg), &shift)
			d.expect(d.reserve(fresh, wish{want: 1, cost: 1}), stateReshape, 0)
			if err := fresh.reshape(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.expect(d.reserve(fresh, wish{want: 1, cost: 1}), stateLost, 0)
			l := fresh.Losses()
			if len(l) != 1 || l[0].Charged < c.charged[0] || l[0].Charged > c.charged[1] || l[0].Why != newLoss(0, c.why).Why {
				t.Errorf("%+v, want %v charged and reason %d", l, c.charged, c.why)
			}
		})
	}
}

// What was called at a higher pace than now, and is lost, is charged by that pace.
func TestALossFromBeforeALimitWasLowered(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	thousand := job.Limit{N: 1000, Window: day}
	d := newDisk(t, "--appendonly", "no")
	p := d.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, thousand}})
	var out ran
	d.spend(p, &out, 2*time.Second)
	d.save()
	d.spend(p, &out, 30*time.Second)
	d.crash(d.server, p)
	d.change(p, 1, job.Limit{N: 1, Window: time.Second}, thousand)
	d.expect(d.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	if l := p.Losses(); len(l) != 1 || l[0].Charged < int64(len(out.slot))-60 {
		t.Errorf("%+v, though %d calls were made", l, len(out.slot))
	}
}

// A job that costs more than all before it is lost together with its slot, and waits again. It may have been called.
func TestALossMayHaveTakenACostlyJob(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	hour := job.Limit{N: 100, Window: time.Hour}
	d := newDisk(t)
	p := d.pacer(PacerConfig{Limits: []job.Limit{hour}})
	d.expect(d.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	d.pass(time.Minute)
	d.client.HSet(t.Context(), d.keys.Costs(), "costly~1", 80)
	d.forgets(func() { d.expect(d.reserve(p, wish{want: 1, cost: 80}), stateOK, 1) })
	d.back(time.Second, p)
	fresh := d.pacer(PacerConfig{Limits: []job.Limit{hour}})
	d.expect(d.reserve(fresh, wish{want: 1, cost: 1}), stateLost, 0)
	if l := fresh.Losses(); len(l) != 1 || l[0].Charged < 80 {
		t.Errorf("%+v, want at least the 80 units that may have been used", l)
	}
}

// As long as a process asks, the state stays. If it is gone later, it was lost.
func TestAnIdleGatewayKeepsItsState(t *testing.T) {
	testkit.OneGoroutine(t)
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	for range 5 * 360 {
		w.pass(10 * time.Second)
		w.expect(w.reserve(p, wish{want: 1}), stateIdle, 0)
	}
	if end, err := w.client.HGet(ctx, w.keys.Pace(), "x").Int64(); err != nil || end < w.now+time.Hour.Microseconds() {
		t.Errorf("the state ends %s from now: %v", time.Duration(end-w.now)*time.Microsecond, err)
	}
}

// After a power cut, a machine starts with a clock that is an hour ahead, and corrects it. The correction causes no further loss.
func TestAStepBackAfterAPowerCut(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	d := newDisk(t)
	var shift int64
	var out ran
	d.spend(d.pacer(tenMinutes), &out, 3*time.Second)
	d.server.Kill()
	shift = time.Hour.Microseconds()
	d.back(10 * time.Second)
	p := d.shifted(d.pacer(tenMinutes), &shift)
	d.spend(p, &out, 5*time.Second)
	shift = 0
	before := len(out.slot)
	d.spend(p, &out, 10*time.Second)
	if l := p.Losses(); len(l) != 1 {
		t.Errorf("%d losses, want that of the power cut: %+v", len(l), l)
	}
	if n := len(out.slot) - before; n < 150 {
		t.Errorf("%d calls in the 10 s after the clock was set right", n)
	}
}

// A power cut in the first seconds of a burst, after a quiet time, loses only those seconds, however long Redis is away.
func TestAPowerCutAfterAQuietTime(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	d := newDisk(t)
	p := d.pacer(tenMinutes)
	var out ran
	d.spend(p, &out, time.Second)
	for range 60 {
		d.pass(10 * time.Second)
		d.expect(d.reserve(p, wish{want: 1}), stateIdle, 0)
	}
	d.forgets(func() { d.spend(p, &out, 1500*time.Millisecond) })
	d.back(5*time.Minute, p)
	d.expect(d.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	if l := p.Losses(); len(l) != 1 || l[0].Charged < 30 || l[0].Charged > 140 {
		t.Errorf("%+v, want what a few seconds can have used", l)
	}
}

// All processes see the same leap of Redis's clock. It is charged once, and so is the next leap.
func TestALeapIsChargedOnce(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 2000, Window: day}}}
	var shift int64
	var all []*Pacer
	for range 4 {
		all = append(all, w.shifted(w.pacer(cfg), &shift))
	}
	for leap := int64(1); leap <= 2; leap++ {
		var out ran
		for _, p := range all {
			w.spend(p, &out, 2*time.Second)
		}
		before := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val())
		shift += (10 * time.Second).Microseconds()
		for range 3 {
			for _, p := range all {
				w.reserve(p, wish{cost: 1})
				w.pass(10 * time.Millisecond)
			}
		}
		got := sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()) - before
		if got < 200 || got > 300 {
			t.Errorf("leap %d was charged with %d units, want what 10 s can have used", leap, got)
		}
	}
	if l := strings.Fields(w.client.HGet(ctx, w.keys.Pace(), "leapt").Val()); len(l) != 2 {
		t.Errorf("the leap is kept as %q", l)
	}
}

// Everything is lost while a day's limit is out of force, hours after the last call. The limit is charged when it comes back.
func TestALossIsNoticedHoursAfterALimitLeft(t *testing.T) {
	testkit.OneGoroutine(t)
	w, _ := scenario(t)
	second, thousand := job.Limit{N: 20, Window: time.Second}, job.Limit{N: 1000, Window: day}
	p := w.pacer(PacerConfig{Limits: []job.Limit{second, thousand}})
	var out ran
	w.spend(p, &out, 40*time.Second)
	w.change(p, 1, second)
	for range 2 * 360 {
		w.pass(10 * time.Second)
		w.expect(w.reserve(p, wish{want: 1}), stateIdle, 0)
	}
	w.lose()
	w.spend(p, &out, 5*time.Second)
	w.change(p, 2, second, thousand)
	w.charges(p, Charge{Limit: thousand, Units: 1000})
}

// A process that was cut off reports a loss from long ago, while the long limit is out of force. What was called since then counts when the limit is back.
func TestAnOldLossKeepsWhatWasCalledSince(t *testing.T) {
	testkit.OneGoroutine(t)
	w, _ := scenario(t)
	ten, hour := job.Limit{N: 10, Window: time.Second}, job.Limit{N: 1000, Window: time.Hour}
	cfg := PacerConfig{Limits: []job.Limit{ten, hour}}
	older := w.pacer(cfg)
	w.reserve(older, wish{want: 1, cost: 1})
	w.pass(time.Second)
	w.lose()
	p := w.pacer(cfg)
	var out ran
	w.spend(p, &out, time.Second)
	w.pass(40 * time.Minute)
	w.spend(p, &out, 80*time.Second)
	w.change(p, 1, ten)
	w.pass(25 * time.Minute)
	before := len(out.slot)
	if err := older.Change(t.Context(), p.plan.Load().cfg); err != nil {
		t.Fatal(err)
	}
	w.expect(w.reserve(older, wish{want: 1, cost: 1}), stateLost, 0)
	w.pass(2 * time.Second)
	w.change(p, 2, ten, hour)
	w.spend(p, &out, 10*time.Minute)
	if most := mostBefore(out.slot, out.slot[before-1], time.Hour.Microseconds()); most > hour.N {
		t.Errorf("%d slots of %s", most, hour)
	}
}

// After a loss, the list of the shortest window lives as long as the others.
func TestALossRenewsEveryList(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: time.Hour}}})
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	w.client.PExpire(ctx, w.keys.PaceWindow(1), time.Minute)
	w.client.HSet(ctx, w.keys.Pace(), "r", fmt.Sprint("restored ", w.now))
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	if left := w.client.PTTL(ctx, w.keys.PaceWindow(1)).Val(); left < time.Hour {
		t.Errorf("the list of the shortest window ends in %s", left)
	}
}

// A slot that was taken before the lists were rebuilt gives none of their permits back: the permit may belong to another call.
func TestASlotOfOtherBooksGivesNoPermitBack(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	s := w.reserve(p, wish{want: 1, cost: 1}).slots[0]
	w.client.HSet(ctx, w.keys.Pace(), "o", fmt.Sprintf("%d %d", s.StateID, s.StateID+1))
	if err := p.Release(ctx, s); err != nil {
		t.Fatal(err)
	}
	if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(1), 0, -1).Val()); n != 1 {
		t.Errorf("%d permits are taken, want the one", n)
	}
}
