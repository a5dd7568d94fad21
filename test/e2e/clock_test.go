package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// clockWorld is a world whose Redis has a clock of its own and is 10 ms away. Its jobs don't run out before the end of the story.
type clockWorld struct {
	*world
	clock *testkit.Clock
	lines []*testkit.Line // to Redis, of each dispatcher its own
	began time.Time
	usual int // calls in a second before the trouble
	stop  func()
	jobs  *stream
}

func newClockWorld(t *testing.T, limit provider.Limit, dispatchers int) *clockWorld {
	t.Helper()
	limits, allowed := []provider.Limit{limit}, "50ms" // a busy machine's own delays
	if *soak > 0 {
		allowed = jitter.String()
	}
	w := &clockWorld{world: newWorld(t, provider.Config{Limits: limits, Service: 20 * time.Millisecond},
		fmt.Sprintf("    leak: {limits: [%s], jitter: %s}\n", limit, allowed)+roomy)}
	url := w.redis.URL()
	w.redis.Stop()
	w.redis, w.clock = testkit.SkewedServer(t, "--appendonly", "yes")
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(t, w.config), url, w.redis.URL()))
	for range dispatchers {
		w.join(10 * time.Millisecond)
	}
	w.jobs, w.stop = w.supply("job")
	w.observed(t, "calls at half of the rate", func() bool { return w.fullest(0) >= limit.N/2 })
	before := time.Now()
	wait(2 * time.Second)
	w.began = time.Now()
	w.usual = (w.start(w.began) - w.start(before)) / 2
	return w
}

// join starts a dispatcher with a line of its own to Redis. away is the delay of each direction.
func (w *clockWorld) join(away time.Duration) *run {
	w.t.Helper()
	line := testkit.LineTo(w.t, w.redis.Addr())
	line.Delay(away)
	w.lines = append(w.lines, line)
	own := w.file(fmt.Sprintf("dispatcher-%d.yaml", len(w.lines)), strings.ReplaceAll(read(w.t, w.config), w.redis.Addr(), line.Addr()))
	before := w.more
	defer func() { w.more = before }()
	w.more = append(slices.Clone(before), "DISPATCHER_CONFIG="+own)
	return w.dispatcher()
}

// start returns the number of the first call at or after a moment.
func (w *clockWorld) start(from time.Time) int {
	calls := w.provider.Calls()
	at, _ := slices.BinarySearchFunc(calls, from.UnixMicro(), func(c provider.CallLine, at int64) int { return int(c.At - at) })
	return at
}

// fullest returns the most calls within a second, from that number of call on.
func (w *clockWorld) fullest(from int) (most int) {
	calls, first := w.provider.Calls(), from
	for i := from; i < len(calls); i++ {
		for calls[i].At-calls[first].At >= time.Second.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// end waits until the rate is back. Then no window may be above the limit, every job must be called once, and the books must be in order.
func (w *clockWorld) end(what string) {
	w.t.Helper()
	over := time.Now()
	during := w.start(over) - w.start(w.began)
	w.observed(w.t, "the rate of before", func() bool { return w.fullest(w.start(over)) >= max(w.usual*95/100, 1) })
	back := time.Since(over)
	w.stop()
	w.jobs.exact()
	s := w.once(time.Minute, w.jobs.n)
	w.t.Logf("%s: %d calls in %v of it, %d a second before it; a second at 95 %% of that was over %v after it; fullest window %v of %v", what, during,
		over.Sub(w.began).Round(time.Millisecond), w.usual, back.Round(time.Millisecond), s.MaxInWindow, s.Limits)
}

// wait lets a story continue for a time.
func wait(d time.Duration) { <-time.After(d) }

var everySecond100 = provider.Limit{N: 100, Window: time.Second}

// TestRedisClockIsSet sets Redis's clock back and ahead again and again, while dispatchers have jobs in hand.
func TestRedisClockIsSet(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]time.Duration{
		"back":           {-4 * time.Second, -4 * time.Second, -4 * time.Second, -4 * time.Second, -4 * time.Second},
		"back and ahead": {-4 * time.Second, 5 * time.Second, -1500 * time.Millisecond, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClockWorld(t, everySecond100, 2)
			for _, d := range steps {
				w.clock.Step(d)
				wait(1300 * time.Millisecond)
			}
			w.end("a clock that is set")
		})
	}
}

// TestAProcessStallsWhileItsLineIsCut stops one of two dispatchers for a fifth of a second while its own line to Redis is frozen.
func TestAProcessStallsWhileItsLineIsCut(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t, everySecond100, 2)
	for range 4 {
		w.lines[0].Freeze()
		_ = w.runs[0].cmd.Process.Signal(syscall.SIGSTOP)
		wait(200 * time.Millisecond)
		_ = w.runs[0].cmd.Process.Signal(syscall.SIGCONT)
		wait(1300 * time.Millisecond)
		w.lines[0].Thaw()
		wait(500 * time.Millisecond)
	}
	w.end("stalls while the line is cut")
}

// TestRedisClockIsSlewed makes Redis's clock run too fast, and too slow, as chrony does after a machine was paused. A dispatcher starts meanwhile.
func TestRedisClockIsSlewed(t *testing.T) {
	t.Parallel()
	many := provider.Limit{N: 200, Window: time.Second} // 1 % of it are two calls
	if *soak > 0 {
		many.N = 400
	}
	for name, tc := range map[string]struct {
		ppm   int64
		limit provider.Limit
	}{
		"8.3 % fast": {83_333, everySecond100},
		"8.3 % slow": {-83_333, everySecond100},
		"1 % fast":   {10_000, many},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newClockWorld(t, tc.limit, 2)
			w.clock.Slew(tc.ppm)
			wait(1500 * time.Millisecond)
			w.join(0)
			wait(2500 * time.Millisecond)
			during := w.start(time.Now()) - w.start(w.began)
			if during < w.usual {
				t.Errorf("%d calls in the four seconds of the slew, %d a second before it", during, w.usual)
			}
			w.clock.Slew(0)
			w.end("a clock that is slewed")
		})
	}
}
