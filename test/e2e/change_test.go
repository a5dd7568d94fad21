package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// between counts the calls that arrived in [from, to).
func (w *world) between(from, to time.Time) int {
	n := 0
	for _, c := range w.provider.Calls() {
		if at := time.UnixMicro(c.At); !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// fullest returns the most calls in any rolling second that begins at or after from.
func (w *world) fullest(from time.Time) int {
	var at []time.Time
	for _, c := range w.provider.Calls() {
		if t := time.UnixMicro(c.At); !t.Before(from) {
			at = append(at, t)
		}
	}
	most, first := 0, 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func (w *world) until(at time.Time) {
	w.t.Helper()
	testkit.Eventually(w.t, time.Until(at)+time.Second, at.String(), func() bool { return !time.Now().Before(at) })
}

// TestALimitSetLiveHoldsWithinASecond goes 50 → 200 → 50 on two processes.
func TestALimitSetLiveHoldsWithinASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, `    leak: {limits: [50/s], jitter: 10ms}
    admission: {limits: [1000000/s], burst: 1000000}
`)
	const jobs = 900
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	w.dispatcher()
	w.dispatcher()
	start := time.Now()
	testkit.Eventually(t, 20*time.Second, "some calls", func() bool { return w.provider.Stats().Calls > 60 })
	if most := w.fullest(start); most > 50 {
		t.Errorf("at 50/s: %d calls in a second", most)
	}
	w.ok("dispatcher", "limit", "set", "-g", "stripe", "200/s")
	up := time.Now()
	w.until(up.Add(2 * time.Second))
	fast := w.between(up.Add(time.Second), up.Add(2*time.Second))
	if *soak > 0 && fast < 170 {
		t.Errorf("a second after 200/s was set: %d calls in a second", fast)
	}
	testkit.Eventually(t, 20*time.Second, "more calls in a second than 50/s allowed", func() bool { return w.fullest(start) > 55 })
	if most := w.fullest(start); most > 200 {
		t.Errorf("%d calls in a second, never more than 200 were allowed", most)
	}
	w.ok("dispatcher", "limit", "set", "-g", "stripe", "50/s")
	down := time.Now()
	if s := w.settled(40 * time.Second); s.Done != jobs {
		t.Errorf("done %d of %d", s.Done, jobs)
	}
	slow := w.fullest(down.Add(time.Second))
	if slow > 50 {
		t.Errorf("a second after 50/s was set: %d calls in a second", slow)
	}
	t.Logf("a second after 200/s: %d calls in a second; a second after 50/s: %d at most", fast, slow)
}

// TestOneHoldStopsEveryProcess lets a gateway say "429, come again in 4 s" once.
func TestOneHoldStopsEveryProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    admission: {limits: [1000000/s], burst: 1000000}\n")
	var mu sync.Mutex
	var calls []time.Time
	var said time.Time
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, time.Now())
		if len(calls) == 100 {
			said = time.Now()
			rw.Header().Set("Retry-After", "4")
			rw.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(gateway.Close)
	w.config = w.file("dispatcher.yaml", strings.ReplaceAll(read(t, w.config), w.url, gateway.URL))
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", 300), "-q")
	w.dispatcher()
	w.dispatcher()
	if s := w.settled(30 * time.Second); s.Done != 300 {
		t.Errorf("done %d of 300, parked %v", s.Done, s.Parked)
	}
	mu.Lock()
	defer mu.Unlock()
	during, alone := 0, time.Duration(0)
	for i, at := range calls[100:] {
		if at.Sub(said) < 4*time.Second {
			during++
		} else if alone == 0 && i+1 < len(calls[100:]) {
			alone = calls[101+i].Sub(at)
		}
	}
	// Calls under way when the answer came: at 100/s those of the few ms until every process has heard of it.
	if during > 12 {
		t.Errorf("%d calls within the 4 s of the hold", during)
	}
	t.Logf("%d calls after the 429 within its 4 s, the second call after the hold came %v behind the first", during, alone)
}

// TestTheCapOfCallsUnderWay holds ten over three processes, and is whole again after one was killed.
func TestTheCapOfCallsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Service: time.Second}, `      timeout: 2s
    leak: {limits: [100/s], max_in_flight: 10}
    admission: {limits: [1000000/s], burst: 1000000}
`)
	const jobs = 200
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	for range 3 {
		w.dispatcher()
	}
	testkit.Eventually(t, 20*time.Second, "the cap to be reached", func() bool { return w.provider.Stats().Calls > 30 })
	w.runs[0].kill()
	killed := time.Now()
	if s := w.settled(60 * time.Second); s.Done != jobs {
		t.Errorf("done %d of %d, parked %v", s.Done, jobs, s.Parked)
	}
	s := w.provider.Stats()
	if s.MaxInFlight > 10 {
		t.Errorf("%d calls under way at once, the cap is 10", s.MaxInFlight)
	}
	lease := 2*time.Second + 5*time.Second
	whole := w.between(killed.Add(lease), killed.Add(lease+3*time.Second))
	if whole < 20 {
		t.Errorf("after the dead process's leases ran out: %d calls in 3 s, want nearly 30", whole)
	}
	t.Logf("%d under way at most; %d calls in the 3 s after the lease of a killed process", s.MaxInFlight, whole)
}

// TestTheLimitHoldsThroughLoss does what operators and machines do to Redis and to processes, in mid-run.
func TestTheLimitHoldsThroughLoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{Limits: perSecond100, Service: 20 * time.Millisecond}, `      timeout: 2s
    leak: {limits: [100/s], jitter: 10ms}
    admission: {limits: [1000000/s], burst: 1000000}
`)
	opt, err := redis.ParseURL(w.redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	defer c.Close()
	ctx := context.Background()
	offer := func(name string) {
		var b strings.Builder
		for i := range 1200 {
			fmt.Fprintf(&b, "{\"id\":\"%s-%04d\"}\n", name, i)
		}
		w.ok("enqueue", "-g", "stripe", "-f", w.file(name, b.String()), "-q")
	}
	offer("before")
	for range 3 {
		w.dispatcher()
	}
	reach := func(n int) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, fmt.Sprint(n, " calls"), func() bool { return w.provider.Stats().Calls >= n })
	}
	reach(100)
	c.ScriptFlush(ctx)
	reach(200)
	_ = w.runs[1].cmd.Process.Signal(syscall.SIGSTOP)
	w.until(time.Now().Add(300 * time.Millisecond))
	_ = w.runs[1].cmd.Process.Signal(syscall.SIGCONT)
	reach(350)
	w.runs[0].kill()
	reach(500)
	c.FlushAll(ctx) // the jobs are gone with all the rest; new ones come at once
	offer("after")
	reach(900)
	w.redis.Kill()
	w.redis.Restart()
	reach(1200)
	s := w.strict()
	t.Logf("%d calls, fullest window %v", s.Calls, s.MaxInWindow)
}
