package bucket

import (
	"context"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// Each part of the proof is needed: left out, the check of TestLimitsHoldInEveryWindow finds windows above the limit.
func TestMutantsBreakTheLimit(t *testing.T) {
	t.Parallel()
	base := trial{cfg: PacerConfig{Limits: []Limit{{100, time.Second}}, Jitter: 5 * time.Millisecond}, lasts: 20 * time.Second}
	late := base
	late.late, late.lateMost = 0.1, 60_000
	forgetful := late
	forgetful.forget = true
	lost := base
	lost.lose = true
	for name, m := range map[string]struct {
		tr     trial
		mutate func(*Pacer)
	}{
		"no jitter allowance":      {base, shorten(5000)},
		"no allowance for epsilon": {base, shorten(2000)},
		"no clock rate allowance":  {base, shorten(100)},
		"late writes not reported": {forgetful, func(*Pacer) {}},
		"no floor":                 {lost, func(p *Pacer) { p.known.floor = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := m.tr
			tr.mutate = m.mutate
			if most := newWorld(t, testkit.Client(t), 7).run(tr).most(tr.cfg.Limits)[0]; most <= 100 {
				t.Errorf("the mutant lives: %d calls in the worst second", most)
			}
		})
	}
	t.Run("and with all its parts, losing everything", func(t *testing.T) {
		t.Parallel()
		if most := newWorld(t, testkit.Client(t), 7).run(lost).most(lost.cfg.Limits)[0]; most > 100 {
			t.Errorf("%d calls in the worst second", most)
		}
	})
}

// shorten makes permits ready µs earlier than they should be.
func shorten(by int64) func(*Pacer) {
	return func(p *Pacer) {
		pl := p.plan.Load()
		pl.windows[0].ready = newPlanned(pl.cfg).windows[0].ready - by
	}
}

func newPlanned(cfg PacerConfig) *plan {
	p, err := newPlan(cfg)
	if err != nil {
		panic(err)
	}
	return p
}

// lose is FLUSHALL for one gateway.
func (w *world) lose() {
	keys := append([]string{w.keys.Pace(), w.keys.Hold(), w.keys.Flight()}, w.keys.PaceWindow(1), w.keys.PaceWindow(2))
	if err := w.client.Del(context.Background(), keys...).Err(); err != nil {
		w.t.Fatal(err)
	}
}
