package bucket

import (
	"testing"
	"time"
)

// A gateway that takes fewer calls at once gets half of them, over all processes, and one more each second.
func TestFewerHalvesTheCallsUnderWayAndLetsThemRecover(t *testing.T) {
	w, ctx := scenario(t)
	p, other := w.pacer(hundred()), w.pacer(hundred())
	for i := range 8 { // eight calls are under way, without leases as there was no cap
		w.client.LPush(ctx, w.keys.Active(), i)
	}
	few, err := p.Fewer(ctx)
	if err != nil || few != 4 {
		t.Fatalf("half of 8 calls: %d, %v", few, err)
	}
	if again, _ := other.Fewer(ctx); again != 4 {
		t.Errorf("the same news from a call that left before: %d, want 4 still", again)
	}
	w.expect(w.reserve(p, wish{want: 16, cost: 1}), stateFull, 0)
	w.client.Del(ctx, w.keys.Active())
	g := w.reserve(p, wish{want: 16, cost: 1})
	w.expect(g, stateOK, 4)
	for _, s := range g.slots {
		if s.Lease == "" {
			t.Fatal("a slot under a cap has no lease")
		}
	}
	w.expect(w.reserve(other, wish{want: 16, cost: 1}), stateFull, 0)
	w.pass(2 * time.Second)
	w.expect(w.reserve(other, wish{want: 16, cost: 1}), stateOK, 2)
	w.pass(2 * time.Second) // as many as had been too many: the cap is gone
	for _, s := range g.slots {
		p.End(ctx, s)
	}
	if n := len(w.reserve(other, wish{want: 11, cost: 1}).slots); n < 9 {
		t.Errorf("%d slots after the cap recovered", n)
	}
	if s, _ := p.Look(ctx); !s.HeldUntil.IsZero() || s.Probing {
		t.Errorf("fewer is not a hold: %+v", s)
	}
}

func TestFewerNeverStopsAGateway(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	for i := range 4 {
		w.client.LPush(ctx, w.keys.Active(), i)
	}
	for i, want := range []int64{2, 1, 0, 0} {
		if few, err := p.Fewer(ctx); err != nil || few != want {
			t.Fatalf("cap %d, %v, want %d", few, err, want)
		}
		w.pass(1001 * time.Millisecond)
		w.client.LTrim(ctx, w.keys.Active(), 0, max(0, 1-int64(i)))
	}
	w.client.Del(ctx, w.keys.Active())
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
}

// With one call in flight there can't be fewer. The caller is told so, and no cap is set.
func TestFewerThanOneCallIsNothingToLower(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.client.LPush(ctx, w.keys.Active(), "the call itself")
	if few, err := p.Fewer(ctx); err != nil || few != 0 {
		t.Errorf("cap %d, %v, want 0", few, err)
	}
	if v := w.client.HGet(ctx, w.keys.Hold(), "few").Val(); v != "" {
		t.Errorf("a cap of %s was set", v)
	}
}
