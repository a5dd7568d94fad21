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
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// audited checks that the books are in order, and that asynq's own sets are empty.
func (w *world) audited(gateways ...string) {
	w.t.Helper()
	if r := w.do("dispatcher", "audit"); r.code != 0 {
		w.t.Errorf("dispatcher audit: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	for _, g := range gateways {
		k := redisdb.NewKeys(g)
		for _, set := range []string{k.AsynqRetry(), k.AsynqArchive(), k.AsynqScheduled(), k.AsynqCompleted()} {
			if n := w.redis.Client().ZCard(context.Background(), set).Val(); n != 0 {
				w.t.Errorf("%d tasks in %s", n, set)
			}
		}
	}
}

// One of two dispatchers is killed every 3 s at 200/s. Every job is done, and a job that was called twice had the same key both times.
func TestDispatchersKilledAllTheTime(t *testing.T) {
	t.Parallel()
	length := max(*soak, 10*time.Second)
	w := newWorld(t, provider.Config{Limits: []provider.Limit{{N: 200, Window: time.Second}}, Service: 20 * time.Millisecond},
		"      timeout: 1s\n    leak: {limits: [200/s], jitter: 10ms}\n    admission: {limits: [1000000/s], burst: 1000000}\n")
	n := int(200 * length.Seconds())
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", n), "-q")
	w.dispatcher()
	w.dispatcher()
	begun, kills := time.Now(), 0
	for at := 3 * time.Second; w.provider.Stats().Charged < n && time.Since(begun) < 2*length+time.Minute; at += 3 * time.Second {
		w.until(begun.Add(at))
		if kills++; kills <= int(length/(3*time.Second)) {
			w.runs[len(w.runs)-2].kill()
			w.dispatcher()
		}
		if kills == 2 {
			w.audited() // in the middle of it
		}
	}
	s := w.settled(60 * time.Second)
	if s.Done != n || len(s.Parked) != 0 {
		t.Errorf("done %d of %d, parked %v", s.Done, n, s.Parked)
	}
	seen := w.strict()
	if seen.Charged != n {
		t.Errorf("charged %d of %d", seen.Charged, n)
	}
	for _, c := range w.provider.Calls() {
		if strings.Contains(c.Key, "~") {
			t.Errorf("a call went out with the key %q: only a definite no makes a new one", c.Key)
		}
	}
	for _, r := range w.runs {
		r.stop()
	}
	w.audited("stripe")
	t.Logf("%d jobs in %v, killed %d times: %d calls, %d repeated with the same key, %d answers 409, fullest window %v", n,
		time.Since(begun).Round(100*time.Millisecond), len(w.runs)-2, seen.Calls, seen.Replayed, seen.Conflicts, seen.MaxInWindow)
}

// gatewayOf is a gateway that counts the calls of each job.
type gatewayOf struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	all   int
}

// newGateway starts a gateway that answers as the test says. n is the number of the call among all calls.
func newGateway(t *testing.T, answer func(job string, n int, r *http.Request)) *gatewayOf {
	g := &gatewayOf{calls: map[string]int{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		job := r.URL.Query().Get("job")
		g.mu.Lock()
		g.calls[job]++
		g.all++
		n := g.all
		g.mu.Unlock()
		answer(job, n, r)
	}))
	t.Cleanup(g.Server.CloseClientConnections)
	return g
}

func (g *gatewayOf) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all
}

func (g *gatewayOf) of(job string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[job]
}

// A gateway without idempotency keys hangs, and the dispatcher is killed with ten calls under way. Their jobs are parked for a person, and
// none of them is sent again.
func TestCallsCutOffWithoutAKeyAreParked(t *testing.T) {
	t.Parallel()
	const cut, jobs = 10, 40
	hangs := make(chan struct{}) // until the dispatcher is dead
	g := newGateway(t, func(_ string, _ int, r *http.Request) {
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	})
	w := newWorld(t, provider.Config{}, "")
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(`redis: %s
gateways:
  stripe:
    request: {url: "%s/?job={id}", idempotency_header: "", timeout: 3s}
    leak: {limits: [100/s], max_in_flight: %d}
`, w.redis.URL(), g.URL, cut))
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", jobs), "-q")
	victim := w.dispatcher()
	testkit.Eventually(t, 20*time.Second, "ten calls under way", func() bool { return g.count() >= cut })
	victim.kill()
	killed, hung := time.Now(), g.count() // more than ten if the machine is so slow that some ran into their time-out
	close(hangs)
	w.dispatcher()
	w.audited() // with ten attempts open that nobody works on
	s := w.settled(60 * time.Second)
	took := time.Since(killed)
	unknown := s.Parked["unknown_outcome"]
	if unknown < hung || unknown > hung+1 || s.Done != jobs-int(unknown) || len(s.Parked) != 1 {
		t.Errorf("done %d, parked %v; want the %d calls that were cut off as unknown_outcome (one more if it was written down and not yet sent)", s.Done, s.Parked, hung)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for job, n := range g.calls {
		if n > 1 {
			t.Errorf("job %s was sent %d times", job, n)
		}
	}
	// The last of them was to be judged 3 s + 10 s after its slot.
	if *soak > 0 && took > 28*time.Second {
		t.Errorf("parked %v after the kill, want it within 15 s of the attempts' deadlines", took)
	}
	w.audited("stripe")
	t.Logf("%d of %d parked as unknown_outcome, the last one %v after the kill", unknown, jobs, took.Round(100*time.Millisecond))
}

// A job kills every process that calls for it. With a key it is called until its attempts are used up, without a key once.
func TestAPoisonedJobIsParkedInTheEnd(t *testing.T) {
	t.Parallel()
	shot := make(chan struct{}, 10)
	g := newGateway(t, func(job string, _ int, r *http.Request) {
		if strings.Contains(job, "poison") {
			shot <- struct{}{}
			<-r.Context().Done()
		}
	})
	w := newWorld(t, provider.Config{}, "")
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(`redis: %[1]s
gateways:
  keyed:
    request: {url: "%[2]s/?job=keyed-{id}", timeout: 1s}
    leak: {limits: [100/s]}
    retry: {attempts: 2}
  bare:
    request: {url: "%[2]s/?job=bare-{id}", timeout: 1s, idempotency_header: ""}
    leak: {limits: [100/s]}
`, w.redis.URL(), g.URL))
	file := w.file("f", `{"id":"poison"}`+"\n")
	w.ok("enqueue", "-g", "bare", "-f", file, "-q")
	w.dispatcher()
	for crash := 1; crash <= 3; crash++ { // that of the one without a key, and two of the other
		select {
		case <-shot:
		case <-time.After(2 * time.Minute):
			t.Fatalf("waited in vain for crash %d", crash)
		}
		w.runs[len(w.runs)-1].kill()
		if crash == 1 {
			w.ok("enqueue", "-g", "keyed", "-f", file, "-q")
		}
		w.dispatcher()
	}
	parked := func(gateway, reason string) {
		t.Helper()
		w.shown(t, 30*time.Second, gateway+"'s job to be parked as "+reason, func() bool {
			return strings.Contains(w.ok("dispatcher", "job", "poison", "-g", gateway, "-o", "json"), fmt.Sprintf(`"reason":%q`, reason))
		})
	}
	parked("bare", "unknown_outcome")
	parked("keyed", "exhausted")
	if a, b := g.of("keyed-poison"), g.of("bare-poison"); a != 2 || b != 1 {
		t.Errorf("called %d times with a key and %d times without, want 2 and 1", a, b)
	}
	w.audited("keyed", "bare")
}

// A task is pulled, and nobody works on it, as when the answer to the dequeue is lost. It returns to the queue long before
// asynq would take it back, though the dispatcher itself lives.
func TestAPulledTaskThatNobodyWorksOnComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", 3), "-q")
	c, k, ctx := w.redis.Client(), redisdb.NewKeys("stripe"), context.Background()
	pulled := time.Now()
	task, err := c.RPopLPush(ctx, k.Pending(), k.Active()).Result()
	if err != nil {
		t.Fatal(err)
	}
	c.HSet(ctx, k.Task(task), "state", "active")
	c.ZAdd(ctx, k.Lease(), redis.Z{Score: float64(pulled.Unix() + 30), Member: task})
	w.dispatcher()
	s, calls := w.settled(time.Minute), w.provider.Calls()
	if s.Done != 3 || len(calls) != 3 {
		t.Fatalf("done %d of 3, with %d calls", s.Done, len(calls))
	}
	took := time.UnixMicro(calls[2].At).Sub(pulled)
	if took > 55*time.Second { // it takes 13 s, and longer on a busy machine; asynq itself takes a task back 30 s after its lease, which ends after 30 s
		t.Errorf("the last job was called %v after its task was pulled", took)
	}
	w.audited("stripe")
	t.Logf("back and done %v after it was pulled", took.Round(100*time.Millisecond))
}

// Somebody deletes tasks with a tool of asynq. A running dispatcher notices and queues the jobs again.
func TestDeletedTasksAreQueuedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, provider.Config{}, plain)
	r := w.dispatcher()
	w.ok("dispatcher", "pause", "-g", "stripe", "--why", "the test")
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", 20), "-q")
	_ = r.cmd.Process.Signal(syscall.SIGSTOP) // it would put it right before a slow machine has looked
	defer func() { _ = r.cmd.Process.Signal(syscall.SIGCONT) }()
	c, k, ctx := w.redis.Client(), redisdb.NewKeys("stripe"), context.Background()
	for i := 1; i <= 20; i += 2 {
		task := fmt.Sprintf("inv-%05d~1", i)
		c.LRem(ctx, k.Pending(), 0, task)
		c.Del(ctx, k.Task(task))
	}
	if r := w.do("dispatcher", "audit"); r.code != 1 || strings.Count(r.out, "no task of it") != 10 {
		t.Errorf("audit: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	_ = r.cmd.Process.Signal(syscall.SIGCONT)
	w.ok("dispatcher", "resume", "-g", "stripe")
	w.shown(t, 50*time.Second, "all jobs to be done", func() bool { return w.status().Done == 20 })
	w.audited("stripe")
}
