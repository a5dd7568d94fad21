package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// roomy has room for all jobs of a story at once.
const roomy = "    admission: {limits: [1000000/s], burst: 1000000}\n"

var perSecond200 = []provider.Limit{{N: 200, Window: time.Second}}

// newWorldAt is a world whose programs use another Redis; top stands above the gateways.
func newWorldAt(t *testing.T, redis, top string) *world {
	t.Helper()
	w := newWorld(t, provider.Config{Limits: perSecond200, Service: 20 * time.Millisecond}, "    leak: {limits: [200/s], jitter: 10ms}\n"+roomy)
	w.config = w.file("dispatcher.yaml", strings.Replace(read(t, w.config), "redis: "+w.redis.URL()+"\n", "redis: "+redis+"\n"+top, 1))
	w.redis.Stop()
	return w
}

// stream is an enqueue that reads its billing file little by little.
type stream struct {
	w        *world
	prefix   string // of the ids
	n        int
	cmd      *exec.Cmd
	out, err bytes.Buffer
	written  chan error
}

// stream starts an enqueue of n jobs, which come in during a time.
func (w *world) stream(prefix string, n int, over time.Duration) *stream {
	w.t.Helper()
	s, in := w.piped(prefix)
	s.n = n
	go func() { s.written <- s.write(in, over) }()
	return s
}

// supply starts an enqueue whose jobs don't run out before stop, however long the story takes.
func (w *world) supply(prefix string) (s *stream, stop func()) {
	w.t.Helper()
	s, in := w.piped(prefix)
	enough := make(chan struct{})
	go func() { s.written <- s.keepUp(in, enough) }()
	return s, sync.OnceFunc(func() { close(enough) })
}

// piped starts an enqueue that reads a pipe.
func (w *world) piped(prefix string) (*stream, io.WriteCloser) {
	w.t.Helper()
	s := &stream{w: w, prefix: prefix, cmd: exec.Command(filepath.Join(bin, "enqueue"), "-g", "stripe", "-f", "-", "-o", "json"), written: make(chan error, 1)}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = w.env(false), w.dir, &s.out, &s.err
	in, err := s.cmd.StdinPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s, in
}

// chunk is how many jobs enqueue takes in at once.
const chunk = 500

// keepUp sends a chunk whenever fewer jobs than one chunk are left, until enough is closed.
func (s *stream) keepUp(in io.WriteCloser, enough <-chan struct{}) error {
	for {
		select {
		case <-enough:
			return in.Close()
		case <-time.After(10 * time.Millisecond):
		}
		if s.n-s.w.provider.Stats().Charged >= chunk {
			continue
		}
		for range chunk {
			if err := s.line(in, s.n); err != nil {
				return err
			}
			s.n++
		}
	}
}

func (s *stream) line(in io.Writer, i int) error {
	_, err := fmt.Fprintf(in, `{"id":"%s-%05d","payload":{"amount":%d,"currency":"EUR"}}`+"\n", s.prefix, i, 100+i)
	return err
}

// write sends the jobs, a chunk at a time.
func (s *stream) write(in io.WriteCloser, over time.Duration) error {
	tick := time.NewTicker(max(over*chunk/time.Duration(s.n), time.Millisecond))
	defer tick.Stop()
	for i := range s.n {
		if i%chunk == 0 {
			<-tick.C
		}
		if err := s.line(in, i); err != nil {
			return err
		}
	}
	return in.Close()
}

// exact waits for the end of enqueue, whose report must say of every job what became of it.
func (s *stream) exact() {
	t := s.w.t
	t.Helper()
	if err := <-s.written; err != nil {
		t.Errorf("enqueue reads no more: %v", err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("enqueue: %v\n%s%s", err, s.out.String(), s.err.String())
	}
	if r := decode[report](t, s.out.String()); r != (report{Read: s.n, Enqueued: s.n}) {
		t.Errorf("report %+v, want %d read and enqueued", r, s.n)
	}
}

// once checks that n jobs are done, each with one call, within the limit, and that the books are in order.
func (w *world) once(within time.Duration, n int) provider.Stats {
	w.t.Helper()
	if s := w.settled(within); s.Done != n || len(s.Parked) != 0 {
		w.t.Errorf("done %d of %d, parked %v:\n%s", s.Done, n, s.Parked, w.do("dispatcher", "dlq", "list", "--payload", "-o", "json").out)
	}
	seen := w.strict()
	if seen.Charged != n || seen.Calls != n {
		w.t.Errorf("%d calls and %d charges for %d jobs", seen.Calls, seen.Charged, n)
	}
	for _, r := range w.runs {
		r.stop()
	}
	w.audited()
	return seen
}

// heard says whether a dispatcher has logged this answer of Redis: if not, the story did not happen.
func (w *world) heard(answer string) bool {
	return slices.ContainsFunc(w.runs, func(r *run) bool { return strings.Contains(r.text(), answer) })
}

// calls waits until so many calls were made.
func (w *world) calls(n int) {
	w.t.Helper()
	testkit.Eventually(w.t, 60*time.Second, fmt.Sprint(n, " calls"), func() bool { return w.provider.Stats().Calls >= n })
}

// goOn waits for the next call, and returns how long after a moment that was.
func (w *world) goOn(after time.Time) time.Duration {
	w.t.Helper()
	w.calls(w.provider.Stats().Calls + 1)
	return time.Since(after).Round(10 * time.Millisecond)
}

// Redis stands still while calls are under way. No calls are made meanwhile, and the outcomes of those calls are recorded when Redis continues,
// however long that takes.
func TestRedisStallsWhileCallsRun(t *testing.T) {
	t.Parallel()
	stall := 6 * time.Second
	if *soak > 0 {
		stall = 45 * time.Second
	}
	redis := testkit.Server(t, "--appendonly", "yes")
	w := newWorldAt(t, redis.URL(), "")
	const n = 500
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("f", n), "-q")
	w.dispatcher()
	w.dispatcher()
	w.calls(100)
	redis.Pause()
	from := time.Now()
	w.until(from.Add(stall))
	until := time.Now()
	redis.Continue()
	during := w.between(from.Add(time.Second), until)
	if during > 0 {
		t.Errorf("%d calls while Redis stood still", during)
	}
	after := w.goOn(until)
	w.once(60*time.Second, n)
	t.Logf("stalled for %s, calls went on after %s", stall, after)
}

// Redis is killed twice while jobs come in and are called: what it has answered is on its disk.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	rounds, delay := 2, "60"
	if *soak > 0 {
		rounds, delay = 12, "5"
	}
	redis := testkit.Server(t, "--appendonly", "yes", "--appendfsync", "always", "--key-load-delay", delay, "--loading-process-events-interval-bytes", "1024")
	w := newWorldAt(t, redis.URL(), "")
	w.dispatcher()
	w.dispatcher()
	s, stop := w.supply("inv")
	t.Cleanup(stop)
	var away []time.Duration
	for len(away) < rounds || !w.heard("LOADING") && len(away) < rounds+10 { // on a busy machine it may happen that no dispatcher asks while Redis loads
		w.calls(w.provider.Stats().Calls + 300)
		redis.Kill()
		killed := time.Now()
		redis.Restart()
		away = append(away, w.goOn(killed))
	}
	stop()
	s.exact()
	w.once(2*time.Minute, s.n)
	if !w.heard("LOADING") {
		t.Error("no dispatcher has met a Redis that loads its data")
	}
	t.Logf("%d jobs, Redis killed %d times, calls went on after %v", s.n, len(away), away)
}

// trouble is one way in which Redis says "not now".
type trouble struct {
	name  string
	says  string // what the dispatchers hear of it
	reads bool   // it can be looked at meanwhile
	lasts time.Duration
	begin func() error
	end   func() error
}

// endless runs a script that never ends. end kills it and waits until it is over: on a busy machine it may not have begun yet, and Redis then knows of no script to kill.
func endless(t *testing.T, at string) (begin, end func() error) {
	c := redis.NewClient(&redis.Options{Addr: at, Protocol: 2, DisableIdentity: true, ReadTimeout: -1, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	over := make(chan struct{})
	begin = func() error {
		go func() {
			defer close(over)
			_ = c.Eval(t.Context(), "while true do end", nil).Err()
		}()
		return nil
	}
	end = func() error {
		testkit.Eventually(t, time.Minute, "the endless script to be killed", func() bool {
			_ = c.ScriptKill(t.Context()).Err()
			select {
			case <-over:
				return true
			default:
				return false
			}
		})
		return nil
	}
	return begin, end
}

// troubles are those that one server can have by itself; for one of them it needs a standby.
func troubles(t *testing.T, server, standby *testkit.RedisServer) []trouble {
	c, ctx := server.Client(), t.Context()
	set := func(name, value string) func() error {
		return func() error { return c.ConfigSet(ctx, name, value).Err() }
	}
	at, moment := strings.Split(standby.Addr(), ":"), 700*time.Millisecond
	script, kill := endless(t, server.Addr())
	return []trouble{
		{"its memory is full (OOM)", "OOM ", true, moment, set("maxmemory", "1"), set("maxmemory", "0")},
		{"too few replicas (NOREPLICAS)", "NOREPLICAS ", true, moment, set("min-replicas-to-write", "5"), set("min-replicas-to-write", "0")},
		{"a time-out before the write was done (SIGSTOP)", "i/o timeout", false, 4 * time.Second, func() error { server.Pause(); return nil }, func() error { server.Continue(); return nil }},
		{"a script that never ends (BUSY)", "BUSY ", false, moment, script, kill},
		{"it has forgotten the scripts (NOSCRIPT)", "", true, moment, func() error { return c.ScriptFlush(ctx).Err() }, func() error { return c.ScriptFlush(ctx).Err() }},
		{"every connection is closed", "", true, moment, func() error { return c.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err() },
			func() error { return c.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err() }},
		{"another is the primary (READONLY)", "READONLY ", true, moment, func() error {
			if err := standby.Client().ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
				return err
			}
			return c.ReplicaOf(ctx, at[0], at[1]).Err()
		}, func() error { return c.ReplicaOf(ctx, "NO", "ONE").Err() }},
	}
}

// unlessBusy does something again while Redis answers BUSY: on a busy machine the dispatchers' own scripts may take more than a tenth of a second.
func unlessBusy(t *testing.T, do func() error) (err error) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, "Redis to have run a script", func() bool {
		err = do()
		return err == nil || !strings.HasPrefix(err.Error(), "BUSY ")
	})
	return err
}

// Redis says "not now" in each of its ways, one after the other, while jobs come in and are called: none of them is an error of a job.
func TestRedisSaysNotNow(t *testing.T) {
	t.Parallel()
	server := testkit.Server(t, "--appendonly", "yes", "--repl-diskless-sync-delay", "0", "--lua-time-limit", "100")
	// It never gives its data away: that lacks what came in between the two commands that make it the primary.
	standby := testkit.Server(t, "--replicaof", strings.Replace(server.Addr(), ":", " ", 1), "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "3600")
	w := newWorldAt(t, server.URL(), "")
	all := troubles(t, server, standby)
	w.dispatcher()
	w.dispatcher()
	s, stop := w.supply("inv")
	t.Cleanup(stop)
	for i, x := range all {
		w.calls(100 + 50*i)
		if err := unlessBusy(t, x.begin); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		begun := time.Now()
		if x.reads {
			w.status()
		}
		w.until(begun.Add(x.lasts))
		testkit.Eventually(t, 20*time.Second, "a dispatcher to hear "+x.says, func() bool { return w.heard(x.says) })
		if err := unlessBusy(t, x.end); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		t.Logf("%s: calls went on %s after its end", x.name, w.goOn(time.Now()))
	}
	stop()
	s.exact()
	w.once(2*time.Minute, s.n)
}

// A replay that loses Redis stops and says how far it got. The same command replays the rest.
func TestAReplayStopsWithRedisAndGoesOn(t *testing.T) {
	t.Parallel()
	const n = 400
	w := newWorld(t, provider.Config{DeclineEvery: 1}, fast)
	w.dispatcher()
	w.refuse(n)
	w.provider.Set(provider.Config{})
	ended := make(chan result, 1)
	go func() {
		ended <- w.do("dispatcher", "dlq", "replay", "--reason", "refused", "--rate", "50/s", "--yes", "-o", "json")
	}()
	c, parked := w.redis.Client(), redisdb.NewKeys("stripe").Parked("refused")
	testkit.Eventually(t, 30*time.Second, "the replay to begin", func() bool { return c.ZCard(t.Context(), parked).Val() < n-20 })
	w.redis.Kill()
	first := <-ended // before Redis is back: else the replay may not notice that it was away
	w.redis.Restart()
	type outcome struct {
		Replayed int
		Stopped  string
	}
	got := decode[outcome](t, first.out)
	if first.code != 5 || got.Replayed < 20 || got.Stopped == "" || !strings.Contains(first.err, "run the same again") {
		t.Errorf("exit code %d, %+v\n%s", first.code, got, first.err)
	}
	rest := decode[outcome](t, w.ok("dispatcher", "dlq", "replay", "--reason", "refused", "--yes", "-o", "json"))
	if s := w.settled(time.Minute); s.Done != n {
		t.Errorf("done %d of %d, parked %v", s.Done, n, s.Parked)
	}
	if y := w.replaysOf(n); y["1"] != n {
		t.Errorf("so many jobs were replayed so often: %v, want each once", y)
	}
	w.runs[0].stop()
	w.audited("stripe")
	t.Logf("%d replayed before Redis went away, %d after", got.Replayed, rest.Replayed)
}
