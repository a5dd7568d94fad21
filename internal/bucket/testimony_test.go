package bucket

import (
	"testing"
	"time"

	"spillway/internal/testkit"
)

// Who reads the lists between a loss and the first news of it reads what was charged, and does not know it for what was granted.
func TestAChargeIsNoTestimony(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Server(t).Client(), 3)
	ctx := t.Context()
	cfg := PacerConfig{Limits: []Limit{{20, time.Second}, {1000, day}}}
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
