package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// redisClock is a clock that is not the world's: it is set, and it goes fast or slow.
type redisClock struct {
	ahead int64 // µs
	ppm   int64 // by how much it goes too fast
	since int64 // µs of the world
}

func (c *redisClock) at(now int64) int64 { return now + c.ahead + (now-c.since)*c.ppm/1_000_000 }

// set moves the clock by leap µs, and makes it go too fast by ppm from now on.
func (c *redisClock) set(now, leap, ppm int64) {
	*c = redisClock{ahead: c.at(now) - now + leap, ppm: ppm, since: now}
}

// caller is one process. It asks for slots, and writes each call when it is due, as worker and gateway do.
type caller struct {
	p       *Pacer
	hand    []job.Slot
	asks    int64 // when it asks again
	stalled int64 // it stands still until then
	cut     int64 // until then it does not reach Redis
	late    []lateCall
	back    []job.Slot // given back, and Redis has not heard of it
}

// story is a run of several callers with a Redis that has a clock of its own.
type story struct {
	w       *world
	clock   redisClock
	callers []*caller
	arrived []int64
	back    int   // calls given back uncalled
	nap     int64 // µs after which a caller asks again at the latest; 0: 50 ms
}

func newStory(t *testing.T, cfg PacerConfig, callers int) *story {
	t.Helper()
	s := &story{w: newWorld(t, testkit.Client(t), 7)}
	s.clock.since = s.w.now
	for range callers {
		s.join(cfg)
	}
	return s
}

// join adds a process.
func (s *story) join(cfg PacerConfig) *caller {
	c := &caller{p: s.w.pacer(cfg), asks: s.w.now}
	c.p.plan.Load().cfg.NowMicros = func() int64 { return s.clock.at(s.w.now) }
	c.p.client = noRetry{way{c.p.client, func() bool { return s.w.now >= c.cut }}}
	c.p.done = true // what runs beside the callers runs at once: they share the world's time
	s.callers = append(s.callers, c)
	return c
}

// pass lets the callers work for a time.
func (s *story) pass(d time.Duration) {
	for end := s.w.now + d.Microseconds(); s.w.now < end; s.w.now += 500 {
		for _, c := range s.callers {
			if s.w.now >= c.stalled {
				s.write(c)
			}
			if s.w.now >= c.stalled && s.w.now >= c.cut {
				s.speak(c)
			}
		}
	}
}

// write makes the calls that are due. In a process they are made side by side. Here, each would wait for the announcements of all others.
func (s *story) write(c *caller) {
	defer func(line int64) { s.w.line = line }(s.w.line)
	s.w.line = 0
	c.hand = slices.DeleteFunc(c.hand, func(slot job.Slot) bool {
		if c.p.Due(slot).After(s.w.Now()) {
			return false
		}
		if c.p.TooLate(slot, s.w.Now()) {
			c.back = append(c.back, slot)
			s.back++
			return true
		}
		s.arrived = append(s.arrived, s.w.now)
		wrote := c.p.bounds.notAfter(c.p.local(s.w.Now()))
		if call := c.p.moved(c.p.plan.Load(), slot, wrote); call.count > call.edge || call.edge-call.count > c.p.plan.Load().epsilon {
			c.late = append(c.late, call)
		}
		return true
	})
}

// speak does what needs Redis.
func (s *story) speak(c *caller) {
	if len(c.late) > 0 {
		c.p.reportLate(c.late)
		c.late = nil
	}
	if len(c.back) > 0 {
		if err := c.p.Release(context.Background(), c.back...); err != nil {
			s.w.t.Fatal(err)
		}
		c.back = nil
	}
	if s.w.now < c.asks || len(c.hand) > 0 && s.w.now < c.asks+50_000 {
		return
	}
	g := s.w.reserve(c.p, wish{want: 8, cost: 1, lead: 3000})
	if g.state == stateReshape {
		if err := c.p.reshape(context.Background()); err != nil {
			s.w.t.Fatal(err)
		}
	}
	c.hand = append(c.hand, g.slots...)
	c.asks = s.w.now + max(min(g.hint.Microseconds(), cmp.Or(s.nap, 50_000)), 1000)
}

// fullest returns the most calls in any window of each limit, as the gateway sees them.
func (s *story) fullest(limits []job.Limit) (most []int64) {
	for _, l := range limits {
		most = append(most, mostInWindow(s.arrived, nil, l.Window.Microseconds()))
	}
	return most
}

// keeps fails the test if a window holds more than its limit.
func (s *story) keeps(limits []job.Limit) {
	s.w.t.Helper()
	for i, most := range s.fullest(limits) {
		if most > limits[i].N {
			s.w.t.Errorf("%d calls in a window of %s", most, limits[i])
		}
	}
}

// between returns how many calls there were from one moment to another.
func (s *story) between(from, to int64) (n int64) {
	for _, at := range s.arrived {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// Redis's clock is set back or ahead, by little or much, again and again. No call goes at a slot of the time before, and five
// seconds later the rate is what it was.
func TestNoCallGoesAtASlotOfAnotherClock(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, leap := range map[string]time.Duration{"1.5 s back": -1500 * time.Millisecond, "4 s back": -4 * time.Second, "an hour back": -time.Hour,
		"20 ms ahead": 20 * time.Millisecond, "4 s ahead": 4 * time.Second, "an hour ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := []job.Limit{{N: 100, Window: time.Second}}
			s := newStory(t, PacerConfig{Limits: limits, Jitter: 5 * time.Millisecond}, 2)
			s.w.line = 20_000
			s.pass(3 * time.Second)
			for range 3 {
				s.pass(time.Duration(s.w.rng.Int64N(200_000)) * time.Microsecond)
				s.clock.set(s.w.now, leap.Microseconds(), 0)
				s.pass(5 * time.Second)
				from := s.w.now
				s.pass(2 * time.Second)
				if n := s.between(from, s.w.now); n < 2*80 { // the line is slow in this story: without a leap it is 2*90
					t.Errorf("%d calls in the two seconds that begin five after it", n)
				}
			}
			s.keeps(limits)
			t.Logf("%d calls, fullest windows %v, %d given back", len(s.arrived), s.fullest(limits), s.back)
		})
	}
}

// A process stands still, and its way to Redis is cut meanwhile. It can't report how late its calls are, and another process gets
// their permits. So late calls are given back.
func TestACallThatCannotBeReportedIsNotMadeLate(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for _, line := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(line.String(), func(t *testing.T) {
			t.Parallel()
			limits := []job.Limit{{N: 100, Window: time.Second}}
			s := newStory(t, PacerConfig{Limits: limits, Jitter: 5 * time.Millisecond}, 2)
			s.w.line = line.Microseconds()
			for range 8 {
				s.pass(1500*time.Millisecond + time.Duration(s.w.rng.Int64N(100_000))*time.Microsecond)
				stalls := 110_000 + s.w.rng.Int64N(130_000)
				a := s.callers[0]
				a.stalled, a.cut = s.w.now+stalls, s.w.now+1_500_000
				s.pass(1500 * time.Millisecond)
			}
			s.keeps(limits)
			if n := len(s.arrived); n < 100*20*3/4 {
				t.Errorf("%d calls in some 24 s", n)
			}
			t.Logf("%d calls, fullest windows %v, %d given back", len(s.arrived), s.fullest(limits), s.back)
		})
	}
}

// A late call goes out only if Redis hears of it before. Until it is written, Redis counts it as late as it may be.
func TestALateCallGoesOutWhereRedisHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	there := p.client
	for _, tc := range []struct {
		after      time.Duration
		cut, there bool
	}{
		{0, false, false},
		{time.Millisecond, false, false},
		{4 * time.Millisecond, true, false},
		{240 * time.Millisecond, true, false},
		{260 * time.Millisecond, true, true},
	} {
		s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
		w.now = p.Due(s).Add(tc.after).UnixMicro()
		p.client = noRetry{way{there, func() bool { return false }}}
		cut := p.TooLate(s, w.Now())
		p.client = there
		if at := p.TooLate(s, w.Now()); cut != tc.cut || at != tc.there {
			t.Errorf("%v after its slot: too late is %v where Redis does not answer, %v where it does", tc.after, cut, at)
		}
		counted := w.client.LRange(t.Context(), w.keys.PaceWindow(1), -2, -2).Val()[0]
		if late := tc.cut && !tc.there; late != (counted >= fmt.Sprint(w.now)) {
			t.Errorf("%v after its slot at %d, now is %d: Redis counts it at %s", tc.after, s.At, w.now, counted)
		}
		if err := p.Release(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n := w.client.LLen(t.Context(), w.keys.PaceWindow(1)).Val(); n != 0 || len(p.late.edges) != 0 {
			t.Errorf("%v after its slot: %d values are left of what was given back, and %d announced", tc.after, n, len(p.late.edges))
		}
		w.pass(10 * time.Second)
	}
}

// However long an answer takes, and however often a call asks, the call goes out no later than Redis counts it.
func TestALateCallIsNoLaterThanItIsCounted(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string][]time.Duration{
		"once":                           {0},
		"the first answer is slow":       {30 * time.Millisecond, 0},
		"two answers are slow":           {30 * time.Millisecond, 45 * time.Millisecond, 0},
		"each is slow":                   {30 * time.Millisecond},
		"each is too slow":               {270 * time.Millisecond},
		"the first is as slow as can be": {49 * time.Millisecond, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.Client(t), 7)
			p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 1, Window: time.Second}}})
			there := p.client
			s := w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}).slots[0]
			w.now = p.Due(s).Add(5 * time.Millisecond).UnixMicro()
			for ask := range 2 { // as on another connection, when the first was dead
				at, n := append([]time.Duration{}, takes...), 0
				p.client = noRetry{way{there, func() bool {
					w.now += at[min(n, len(at)-1)].Microseconds()
					n++
					return true
				}}}
				cut := p.TooLate(s, w.Now())
				edge, err := strconv.ParseInt(w.client.LRange(t.Context(), w.keys.PaceWindow(1), 0, 0).Val()[0], 10, 64)
				if err != nil || !cut && w.now > edge+p.plan.Load().epsilon {
					t.Errorf("asked %d times: it goes out %d µs after what Redis counts, %v", ask+1, w.now-edge, err)
				}
				if cut != (name == "each is too slow") {
					t.Errorf("asked %d times: too late is %v", ask+1, cut)
				}
				w.pass(60 * time.Millisecond)
			}
		})
	}
}

// way is a way to Redis that is open or cut.
type way struct {
	redis.UniversalClient
	open func() bool
}

var errCut = errors.New("the way is cut")

func (y way) Process(ctx context.Context, cmd redis.Cmder) error {
	if !y.open() {
		cmd.SetErr(errCut)
		return errCut
	}
	return y.UniversalClient.Process(ctx, cmd)
}

// Redis's clock is slewed. Calls go on, no window by the gateway's clock is above the limit, even if a process begins in the middle of the slew, and
// after it the rate is what it was.
func TestASlewedClockStopsNoCallAndBreaksNoLimit(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		ppm    int64
		limits []job.Limit
		line   int64
	}{
		"1 % fast":                  {10_000, []job.Limit{{N: 400, Window: time.Second}}, 0},
		"0.5 % fast":                {5_000, []job.Limit{{N: 100, Window: time.Second}}, 300},
		"8.3 % fast":                {83_333, []job.Limit{{N: 100, Window: time.Second}}, 300},
		"8.3 % fast, far away":      {83_333, []job.Limit{{N: 100, Window: time.Second}}, 20_000},
		"8.3 % fast, longer window": {83_333, []job.Limit{{N: 100, Window: time.Second}, {N: 400, Window: 5 * time.Second}}, 300},
		"8.3 % slow":                {-83_333, []job.Limit{{N: 100, Window: time.Second}}, 300},
		"0.05 % fast":               {500, []job.Limit{{N: 100, Window: time.Second}}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := PacerConfig{Limits: tc.limits, Jitter: 5 * time.Millisecond}
			s := newStory(t, cfg, 2)
			s.w.line = tc.line
			s.pass(3 * time.Second)
			rate := s.between(s.w.now-2_000_000, s.w.now)
			s.clock.set(s.w.now, 0, tc.ppm)
			from := s.w.now
			s.pass(3 * time.Second)
			s.join(cfg)
			s.pass(3 * time.Second)
			slewed := s.between(from, s.w.now)
			if slewed < rate*3*3/4 {
				t.Errorf("%d calls in the 6 s of the slew, before it %d in 2 s", slewed, rate)
			}
			s.clock.set(s.w.now, 0, 0)
			s.pass(5 * time.Second)
			from = s.w.now
			s.pass(2 * time.Second)
			after := s.between(from, s.w.now)
			if len(tc.limits) == 1 && after < rate*95/100 {
				t.Errorf("%d calls in the two seconds that begin five after it, before it %d", after, rate)
			}
			s.keeps(tc.limits)
			t.Logf("%d calls, fullest windows %v; in 2 s before it %d, in 6 s of it %d, in 2 s after it %d; %d given back", len(s.arrived),
				s.fullest(tc.limits), rate, slewed, after, s.back)
		})
	}
}

// Redis's clock is slewed from the moment at which the only process dies. No process watches it until another one begins, within a window of the calls
// of the first.
func TestAProcessBeginsInASlewThatNobodyWatched(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	limits := []job.Limit{{N: 8, Window: time.Second}}
	cfg := PacerConfig{Limits: limits, Burst: 8, Jitter: 5 * time.Millisecond}
	for _, ppm := range []int64{10_000, 8000} {
		for _, line := range []int64{0, 300} {
			for _, unwatched := range []time.Duration{300, 600, 750, 900} {
				s := newStory(t, cfg, 1)
				s.w.line = line
				s.pass(1015 * time.Millisecond) // it has made its second eight calls
				s.callers[0].stalled = math.MaxInt64
				s.clock.set(s.w.now, 0, ppm)
				s.pass(unwatched * time.Millisecond)
				s.join(cfg)
				s.pass(2 * time.Second)
				s.keeps(limits)
			}
		}
	}
}

// One process has seen the whole slew, another began in the middle of it, and a third one later. Then Redis's clock is slewed again. None of them has seen what
// the others could not report yet, and all together keep a window longer than any one of them would.
func TestWhatProcessesSawOfASlewAddsUp(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	limits := []job.Limit{{N: 4, Window: time.Second}, {N: 24, Window: 30 * time.Second}}
	cfg := PacerConfig{Limits: limits, Jitter: 5 * time.Millisecond}
	for name, goes := range map[string]int{"all live": 0, "the first goes": 1, "one goes after the other": 2, "one of two goes": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, line := range []int64{300, 20_000} {
				for begins := range testkit.Often(4, 20) {
					s := newStory(t, cfg, 1)
					s.w.line, s.nap = line, 1_000_000
					if name == "one of two goes" {
						s.join(cfg)
					}
					s.pass(5 * time.Second)
					s.clock.set(s.w.now, 0, 80_000)
					s.pass(6*time.Second + time.Duration(begins)*130*time.Millisecond)
					s.join(cfg)
					s.pass(2 * time.Second)
					if goes > 0 {
						s.callers = s.callers[1:]
					}
					s.pass(5 * time.Second)
					if goes > 1 {
						s.join(cfg)
						s.pass(2500 * time.Millisecond) // what the second one said is as old as two of its questions
						s.callers = s.callers[1:]
					}
					s.pass(time.Second)
					s.clock.set(s.w.now, 0, 0)
					s.pass(2 * time.Second)
					s.clock.set(s.w.now, 0, 80_000)
					s.pass(25 * time.Second)
					s.keeps(limits)
					if n := s.between(0, epoch+34_000_000); n < 24+8 {
						t.Errorf("%d calls in 34 s: too little", n)
					}
				}
			}
		})
	}
}

// The machine is suspended between the opening of a call and its write. The call is not made. Redis's clock shows what
// was to be expected, so no later call waits.
func TestASuspendedMachineMakesNoCallAtAnOldSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.Client(t), 7)
	p := w.pacer(PacerConfig{Limits: []job.Limit{{N: 100, Window: time.Second}}})
	slept := time.Duration(0)
	p.asleep = func() time.Duration { return p.sleptFirst + slept }
	p.plan.Load().cfg.NowMicros = func() int64 { return w.now + slept.Microseconds() }
	s := w.reserve(p, wish{want: 2, cost: 1, lead: 20_000}).slots
	w.pass(5 * time.Millisecond)
	slept = time.Minute
	if !p.TooLate(s[0], w.Now()) {
		t.Error("after a minute of sleep a call goes out at its slot of before it")
	}
	if due := p.Due(s[0]); due.After(w.Now()) {
		t.Errorf("its slot is %v ahead", due.Sub(w.Now()))
	}
	w.expect(w.reserve(p, wish{want: 1, cost: 1, lead: 20_000}), stateOK, 1)
	if s[0].Era != p.bounds.era {
		t.Error("it seems that Redis's clock was set")
	}
}
