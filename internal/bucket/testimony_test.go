package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// Who reads the lists between a loss and the first news of it reads what was charged, and does not know it for what was granted.
func TestAChargeIsNoTestimony(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	ctx := t.Context()
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: day}}}
	a := w.pacer(cfg)
	w.spread(a, 40, 4*time.Second)
	sub := w.client.Subscribe(ctx, HoldChannel, "another")
	t.Cleanup(func() { _ = sub.Close() })
	for range 2 {
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.listen()
	w.lose()
	counted := func() int64 { return sum(w.client.LRange(ctx, w.keys.PaceWindow(2), 0, -1).Val()) }
	look := func(p *Pacer) {
		t.Helper()
		if _, err := p.reserve(ctx, wish{cost: 1}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := w.pacer(cfg)
	look(fresh) // a new life begins
	look(a)     // a knows an older one: the most is charged
	if n := counted(); n < 100 {
		t.Fatalf("%d units are charged, want the most there can be", n)
	}
	fresh.catchUp(ctx)
	a.catchUp(ctx)
	told := counted()
	if told > 80 {
		t.Fatalf("%d units are counted after a's news of 40", told)
	}
	look(fresh)
	fresh.catchUp(ctx)
	if n := counted(); n != told {
		t.Errorf("%d units are counted, %d before the other's news, which is none", n, told)
	}
}

// What a process reads between a loss and the notice of it lacks what was lost: it is no testimony, whoever reads it.
func TestWhatIsReadBeforeALossIsNoticedIsNoTestimony(t *testing.T) {
	t.Parallel()
	limits := []job.Limit{{N: 20, Window: time.Second}, {N: 400, Window: time.Minute}}
	for name, reads := range map[string]func(w *world, newer, older, fresh *Pacer) (reader *Pacer){
		"by one with older limits that remembers": func(w *world, newer, older, _ *Pacer) *Pacer {
			w.expect(w.reserve(newer, wish{cost: 1}), stateReshape, 0)
			if err := newer.reshape(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			w.expect(w.reserve(older, wish{cost: 1}), stateStale, 0)
			return older
		},
		"by one with older limits that is new": func(w *world, newer, _, fresh *Pacer) *Pacer {
			w.expect(w.reserve(newer, wish{cost: 1}), stateReshape, 0)
			if err := newer.reshape(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			w.expect(w.reserve(fresh, wish{cost: 1}), stateStale, 0)
			return fresh
		},
		"by one that had just asked": func(w *world, _, older, _ *Pacer) *Pacer {
			older.known.memory = nil
			older.catchUp(w.t.Context())
			return older
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.Server(t)
			w := newWorld(t, server.Client(), 3)
			cfg := PacerConfig{Limits: limits, Burst: 20, Jitter: 5 * time.Millisecond, Version: 1}
			newer, older, fresh := w.pacer(cfg), w.pacer(cfg), w.pacer(cfg)
			var out ran
			w.spend(newer, &out, 2*time.Second)
			w.reserve(older, wish{cost: 1})
			w.save()
			w.spend(newer, &out, 10*time.Second)
			w.crash(server, newer, older, fresh)
			change := func(p *Pacer) {
				next := cfg
				next.Gateway, next.NowMicros, next.Version = testkit.GatewayOf(w.keys.Pace()), func() int64 { return w.now }, 2
				if err := p.Change(t.Context(), next); err != nil {
					t.Fatal(err)
				}
			}
			change(newer)
			w.pass(time.Second)
			reader := reads(w, newer, older, fresh)
			for _, p := range []*Pacer{newer, reader} {
				change(p)
				w.spend(p, &out, 5*time.Second)
			}
			w.spend(newer, &out, 2*time.Minute)
			for _, l := range limits {
				if most := mostInWindow(out.slot, nil, l.Window.Microseconds()); most > l.N {
					t.Errorf("%d slots within %s, the limit is %s", most, l.Window, l)
				}
			}
		})
	}
}
