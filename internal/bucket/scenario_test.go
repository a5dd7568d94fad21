package bucket

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

func hundred() PacerConfig {
	return PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}, Jitter: 5 * time.Millisecond, CallTimeout: 30 * time.Second}
}

func (w *world) expect(g grant, want state, slots int) {
	w.t.Helper()
	if g.state != want || len(g.slots) != slots {
		w.t.Fatalf("got %s with %d slots (hint %s), want %s with %d", g.state, len(g.slots), g.hint, want, slots)
	}
}

func (w *world) pass(d time.Duration) { w.now += d.Microseconds() }

func scenario(t *testing.T) (*world, context.Context) {
	t.Parallel()
	return newWorld(t, testkit.Client(t), 3), t.Context()
}

func TestNoJobNoSlot(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 16}), stateIdle, 0)
	fill(t, w.client, w.keys.Pending(), 3)
	w.expect(w.reserve(p, wish{want: 16, lead: 1000}), stateOK, 3)
	other := w.pacer(hundred())
	w.expect(w.reserve(other, wish{want: 16, lead: 1000}), "ahead", 0) // those three jobs have their slots
}

// Several processes reserve more slots ahead of their jobs than are read at a time. The jobs behind them get slots of their own cost, and no
// job gets two slots.
func TestManySlotsAreOutAhead(t *testing.T) {
	w, ctx := scenario(t)
	cfg := PacerConfig{Limits: []job.Limit{{N: 5000, Window: time.Second}}}
	fill(t, w.client, w.keys.Pending(), 200)
	dear := w.client.LIndex(ctx, w.keys.Pending(), -151).Val()
	w.client.HSet(ctx, w.keys.Costs(), dear, 5)
	var costs []int64
	for range 3 {
		g := w.reserve(w.pacer(cfg), wish{want: 64, lead: 1000})
		w.expect(g, stateOK, 64)
		for _, s := range g.slots {
			costs = append(costs, s.Cost)
		}
	}
	if at := slices.Index(costs, 5); at != 150 {
		t.Errorf("slot %d has the cost of job 150", at)
	}
	w.expect(w.reserve(w.pacer(cfg), wish{want: 64, lead: 1000}), stateOK, 8)
	w.expect(w.reserve(w.pacer(cfg), wish{want: 64, lead: 1000}), "ahead", 0)
}

// The slots that a process has reserved are lost when it dies, so they are a small part of the lowest limit.
func TestABatchIsASmallPartOfEachLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits []job.Limit
		want   int64
	}{
		{[]job.Limit{{N: 100, Window: time.Second}}, 16},
		{[]job.Limit{{N: 2000, Window: time.Second}}, 22},
		{[]job.Limit{{N: 20000, Window: time.Second}}, 128},
		{[]job.Limit{{N: 5000, Window: time.Second}, {N: 100_000, Window: time.Hour}}, 55},
		{[]job.Limit{{N: 5000, Window: time.Second}, {N: 2000, Window: time.Hour}}, 31},
		{[]job.Limit{{N: 5000, Window: time.Second}, {N: 200, Window: 24 * time.Hour}}, 16},
	} {
		pl, err := newPlan(PacerConfig{Gateway: "g", Limits: c.limits})
		if err != nil || pl.batch != c.want {
			t.Errorf("%v: a batch of %d slots, error %v: want %d", c.limits, pl.batch, err, c.want)
		}
	}
}

// A process with older limits than the pacer has seen is told so, and knows since when. After a while, that shows to others.
func TestOlderLimitsAreRefusedAndThatShows(t *testing.T) {
	w, ctx := scenario(t)
	behind, newer := w.pacer(hundred()), hundred()
	newer.Version = epoch
	w.expect(w.reserve(w.pacer(newer), wish{want: 1, cost: 1}), stateOK, 1)
	for i := range 3 {
		w.expect(w.reserve(behind, wish{want: 1, cost: 1}), stateStale, 0)
		is, since := behind.Stale()
		if s, err := behind.Look(ctx); err != nil || !is || since != time.Duration(i)*1500*time.Millisecond || s.Stale != (i == 2) {
			t.Errorf("after %d answers: %v since %s, shows: %v, %v", i+1, is, since, s.Stale, err)
		}
		w.pass(1500 * time.Millisecond)
	}
	newer.Gateway, newer.NowMicros = behind.gateway, func() int64 { return w.now }
	if err := behind.Change(ctx, newer); err != nil {
		t.Fatal(err)
	}
	w.client.HSet(ctx, w.keys.LiveLimits(), "version", epoch)
	w.expect(w.reserve(behind, wish{want: 1, cost: 1}), stateOK, 1)
	if is, since := behind.Stale(); is || since != 0 {
		t.Errorf("with the newer limits: %v since %s", is, since)
	}
	if s, err := behind.Look(ctx); err != nil || s.Stale {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestHorizonAndPartialGrant(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(hundred())
	g := w.reserve(p, wish{want: 16, cost: 1})
	w.expect(g, stateOK, 11) // 9.9 ms apart, 0 to 99 ms
	if last := g.slots[10].At - w.now; last > 100_000 {
		t.Errorf("a slot %d µs ahead", last)
	}
	g = w.reserve(p, wish{want: 16, cost: 1})
	w.expect(g, "horizon", 0)
	w.now += g.hint.Microseconds() - 1
	w.expect(w.reserve(p, wish{want: 16, cost: 1}), "horizon", 0)
	w.now++
	w.expect(w.reserve(p, wish{want: 16, cost: 1}), stateOK, 1)
}

func TestBurstStartsTogether(t *testing.T) {
	w, _ := scenario(t)
	cfg := hundred()
	cfg.Burst = 5
	g := w.reserve(w.pacer(cfg), wish{want: 8, cost: 1})
	for i, s := range g.slots {
		if together := s.At == g.slots[0].At; together != (i < 5) {
			t.Errorf("slot %d is at %d µs", i, s.At-w.now)
		}
	}
}

// hold makes a call be told to wait, and returns until when the gateway is held.
func hold(ctx context.Context, p *Pacer, length time.Duration, s job.Slot) (time.Time, error) {
	out, err := p.Failed(ctx, job.Circuit{}, job.Failure{Kind: job.Wait, For: length, Job: "told", Written: true, Slot: s.At, Why: "HTTP 429"})
	return out.At.Add(out.Held), err
}

func TestHoldThenOneThenTheRest(t *testing.T) {
	w, ctx := scenario(t)
	p, other := w.pacer(hundred()), w.pacer(hundred())
	fill(t, w.client, w.keys.Pending(), 50)
	p.keep(w.reserve(p, wish{want: 8}).slots)
	until, err := hold(ctx, p, 3*time.Second, job.Slot{})
	if err != nil || until.UnixMicro() != w.now+3_000_000 {
		t.Fatalf("held until %v (%v)", until, err)
	}
	if s, ok := p.head(); ok {
		t.Errorf("slot %v outlived the hold's beginning", s)
	}
	if now, _ := other.Look(ctx); !now.HeldUntil.Equal(until) || now.Reason != "HTTP 429" {
		t.Errorf("look says %+v", now)
	}
	for range 30 {
		w.expect(w.reserve(other, wish{want: 16}), stateHeld, 0)
		w.pass(100 * time.Millisecond)
	}
	other.Succeeded(ctx, job.Slot{}, true) // an older call's: no call was sent ahead yet
	g := w.reserve(other, wish{want: 16})
	w.expect(g, stateOK, 1)
	if g.slots[0].At < until.UnixMicro() {
		t.Errorf("a slot %d µs before the hold's end", until.UnixMicro()-g.slots[0].At)
	}
	w.expect(w.reserve(p, wish{want: 16}), "probing", 0)
	other.Succeeded(ctx, job.Slot{At: until.UnixMicro() - 1}, true) // and one that left before the hold ended
	w.expect(w.reserve(p, wish{want: 16}), "probing", 0)
	other.Succeeded(ctx, g.slots[0], true)
	w.pass(time.Second)
	if g := w.reserve(p, wish{want: 8}); len(g.slots) != 8 {
		t.Errorf("%d slots after the success, want 8", len(g.slots))
	}
	if now, _ := other.Look(ctx); now != (Standing{}) {
		t.Errorf("look says %+v after the success", now)
	}
}

func TestProbeIsGivenUp(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	held := func(probe job.Slot) {
		if _, err := hold(ctx, p, time.Second, probe); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
	}
	probe := func() job.Slot {
		t.Helper()
		g := w.reserve(p, wish{want: 16, cost: 1})
		w.expect(g, stateOK, 1)
		w.expect(w.reserve(p, wish{want: 16, cost: 1}), "probing", 0)
		return g.slots[0]
	}
	held(job.Slot{})
	for s := probe(); w.now < epoch+31_000_000; s = probe() { // calls that hang, or whose process has died: one every 5 s
		w.now = s.At + 5_000_000 - 1
		w.expect(w.reserve(p, wish{want: 16, cost: 1}), "probing", 0)
		w.now++
	}
	w.pass(5 * time.Second)
	if err := p.Release(ctx, probe()); err != nil { // one that is given back is no probe
		t.Fatal(err)
	}
	p.End(ctx, probe()) // one that ends without success or hold
	held(probe())       // and one that is answered with a hold
	probe()
}

// A call that was sent ahead may take longer than the next one waits. Its success counts all the same.
func TestASlowProbesSuccessFreesTheRest(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	if _, err := hold(ctx, p, time.Second, job.Slot{}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	for range 2 {
		w.expect(w.reserve(p, wish{want: 16, cost: 1}), stateOK, 1)
		w.pass(5 * time.Second)
	}
	p.Succeeded(ctx, job.Slot{At: w.now}, true)
	w.expect(w.reserve(p, wish{want: 8, cost: 1}), stateOK, 8)
}

// The slot of the next call sent ahead is asked for in time: its lead is not added to the five seconds.
func TestTheNextProbesSlotIsFiveSecondsAfterTheLast(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	if _, err := hold(ctx, p, time.Second, job.Slot{}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	var at []int64
	for len(at) < 3 {
		g := w.reserve(p, wish{want: 16, cost: 1, lead: 20_000})
		for _, s := range g.slots {
			at = append(at, s.At)
		}
		w.now += max(g.hint.Microseconds(), 1)
	}
	if at[1]-at[0] != 5_000_000 || at[2]-at[1] != 5_000_000 {
		t.Errorf("slots %d and %d µs apart, want 5 s", at[1]-at[0], at[2]-at[1])
	}
}

func TestHoldGrowsOncePerHold(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	var probe job.Slot
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		for range 5 { // calls that come back with the same news
			until, err := hold(ctx, p, 0, probe)
			if got := time.Duration(until.UnixMicro()-w.now) * time.Microsecond; err != nil || got != want*time.Second {
				t.Fatalf("hold %d lasts %s (%v), want %ds", i, got, err, want)
			}
		}
		w.pass(want * time.Second)
		g := w.reserve(p, wish{want: 1, cost: 1})
		w.expect(g, stateOK, 1)
		probe = g.slots[0]
	}
	p.Succeeded(ctx, job.Slot{At: w.now}, true)
	w.pass(29 * time.Second)
	until, _ := hold(ctx, p, 0, job.Slot{})
	if until.UnixMicro()-w.now != 60_000_000 {
		t.Errorf("29 s after the last hold it is %d µs", until.UnixMicro()-w.now)
	}
	w.pass(60 * time.Second)
	w.reserve(p, wish{want: 1, cost: 1})
	p.Succeeded(ctx, job.Slot{At: w.now}, true)
	w.pass(30 * time.Second)
	until, _ = hold(ctx, p, 0, job.Slot{})
	if until.UnixMicro()-w.now != 1_000_000 {
		t.Errorf("after 30 s without a hold it is %d µs", until.UnixMicro()-w.now)
	}
}

func TestPauseAndResume(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	if err := p.Pause(ctx, "provider's maintenance"); err != nil {
		t.Fatal(err)
	}
	if now, _ := p.Look(ctx); !now.Paused || now.PauseWhy != "provider's maintenance" {
		t.Errorf("look says %+v", now)
	}
	w.pass(time.Hour)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), statePaused, 0)
	if err := p.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	w.expect(w.reserve(p, wish{want: 4, cost: 1}), stateOK, 4)
}

func TestReleaseFreesThePermit(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 1, Window: time.Minute}}})
	for range 20 { // a queue that turns out empty again and again
		g := w.reserve(p, wish{want: 1, cost: 1})
		w.expect(g, stateOK, 1)
		w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
		if err := p.Release(ctx, g.slots[0]); err != nil {
			t.Fatal(err)
		}
		if err := p.Release(ctx, g.slots[0]); err != nil { // twice frees once
			t.Fatal(err)
		}
		w.pass(time.Millisecond)
	}
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	if n := w.client.LLen(ctx, w.keys.PaceWindow(1)).Val(); n != 2 {
		t.Errorf("the list holds %d numbers after releases, want 2", n)
	}
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
}

func TestLateMovesThePermit(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 1, Window: time.Second}}})
	first := w.reserve(p, wish{want: 1, cost: 1}).slots[0]
	w.pass(200 * time.Millisecond)
	p.Written(first, w.Now())
	p.Close(context.Background()) // waits for the report
	w.pass(810 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(150 * time.Millisecond)
	g := w.reserve(p, wish{want: 1, cost: 1})
	w.expect(g, stateOK, 1)
	if after := g.slots[0].At - first.At; after < 1_200_000 {
		t.Errorf("the next slot is %d µs after the late one's, want 1.2 s or more", after)
	}
}

// Two calls that start together and cost differently are both late: each moves its own permits.
func TestLateMovesItsOwnPermits(t *testing.T) {
	w, _ := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 3, Window: time.Second}}, Burst: 2})
	cheap := w.reserve(p, wish{want: 1, cost: 1}).slots[0]
	dear := w.reserve(p, wish{want: 1, cost: 2}).slots[0]
	if cheap.At != dear.At {
		t.Fatalf("they start %d µs apart", dear.At-cheap.At)
	}
	w.pass(200 * time.Millisecond)
	p.reportLate([]lateCall{wasLate(p, cheap, w.now), wasLate(p, dear, w.now)})
	w.pass(850 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(150 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 3}), stateOK, 1)
}

func TestScriptFlushAndLostState(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 4, cost: 1}), stateOK, 4)
	if err := w.client.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	w.pass(50 * time.Millisecond)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	w.lose()
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	fresh := w.pacer(hundred())
	w.pass(1250 * time.Millisecond) // one window, after the latest moment of a slot that is out
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), "horizon", 0)
	w.pass(20 * time.Millisecond) // 10 ms of it as the process has not watched Redis's clock yet
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateOK, 1)
}

func TestLostListIsNoticed(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.expect(w.reserve(p, wish{want: 4, cost: 1}), stateOK, 4)
	w.client.Del(ctx, w.keys.PaceWindow(1))
	w.expect(w.reserve(w.pacer(hundred()), wish{want: 1, cost: 1}), stateLost, 0)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), "horizon", 0)
}

func TestFlightCapAndLeases(t *testing.T) {
	w, ctx := scenario(t)
	cfg := hundred()
	cfg.MaxInFlight = 3
	p, other := w.pacer(cfg), w.pacer(cfg)
	g := w.reserve(p, wish{want: 16, cost: 1})
	w.expect(g, stateOK, 3)
	w.expect(w.reserve(other, wish{want: 16, cost: 1}), stateFull, 0)
	p.End(ctx, g.slots[0])
	_ = p.Release(ctx, g.slots[1])
	w.expect(w.reserve(other, wish{want: 16, cost: 1}), stateOK, 2)
	w.pass(36 * time.Second) // the owners died
	w.expect(w.reserve(other, wish{want: 16, cost: 1}), stateOK, 3)
}

func TestCostPeek(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(hundred())
	w.client.LPush(ctx, w.keys.Pending(), "a~1", "b~1", "c~1", "d~1") // a is next
	w.client.HSet(ctx, w.keys.Costs(), "b~1", 5, "d~1", 1000)
	g := w.reserve(p, wish{want: 2, lead: 1000})
	w.expect(g, stateOK, 2)
	rest := w.reserve(p, wish{want: 16, lead: 1000})
	w.expect(rest, stateOK, 1) // the next one's whole window doesn't fit beside them
	for i, want := range []int64{1, 5, 1} {
		if got := append(g.slots, rest.slots...)[i].Cost; got != want {
			t.Errorf("slot %d costs %d, want %d", i, got, want)
		}
	}
	w.client.RPop(ctx, w.keys.Pending())
	w.client.LTrim(ctx, w.keys.Pending(), 0, 0)
	w.pass(2 * time.Second)
	last := w.reserve(p, wish{want: 16, lead: 1000})
	w.expect(last, stateOK, 1)
	if last.slots[0].Cost != 100 { // more than can be had is cut: its handler will say so
		t.Errorf("the last slot costs %d, want 100", last.slots[0].Cost)
	}
	if _, err := p.Take(ctx, 101, ""); !errors.Is(err, job.ErrCost) {
		t.Errorf("a cost of 101 of 100: %v", err)
	}
}

// A new window is filled from what the old ones remember, so that changed limits hold from the first call on.
func TestLimitsChangeLive(t *testing.T) {
	testkit.OneGoroutine(t)
	w, ctx := scenario(t)
	cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }}
	cfg.Limits = []job.Limit{{N: 40, Window: time.Second}, {N: 200, Window: 10 * time.Second}}
	p, behind := w.pacer(cfg), w.pacer(cfg)
	var out ran
	for version, limits := range [][]job.Limit{
		cfg.Limits,
		{per(100, 5*time.Second)}, // slower, and another window
		{per(50, time.Second), per(150, 10*time.Second)},   // one that nothing remembers
		{per(3000, 10*time.Second), per(100, time.Second)}, // one in parts
		{per(200, 10*time.Second), per(20, 2*time.Second)}, // filled from parts
	} {
		cfg.Version, cfg.Limits = int64(version), limits
		if err := p.Change(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		changed, before := w.now, len(out.slot)
		w.spend(p, &out, 12*time.Second)
		for _, l := range limits {
			if most := mostBefore(out.slot, changed+100_000, l.Window.Microseconds()); most > l.N {
				t.Errorf("%d calls within %s of a call under %v", most, l, limits)
			}
		}
		if len(out.slot)-before < 30 {
			t.Errorf("%d calls in 12 s of %v", len(out.slot)-before, limits)
		}
	}
	w.expect(w.reserve(behind, wish{want: 1, cost: 1}), stateStale, 0)
}

func (w *world) spend(p *Pacer, out *ran, d time.Duration) {
	for end := w.now + d.Microseconds(); w.now < end; {
		g := w.reserve(p, wish{want: 16, cost: 1})
		if g.state == stateReshape {
			if err := p.reshape(context.Background()); err != nil {
				w.t.Fatal(err)
			}
		}
		for _, s := range g.slots {
			out.slot = append(out.slot, s.At)
		}
		w.now += w.pause(g)
	}
}

// mostBefore returns the most slots in a window that ends with a slot since then.
func mostBefore(slots []int64, since, window int64) (most int64) {
	first := 0
	for i, at := range slots {
		for slots[first] <= at-window {
			first++
		}
		if at >= since {
			most = max(most, int64(i-first+1))
		}
	}
	return most
}

func TestClockStepsBack(t *testing.T) {
	w, ctx := scenario(t)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 2, Window: time.Second}}})
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	w.pass(time.Second)
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateOK, 1)
	fresh := w.pacer(PacerConfig{Limits: []job.Limit{{N: 2, Window: time.Second}}})
	w.now -= 3600_000_000
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateReshape, 0)
	if err := fresh.reshape(ctx); err != nil {
		t.Fatal(err)
	}
	w.pass(1100 * time.Millisecond)
	w.expect(w.reserve(fresh, wish{want: 1, cost: 1}), stateOK, 1)
}

// Two processes have different files and ask in turn. However often the lists are rebuilt, earlier calls count as late as they can have been, and no later.
func TestListsMadeAnewAgainAndAgainGetNoLater(t *testing.T) {
	w, ctx := scenario(t)
	before, after := w.pacer(PacerConfig{Limits: []job.Limit{{N: 10, Window: time.Second}}}), w.pacer(PacerConfig{Limits: []job.Limit{{N: 6, Window: 2 * time.Second}}})
	var last int64
	for range 10 {
		for _, s := range w.reserve(before, wish{want: 1, cost: 1}).slots {
			last = s.At
		}
		w.pass(90 * time.Millisecond)
	}
	for range 6 {
		for _, p := range []*Pacer{after, before} {
			if err := p.reshape(ctx); err != nil {
				t.Fatal(err)
			}
			w.pass(20 * time.Millisecond)
		}
	}
	if err := after.reshape(ctx); err != nil {
		t.Fatal(err)
	}
	for end := w.now + 10_000_000; w.now < end; w.pass(10 * time.Millisecond) {
		if g := w.reserve(after, wish{want: 1, cost: 1}); len(g.slots) > 0 {
			late := g.slots[0].At - last - after.plan.Load().windows[0].ready
			if late > after.plan.Load().tooLate+10_000 { // and asked for so often
				t.Errorf("the next call comes %d µs after the last one's permit is ready: it was late by %d µs at most", late, after.plan.Load().tooLate)
			}
			return
		}
	}
	t.Error("there is no next call")
}

func TestLeaseNames(t *testing.T) {
	w, ctx := scenario(t)
	cfg := hundred()
	cfg.MaxInFlight = 5
	g := w.reserve(w.pacer(cfg), wish{want: 5, cost: 1})
	leases := w.client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: w.keys.Flight(), Start: 0, Stop: -1}).Val()
	for i, s := range g.slots {
		if leases[i] != s.Lease {
			t.Errorf("lease %s of slot %s", leases[i], strconv.Itoa(i))
		}
	}
}

// Every script names its keys, all under the gateway's hash tag: a Redis Cluster refuses anything else.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	addrs := strings.Split(strings.TrimPrefix(testkit.Cluster(t).URL(), "redis-cluster://"), ",")
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
	t.Cleanup(func() { _ = client.Close() })
	for _, gateway := range []string{"stripe", "adyen", "worldline"} {
		p := newTestPacer(t, client, PacerConfig{Gateway: gateway, Limits: []job.Limit{{N: 100, Window: time.Second}, {N: 5000, Window: time.Minute}}, MaxInFlight: 9})
		fill(t, client, p.keys.Pending(), 1)
		s, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Written(s, p.Due(s).Add(10*time.Millisecond))
		p.End(t.Context(), s)
		if s, err = p.Take(t.Context(), 3, ""); err != nil || p.Release(t.Context(), s) != nil {
			t.Fatal(err)
		}
		if _, err := hold(t.Context(), p, time.Millisecond, job.Slot{}); err != nil {
			t.Fatal(err)
		}
		if s, err = p.Take(t.Context(), 1, ""); err != nil || p.Succeeded(t.Context(), s, true) {
			t.Fatal("no call was sent ahead after the hold, or it closed a circuit", err)
		}
		if f, err := p.Failed(t.Context(), job.Circuit{Failures: 1, Max: time.Millisecond}, job.Failure{Job: "j", Why: "HTTP 503"}); err != nil || !f.Opened {
			t.Fatalf("%+v, %v", f, err)
		}
		if s, err = p.Take(t.Context(), 1, ""); err != nil {
			t.Fatal(err)
		}
		if closed := p.Succeeded(t.Context(), s, true); !closed {
			t.Error("the circuit did not close")
		}
		if err := errors.Join(p.Pause(t.Context(), "x"), p.Resume(t.Context()), p.reshape(t.Context())); err != nil {
			t.Fatal(err)
		}
		if now, err := p.Look(t.Context()); err != nil || now != (Standing{}) {
			t.Errorf("look says %+v, %v", now, err)
		}
	}
}
