package bucket

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// phase is how long these limits hold while slots are taken as they come, and how long no slot is asked for after that.
type phase struct {
	limits []job.Limit
	busy   time.Duration
	idle   time.Duration
}

// A window that goes out of force and comes back, or a shorter one in its place, counts the calls made before and in between, and only those.
func TestAWindowThatComesBackCountsWhatWasCalled(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	file := []job.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 3 * time.Minute}}
	slow := []job.Limit{{N: 10, Window: time.Second}}
	for name, c := range map[string]struct {
		phases []phase
		least  int // calls in the last phase
	}{
		"used up":                      {[]phase{{file, 6 * time.Second, time.Minute}, {slow, 2 * time.Second, 0}, {file, 6 * time.Minute, 0}}, 175},
		"half used":                    {[]phase{{file, 2 * time.Second, 0}, {slow, 2 * time.Second, 0}, {file, 5 * time.Second, 0}}, 35},
		"long ago":                     {[]phase{{file, 6 * time.Second, 0}, {slow, time.Second, 4 * time.Minute}, {file, 10 * time.Second, 0}}, 95},
		"in between more than allowed": {[]phase{{file, time.Second, 0}, {slow, 4 * time.Minute, 0}, {file, 4 * time.Minute, 0}}, 95},
		"a shorter one":                {[]phase{{file, 6 * time.Second, 0}, {slow, 2 * time.Second, 0}, {[]job.Limit{{N: 20, Window: time.Second}, {N: 60, Window: 2 * time.Minute}}, 3 * time.Minute, 0}}, 55},
		"out twice": {[]phase{{file, 6 * time.Second, 0}, {slow, 2 * time.Second, 0}, {[]job.Limit{{N: 5, Window: time.Second}}, 2 * time.Second, time.Minute}, {file, time.Second, 0},
			{slow, 2 * time.Second, 0}, {file, 6 * time.Minute, 0}}, 95},
		"in parts": {[]phase{{[]job.Limit{{N: 50, Window: time.Second}, {N: 1100, Window: 2 * time.Minute}}, 23 * time.Second, 0}, {slow, 5 * time.Second, 20 * time.Second},
			{[]job.Limit{{N: 50, Window: time.Second}, {N: 1100, Window: 2 * time.Minute}}, 3 * time.Minute, 0}}, 1050},
		"three of them": {[]phase{{[]job.Limit{{N: 20, Window: time.Second}, {N: 50, Window: 20 * time.Second}, {N: 100, Window: 3 * time.Minute}}, 30 * time.Second, 0}, {slow, time.Second, 0},
			{[]job.Limit{{N: 20, Window: time.Second}, {N: 50, Window: 20 * time.Second}, {N: 100, Window: 3 * time.Minute}}, 4 * time.Minute, 0}}, 95},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t), 3)
			cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: c.phases[0].limits}
			p := w.pacer(cfg)
			var out ran
			var since int64
			for version, ph := range c.phases {
				cfg.Version, cfg.Limits, since = int64(version), ph.limits, w.now
				if err := p.Change(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				w.spend(p, &out, ph.busy)
				w.pass(ph.idle)
			}
			last := 0
			for _, at := range out.slot {
				if at >= since {
					last++
				}
			}
			since += horizonMost.Microseconds() // slots from before it came back
			for _, l := range c.phases[len(c.phases)-1].limits {
				if most := mostBefore(out.slot, since, l.Window.Microseconds()); most > l.N {
					t.Errorf("%d calls within a window of %s that ends after it came back", most, l)
				}
			}
			if last < c.least {
				t.Errorf("%d calls after it came back, want %d at least", last, c.least)
			}
		})
	}
}

// A new limit waits until its past is known, and no longer than it is in force: a limit that was set by mistake and taken back stops nobody.
func TestALimitThatIsTakenBackIsNotWaitedFor(t *testing.T) {
	testkit.OneGoroutine(t)
	w, ctx := scenario(t)
	file := []job.Limit{{N: 50, Window: time.Second}}
	cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: file}
	p := w.pacer(cfg)
	var out ran
	w.spend(p, &out, 5*time.Second)
	change := func(limits ...job.Limit) {
		t.Helper()
		cfg.Version, cfg.Limits = cfg.Version+1, limits
		if err := errors.Join(p.Change(ctx, cfg), p.reshape(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	first := func() time.Duration {
		at, n := w.now, len(out.slot)
		for len(out.slot) == n && w.now < at+2*time.Minute.Microseconds() {
			w.spend(p, &out, 100*time.Millisecond)
		}
		if len(out.slot) == n {
			t.Fatal("no call within 2 minutes")
		}
		return time.Duration(out.slot[n]-at) * time.Microsecond
	}
	change(per(300, time.Minute))
	w.pass(5 * time.Second)
	change(per(900, time.Hour), per(50, time.Second))
	w.pass(5 * time.Second)
	change(file...)
	if wait := first(); wait > time.Second {
		t.Errorf("after both were taken back: the next call after %s", wait)
	}
	change(per(300, time.Minute), per(50, time.Second))
	if wait := first(); wait < 48*time.Second || wait > 50*time.Second {
		t.Errorf("set again after 10 of its 60 s: the next call after %s", wait)
	}
	change(file...)
	if wait := first(); wait > time.Second {
		t.Errorf("when the wait was over: the next call after %s", wait)
	}
	change(per(600, 2*time.Minute), per(50, time.Second))
	if err := w.client.HSet(ctx, w.keys.Pace(), "s", int64(out.slot[len(out.slot)-1]-1000)).Err(); err != nil {
		t.Fatal(err)
	}
	w.expect(w.reserve(p, wish{want: 1, cost: 1}), stateLost, 0)
	change(file...)
	if wait := first(); wait < time.Second {
		t.Errorf("after a loss in that wait: the next call after %s", wait)
	}
}

// A limit whose window begins with the calls of one whose own past is still unknown waits until both are known.
func TestALimitThatFollowsOneWhosePastIsUnknownWaitsForBoth(t *testing.T) {
	testkit.OneGoroutine(t)
	second := per(10, time.Second)
	for name, between := range map[string][]job.Limit{"at once": nil, "taken back in between": {second}} {
		t.Run(name, func(t *testing.T) {
			w, ctx := scenario(t)
			cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: []job.Limit{second}}
			p := w.pacer(cfg)
			var out ran
			change := func(limits ...job.Limit) {
				t.Helper()
				cfg.Version, cfg.Limits = cfg.Version+1, limits
				if err := errors.Join(p.Change(ctx, cfg), p.reshape(ctx)); err != nil {
					t.Fatal(err)
				}
			}
			w.spend(p, &out, 70*time.Second)
			change(second, per(300, 30*time.Second))
			w.pass(time.Second)
			if between != nil {
				change(between...)
			}
			w.pass(time.Second)
			since := w.now
			change(second, per(200, time.Minute))
			w.spend(p, &out, 3*time.Minute)
			if most := mostBefore(out.slot, since+horizonMost.Microseconds(), time.Minute.Microseconds()); most > 200 {
				t.Errorf("%d calls within a minute", most)
			}
			if out.slot[len(out.slot)-1] < since+2*time.Minute.Microseconds() {
				t.Errorf("the last call %d us after it was set", out.slot[len(out.slot)-1]-since)
			}
		})
	}
}

// Only as many windows are remembered as fit, and what is over is forgotten.
func TestWindowsOutOfForceAreFewAndShort(t *testing.T) {
	testkit.OneGoroutine(t)
	w, ctx := scenario(t)
	cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: []job.Limit{{N: 20, Window: time.Second}}}
	p := w.pacer(cfg)
	var out ran
	for i := range 12 {
		cfg.Version++
		cfg.Limits = []job.Limit{{N: 20, Window: time.Second}, {N: 500, Window: time.Duration(i+2) * time.Second}}
		if err := p.Change(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		w.spend(p, &out, time.Second)
	}
	w.spend(p, &out, 2*time.Minute)
	for i := 1; i <= keptMost; i++ {
		n, ttl := w.client.LLen(ctx, w.keys.PaceKept(i)).Val(), w.client.PTTL(ctx, w.keys.PaceKept(i)).Val()
		if n == 0 || n > 100 || ttl <= 0 {
			t.Errorf("list %d of those out of force holds %d numbers, and goes in %s", i, n, ttl)
		}
	}
	if text := fmt.Sprint(w.client.HGet(ctx, w.keys.Pace(), "k").Val()); text != "9000000 10000000 11000000 12000000" {
		t.Errorf("remembered are %q", text)
	}
}

// A short window that is filled from a long one that was out of force waits no longer than its own length, however coarse the parts of the long one are.
func TestAShortWindowOutOfALongOneIsNoLongWait(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, long := range []time.Duration{24 * time.Hour, time.Hour, 720 * time.Hour}[:testkit.Often(1, 3)] {
		t.Run(long.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t), 3)
			var out ran
			cfg := PacerConfig{Gateway: testkit.GatewayOf(w.keys.Pace()), NowMicros: func() int64 { return w.now }, Limits: []job.Limit{{N: 40, Window: time.Second}, {N: 90_000_000, Window: long}}}
			p := w.pacer(cfg)
			w.spend(p, &out, time.Second)
			for i, l := range [][]job.Limit{{per(40, time.Second)}, {per(40, time.Second), per(1800, time.Minute)}} { // more calls in a minute than the last one allows
				cfg.Version, cfg.Limits = cfg.Version+1, l
				if err := p.Change(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				at, n := w.now, len(out.slot)
				for len(out.slot) == n && w.now < at+2*time.Minute.Microseconds() {
					w.spend(p, &out, 100*time.Millisecond)
				}
				if len(out.slot) == n || out.slot[n]-at > (62*time.Second).Microseconds() {
					t.Fatalf("%v: no call within 62 s", l)
				}
				if i == 0 {
					w.spend(p, &out, time.Minute)
				}
			}
		})
	}
}
