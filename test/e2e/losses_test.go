package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// prompt is the time after a trouble within which the limit must be used again.
const prompt = 5 * time.Second

// again waits until the gateway is called at its limit again, so many calls a second. With -soak that means 95 % of it, soon after the end of the trouble. A machine that has
// other things to do misses slots, and is held to half of the limit.
func (w *world) again(t *testing.T, since time.Time, perSecond int) {
	t.Helper()
	share := 50
	if *soak > 0 {
		share = 95
	}
	var from time.Duration
	w.observed(t, "calls at the limit again", func() bool {
		calls, behind := w.provider.Calls(), perSecond*share/100
		for i, c := range calls {
			if at := time.UnixMicro(c.At); !at.Before(since) && i+behind < len(calls) && calls[i+behind].At-c.At <= 1_010_000 {
				from = at.Sub(since)
				return true
			}
		}
		return false
	})
	if *soak > 0 && from > prompt {
		t.Errorf("calls at %d %% of the limit %s after the end of the trouble, promised are %s", share, from, prompt)
	}
	s := w.strict()
	t.Logf("calls at %d %% of the limit from %s after the end of the trouble; fullest windows %v of %v", share, from.Round(10*time.Millisecond), s.MaxInWindow, s.Limits)
}

// offer enqueues n jobs of that name.
func (w *world) offer(name string, n int) {
	w.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%s-%04d\"}\n", name, i)
	}
	w.ok("enqueue", "-g", "stripe", "-f", w.file(name, b.String()), "-q")
}

// tookOver waits until every dispatcher has changed its limits n times.
func (w *world) tookOver(n int) {
	w.t.Helper()
	testkit.Eventually(w.t, time.Minute, "the limits to be taken over", func() bool {
		for _, r := range w.runs {
			if strings.Count(r.text(), "limits changed") < n {
				return false
			}
		}
		return true
	})
}

// Limits that were set live are lost with Redis's data while dispatchers run. The gateway is called again, at the limits of the file.
func TestLimitsSetLiveAndLostStopNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 50, Window: time.Second}}}, "    leak: {limits: [50/s], jitter: 10ms}\n"+roomy)
	w.offer("before", 2000)
	w.dispatcher()
	w.dispatcher()
	for i := range 3 {
		w.ok("dispatcher", "limit", "set", "-g", "stripe", "40/s")
		w.tookOver(i + 1)
	}
	w.calls(w.provider.Stats().Calls + 50)
	if err := w.redis.Client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	w.offer("after", 600)
	w.again(t, time.Now(), 50)
	testkit.Eventually(t, time.Minute, "the log to say so", func() bool { return w.heard("lost the version of the limits") })
	if s := w.status(); len(s.Limits) != 1 || s.Limits[0] != "50/s" || s.Paused {
		t.Errorf("%+v, want the file's limits", s)
	}
}

// A Redis with an append-only file is shut down properly for a while. No limit is charged for calls that could have been made meanwhile.
func TestTheTimeThatRedisIsAwayIsNotCharged(t *testing.T) {
	t.Parallel()
	for name, live := range map[string]bool{"dispatchers live on": true, "dispatchers are stopped too": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 50, Window: time.Second}, {N: 600, Window: 10 * time.Minute}}},
				"    leak: {limits: [50/s, 600/10m], jitter: 10ms}\n"+roomy)
			w.offer("before", 60)
			w.dispatcher()
			w.dispatcher()
			w.settled(time.Minute)
			w.offer("more", 500)
			w.calls(80)
			if !live {
				for _, r := range w.runs {
					r.stop()
				}
			}
			w.redis.Stop()
			w.until(time.Now().Add(12500 * time.Millisecond)) // 600 calls and more at 50/s
			w.redis.Restart()
			back := time.Now()
			if !live {
				w.dispatcher()
				w.dispatcher()
				back = time.Now()
			}
			w.again(t, back, 50)
			testkit.Eventually(t, time.Minute, "the log to say what is charged", func() bool { return w.heard("charged_at_most=") })
		})
	}
}

// A long limit is out of force for a while. When it comes back, it counts what was called before and meanwhile, and no more than that.
func TestALimitThatComesBackCountsWhatWasCalled(t *testing.T) {
	t.Parallel()
	file := func(w *world, from, to string) func() {
		return func() {
			w.file("dispatcher.yaml", strings.ReplaceAll(read(w.t, w.config), "limits: ["+from+"]", "limits: ["+to+"]"))
			for _, r := range w.runs {
				_ = r.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	}
	for name, change := range map[string]func(w *world) (out, back func()){
		"set and reset": func(w *world) (func(), func()) {
			return func() { w.ok("dispatcher", "limit", "set", "-g", "stripe", "10/s") }, func() { w.ok("dispatcher", "limit", "reset", "-g", "stripe") }
		},
		"the file changed twice": func(w *world) (func(), func()) {
			return file(w, "20/s, 100/10m", "10/s"), file(w, "10/s", "20/s, 100/10m")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 20, Window: time.Second}, {N: 100, Window: 10 * time.Minute}}},
				"    leak: {limits: [20/s, 100/10m], jitter: 10ms}\n"+roomy)
			w.dispatcher()
			w.dispatcher()
			w.offer("a", 40)
			w.settled(time.Minute)
			out, back := change(w)
			out()
			w.tookOver(1)
			w.offer("b", 20)
			w.settled(time.Minute)
			back()
			w.tookOver(2)
			since := time.Now()
			w.offer("c", 60)
			w.again(t, since, 20)
			w.shown(t, time.Minute, "the limit to be used up", func() bool {
				return strings.Contains(w.ok("dispatcher", "job", "-g", "stripe", "c-0059"), "the limit 100/10m is used up")
			})
			// A slot that is given back long after it was taken stays counted in a window out of force: of the 20 calls meanwhile, a busy machine may miss some.
			if n := w.provider.Stats().Calls; n < 88 || n > 100 {
				t.Errorf("%d calls, the limit is 100", n)
			}
			w.strict()
		})
	}
}

// Redis has lost the calls of a limit. The whole limit is charged, the commands say so, and an operator who has asked the
// gateway forgives the charge.
func TestAForgivenChargeStopsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 50, Window: time.Second}, {N: 400, Window: 10 * time.Minute}}},
		"    leak: {limits: [50/s, 400/10m], jitter: 10ms}\n"+roomy)
	w.offer("job", 300)
	w.dispatcher()
	w.calls(60)
	w.runs[0].stop()
	if err := w.redis.Client().Del(context.Background(), redisdb.NewKeys("stripe").PaceWindow(2)).Err(); err != nil {
		t.Fatal(err)
	}
	w.dispatcher()
	w.shown(t, time.Minute, "the charge", func() bool {
		return strings.Contains(w.ok("dispatcher", "limit", "show", "-g", "stripe"), "stripe: 400 calls of 400/10m are charged until ")
	})
	w.shown(t, time.Minute, "what the job waits for", func() bool {
		return strings.Contains(w.ok("dispatcher", "job", "job-0299"), "(400 of it are calls that Redis may have lost: dispatcher limit forgive)")
	})
	forgive := []string{"limit", "forgive", "-g", "stripe", "--why", "their console counts 60", "-o", "json"}
	if got := w.ok("dispatcher", forgive...); got != `{"gateway":"stripe","forgiven":[{"limit":"400/10m","units":400}]}`+"\n" {
		t.Errorf("forgiven is %s", got)
	}
	w.emptied(t, time.Minute, 300)
	w.strict()
	if got := w.ok("dispatcher", forgive...); got != `{"gateway":"stripe","forgiven":[]}`+"\n" {
		t.Errorf("forgiven once more is %s", got)
	}
}
