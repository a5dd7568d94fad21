package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// crash kills Redis and starts it again from its last snapshot. Processes go on with new connections.
func (w *world) crash(server *testkit.RedisServer, survivors ...*Pacer) {
	w.t.Helper()
	server.Kill()
	server.Restart()
	w.client = server.Client()
	for _, p := range survivors {
		p.client = noRetry{w.client}
	}
}

func (w *world) save() {
	w.t.Helper()
	if err := w.client.Save(w.t.Context()).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// Redis comes back with an older snapshot. The first process that asks has never heard of the slots that are lost.
func TestLossIsNoticedWhoeverAsksFirst(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 10 * time.Second}}, Burst: 20, Jitter: 5 * time.Millisecond}
	for name, heardOf := range map[string]bool{"a fresh process": false, "a process with older news": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.Server(t)
			w := newWorld(t, server.Client(), 3)
			a, b := w.pacer(cfg), w.pacer(cfg)
			var out ran
			w.spend(a, &out, 1500*time.Millisecond)
			if heardOf {
				w.spend(b, &out, time.Second)
			}
			w.save()
			kept := len(out.slot)
			w.spend(a, &out, 1500*time.Millisecond)
			if len(out.slot) == kept {
				t.Fatal("nothing is lost")
			}
			w.crash(server, a, b)
			w.expect(w.reserve(b, wish{want: 16, cost: 1}), stateLost, 0)
			before := len(out.slot)
			for range 4 {
				w.spend(b, &out, 5*time.Second)
				w.spend(a, &out, 5*time.Second)
			}
			for _, l := range cfg.Limits {
				if most := mostInWindow(out.slot, nil, l.Window.Microseconds()); most > l.N {
					t.Errorf("%d slots within %s, the limit is %s", most, l.Window, l)
				}
			}
			if n := len(out.slot) - before; n < 200 {
				t.Errorf("%d slots in the 40 s after the loss, want nearly 400", n)
			}
		})
	}
}

// Redis was emptied, and no process noticed. Then it loses the last moments of what it had since. A process that notices both losses charges both.
func TestTwoLossesThatAreNoticedTogether(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	cfg := PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 10 * time.Second}}, Burst: 20, Jitter: 5 * time.Millisecond}
	server := testkit.Server(t)
	w := newWorld(t, server.Client(), 3)
	older, younger := w.pacer(cfg), w.pacer(cfg)
	var out ran
	w.spend(older, &out, time.Second)
	w.pass(20 * time.Second)
	w.lose()
	w.spend(younger, &out, 500*time.Millisecond)
	w.save()
	w.pass(9 * time.Second)
	w.spend(younger, &out, 3*time.Second)
	w.crash(server, older, younger)
	w.expect(w.reserve(older, wish{want: 16, cost: 1}), stateLost, 0)
	w.spend(older, &out, 30*time.Second)
	for _, l := range cfg.Limits {
		if most := mostInWindow(out.slot, nil, l.Window.Microseconds()); most > l.N {
			t.Errorf("%d slots within %s, the limit is %s", most, l.Window, l)
		}
	}
}

// A long window is not charged for the time in which Redis is known to have granted nothing.
func TestARestartAfterAnIdleNightLeavesTheDaysBudget(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	server := testkit.Server(t)
	w := newWorld(t, server.Client(), 3)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 20, Window: time.Second}, {N: 1000, Window: 24 * time.Hour}}})
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	for range 1000 {
		w.expect(w.reserve(p, wish{want: 16}), stateIdle, 0)
		w.pass(time.Second)
	}
	w.save()
	w.crash(server, p)
	var out ran
	w.spend(p, &out, 100*time.Second)
	if n := len(out.slot); n < 800 || n > 1000 {
		t.Errorf("%d of the day's 1000 slots after the restart, want what a few seconds can't have used", n)
	}
}

// A Redis that does not tell its run id, like the embedded one, is not suspected of a loss.
func TestARedisWithoutARunID(t *testing.T) {
	t.Parallel()
	db, err := redisdb.Open(t.Context(), redisdb.Embedded, redisdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := newWorld(t, db.Client, 3)
	p := w.pacer(hundred())
	for range 3 {
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
		w.pass(10 * time.Second)
	}
}

// A Redis that has not changed is not suspected, and neither is a state from before the run id was kept.
func TestNoLossIsSuspectedWithoutAReason(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	run := w.client.HGet(ctx, w.keys.Pace(), "r").Val()
	if len(run) != 40 {
		t.Fatalf("kept as run id: %q", run)
	}
	w.client.HDel(ctx, w.keys.Pace(), "r")
	for range 3 {
		w.pass(time.Second)
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	}
	if now := w.client.HGet(ctx, w.keys.Pace(), "r").Val(); now != run {
		t.Errorf("kept as run id: %q", now)
	}
}
