package bucket

import (
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// For a day's limit, Room returns when the first of its permits is ready again, and no earlier moment.
func TestRoom(t *testing.T) {
	t.Parallel()
	c, gateway := testkit.Client(t), testkit.Gateway(t)
	day := job.Limit{N: 5, Window: 24 * time.Hour}
	cfg := PacerConfig{Gateway: gateway, Limits: []job.Limit{day, {N: 100, Window: time.Second}}, CallTimeout: time.Second}
	p := newTestPacer(t, c, cfg)
	var now int64
	cfg.NowMicros = func() int64 { return now }
	later := newTestPacer(t, c, cfg)
	look := func(p *Pacer, cost int64) Room {
		t.Helper()
		r, err := p.Room(t.Context(), cost)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var last int64
	var counted []int64 // the moments that Redis counts the calls at
	for range 5 {
		if r := look(p, 1); r.In != 0 {
			t.Fatalf("after %d of 5 calls there is room: %+v", len(counted), r)
		}
		s, err := p.Take(t.Context(), 1, "")
		if err != nil {
			t.Fatal(err)
		}
		counted, last = append(counted, p.late.edge(s)), s.At
	}
	wait := p.plan.Load().windows[1].ready
	r := look(p, 1)
	if gap := r.At.Sub(time.UnixMicro(last)); r.Gap != gap {
		t.Errorf("the gap between the last slot and the next is %v, want %v", r.Gap, gap)
	}
	if r.Limit != day || r.At.UnixMicro() != counted[0]+wait || r.In < 23*time.Hour {
		t.Errorf("%+v, want room a day after the first call, at %v", r, time.UnixMicro(counted[0]+wait).UTC())
	}
	if two := look(p, 2); two.At.UnixMicro() != counted[1]+wait {
		t.Errorf("%+v, want room for a cost of 2 a day after the second call", two)
	}
	for now = counted[0] + wait - 1; now <= counted[0]+wait; now++ {
		if r := look(later, 1); (r.In > 0) != (now < counted[0]+wait) {
			t.Errorf("%d µs from the moment: %+v", now-counted[0]-wait, r)
		}
	}
}

// If Redis's clock was seen to go too fast, permits take longer, and Room says so.
func TestRoomAfterASlew(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	limits := []job.Limit{{N: 4, Window: time.Second}, {N: 24, Window: 30 * time.Second}}
	cfg := PacerConfig{Limits: limits, Jitter: 5 * time.Millisecond}
	s := newStory(t, cfg, 1)
	s.nap = 1_000_000
	s.pass(5 * time.Second)
	s.clock.set(s.w.now, 0, 80_000)
	s.pass(12 * time.Second)
	s.clock.set(s.w.now, 0, 0)
	s.pass(3 * time.Second)
	cfg.Gateway, cfg.NowMicros = testkit.GatewayOf(s.w.keys.Pace()), func() int64 { return s.clock.at(s.w.now) }
	r, err := newTestPacer(t, s.w.client, cfg).Room(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	told, before := s.w.now+r.In.Microseconds(), len(s.arrived)
	for len(s.arrived) == before && s.w.now < told+5_000_000 {
		s.pass(10 * time.Millisecond)
	}
	if off := s.w.now - told; r.Limit != limits[1] || off < -100_000 || off > 100_000 {
		t.Errorf("%+v, but the next call comes %v later than that", r, time.Duration(off)*time.Microsecond)
	}
}

func TestRoomWithAsManyCallsAsMayBe(t *testing.T) {
	t.Parallel()
	c, gateway := testkit.Client(t), testkit.Gateway(t)
	p := newTestPacer(t, c, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 100, Window: time.Second}}, MaxInFlight: 2, Burst: 2, CallTimeout: time.Minute})
	for range 2 {
		if r, err := p.Room(t.Context(), 1); err != nil || r.Full {
			t.Fatalf("%+v, %v", r, err)
		}
		if _, err := p.Take(t.Context(), 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := p.Room(t.Context(), 1); err != nil || !r.Full {
		t.Errorf("two calls of two are under way: %+v, %v", r, err)
	}
}
