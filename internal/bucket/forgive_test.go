package bucket

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// charged is a gateway whose long limits a loss has charged. No process lives that knew of a slot.
func charged(t *testing.T, limits ...job.Limit) (*world, *Pacer) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: append([]job.Limit{{N: 20, Window: time.Second}}, limits...)}
	w.spread(w.pacer(cfg), 10, time.Second)
	w.client.Del(ctx, w.keys.PaceWindow(2)) // and its process is dead
	fresh := w.pacer(cfg)
	w.expect(w.reserve(fresh, wish{want: 16, cost: 1}), stateLost, 0)
	w.pass(time.Minute)
	return w, fresh
}

func (w *world) charges(p *Pacer, want ...Charge) {
	w.t.Helper()
	got, err := p.Charged(w.t.Context())
	if err != nil || len(got) != len(want) {
		w.t.Fatalf("charged are %+v, want %+v: %v", got, want, err)
	}
	for i, c := range got {
		if c.Limit != want[i].Limit || c.Units != want[i].Units || c.Until.Sub(w.Now()) > c.Limit.Window*257/256 || c.Until.Before(w.Now()) {
			w.t.Errorf("charged is %+v, want %+v", c, want[i])
		}
	}
}

// A loss has used up a day's limit. It is free again when an operator says that those calls were not made. What is called after that counts.
func TestAChargeIsForgiven(t *testing.T) {
	testkit.OneGoroutine(t)
	for name, day1000 := range map[string]job.Limit{"exact": {N: 1000, Window: day}, "in parts": {N: exactN + 1, Window: day}} {
		t.Run(name, func(t *testing.T) {
			w, p := charged(t, day1000)
			w.charges(p, Charge{Limit: day1000, Units: day1000.N}) // a day of 20/s is more
			w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
			freed, err := p.Forgive(t.Context())
			if err != nil || len(freed) != 1 || freed[0].Units != day1000.N || freed[0].Limit != day1000 {
				t.Fatalf("forgiven are %+v: %v", freed, err)
			}
			w.charges(p)
			w.audited(p)
			var out ran
			w.spend(p, &out, time.Duration(day1000.N/20+2)*time.Second)
			if n := int64(len(out.slot)); n < day1000.N*95/100 || n > day1000.N {
				t.Errorf("%d slots were given out after it", n)
			}
			if freed, err := p.Forgive(t.Context()); err != nil || len(freed) > 0 {
				t.Errorf("what is counted was forgiven: %+v, %v", freed, err)
			}
		})
	}
}

// audited checks the counts of units against the lists.
func (w *world) audited(p *Pacer) {
	w.t.Helper()
	for k := range p.plan.Load().windows {
		n, err := w.client.HGet(w.t.Context(), w.keys.Pace(), "n"+string(rune('1'+k))).Int64()
		if in := sum(w.client.LRange(w.t.Context(), w.keys.PaceWindow(k+1), 0, -1).Val()); err != nil || n != in {
			w.t.Errorf("window %d counts %d units, its list has %d: %v", k+1, n, in, err)
		}
	}
}

// What Redis still knows is not a charge. After two losses, both can be forgiven.
func TestWhatRedisKnowsIsNotForgiven(t *testing.T) {
	w, ctx := scenario(t)
	thousand := job.Limit{N: 1000, Window: day}
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, thousand}})
	w.spread(p, 100, time.Minute)
	for range 2 {
		w.client.HSet(ctx, w.keys.Pace(), "r", fmt.Sprint("restored ", w.now))
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
		w.pass(5 * time.Second)
	}
	counted := func() int64 { return sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()) }
	open := counted() - 100
	if open < 40 || open > 200 {
		t.Fatalf("%d units are charged", open)
	}
	w.charges(p, Charge{Limit: thousand, Units: open})
	if freed, err := p.Forgive(ctx); err != nil || len(freed) != 1 || freed[0].Units != open || counted() != 100 {
		t.Fatalf("forgiven are %+v, %d units are counted: %v", freed, counted(), err)
	}
	w.audited(p)
}

// A charge can be forgiven after the limits have changed, as after a loss that includes limits set live, and when Redis's clock was set back.
func TestAChargeIsForgivenUnderOtherLimits(t *testing.T) {
	second, thousand := job.Limit{N: 20, Window: time.Second}, job.Limit{N: 1000, Window: day}
	for name, to := range map[string][]job.Limit{
		"another version": {second, thousand},
		"one more":        {second, {N: 100, Window: time.Minute}, thousand},
		"alone":           {thousand},
		"in parts":        {second, {N: 5000, Window: day}},
		"shorter":         {second, {N: 900, Window: day / 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := charged(t, thousand)
			w.pass(15 * time.Second)
			ctx, last := t.Context(), to[len(to)-1]
			if name == "another version" {
				w.now -= (10 * time.Second).Microseconds()
			}
			if err := p.Change(ctx, PacerConfig{Gateway: p.gateway, NowMicros: func() int64 { return w.now }, Limits: to, Version: 1}); err != nil {
				t.Fatal(err)
			}
			if name != "another version" {
				if freed, err := p.Forgive(ctx); err == nil {
					t.Errorf("before the lists are those of the limits, forgiven are %+v", freed)
				}
			}
			w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateReshape, 0)
			if err := p.reshape(ctx); err != nil {
				t.Fatal(err)
			}
			units := last.N // more was charged than any of these limits allow
			w.charges(p, Charge{Limit: last, Units: units})
			if freed, err := p.Forgive(ctx); err != nil || len(freed) == 0 || freed[len(freed)-1].Units != units {
				t.Errorf("forgiven are %+v: %v", freed, err)
			}
			w.audited(p)
			if n := sum(w.client.LRange(ctx, w.keys.PaceWindow(len(to)), 0, -1).Val()); n != 0 {
				t.Errorf("%d units are left", n)
			}
		})
	}
}
