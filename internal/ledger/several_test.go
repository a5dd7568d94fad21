package ledger_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// crowd holds back what comes first until all others wait behind it, and counts the runs of scripts.
type crowd struct {
	runs atomic.Int64
	gate atomic.Pointer[chan struct{}] // nil: nothing is held back
	held atomic.Int64                  // runs that came to the gate
}

func (h *crowd) see(cmds []redis.Cmder, send func() error) error {
	for _, cmd := range cmds {
		h.note(cmd)
	}
	return send()
}

func (h *crowd) note(cmd redis.Cmder) {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return
	}
	if gate := h.gate.Load(); gate != nil {
		h.held.Add(1)
		<-*gate
	}
	h.runs.Add(1)
}

// waiter is a context that tells when a caller begins to wait for its end.
type waiter struct {
	context.Context
	waits func()
}

func (w waiter) Done() <-chan struct{} {
	w.waits()
	return w.Context.Done()
}

// at runs do n times at once: all but the first wait for those. It returns how many went first: two, or more if the calls come so slowly that a client waits no longer.
func (h *crowd) at(t *testing.T, n int, do func(ctx context.Context, i int)) (first int64) {
	t.Helper()
	h.held.Store(0)
	gate := make(chan struct{})
	h.gate.Store(&gate)
	var wait sync.Map
	var all sync.WaitGroup
	for i := range n {
		ctx := waiter{context.Background(), func() { wait.Store(i, true) }}
		all.Go(func() { do(ctx, i) })
	}
	testkit.Eventually(t, 20*time.Second, "all but the first to wait for their turn", func() bool {
		waits := 0
		wait.Range(func(any, any) bool { waits++; return true })
		first = h.held.Load()
		return int64(waits)+first >= int64(n)
	})
	h.gate.Store(nil)
	close(gate)
	all.Wait()
	return first
}

// contents returns everything in a Redis, except the receipts of offers.
func contents(t *testing.T, c redis.UniversalClient) map[string]string {
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	for _, key := range c.Keys(ctx, "*").Val() {
		if strings.Contains(key, ":receipt:") {
			continue
		}
		var v any
		switch kind := c.Type(ctx, key).Val(); kind {
		case "hash":
			h := c.HGetAll(ctx, key).Val()
			delete(h, "acted") // when a person's act began, on Redis's own clock
			v = h
		case "list":
			v = c.LRange(ctx, key, 0, -1).Val()
		case "zset":
			v = c.ZRangeWithScores(ctx, key, 0, -1).Val()
		default:
			v = c.Get(ctx, key).Val()
		}
		all[key] = fmt.Sprint(v, " expires: ", c.TTL(ctx, key).Val() > 0)
	}
	return all
}

// allSorts has jobs of several batches, one of them cancelled, with and without money, with several costs, and one that has expired.
func allSorts() []job.Job {
	jobs := numbered(1, 60)
	for i := range jobs {
		jobs[i].Batch = []string{"nov", "nov", "dec", "", "off", "sole"}[i%6]
		jobs[i].Payload = []byte(fmt.Sprintf(`{"amount":%d,"currency":"EUR","note":"%s"}`, 100+i, strings.Repeat("x", i*4)))
		if i%7 == 0 {
			jobs[i].Payload = []byte(`{"amount":"much"}`)
		}
		jobs[i].Cost = int64(1 + i%3)
	}
	jobs[8].Expires = time.UnixMicro(1_700_000_000_000_000).Add(time.Millisecond)
	return jobs
}

// scene brings jobs in and pulls all of them. Some are in flight elsewhere or were before.
func scene(b *bench) (ids []string) {
	b.accept("park", allSorts()...)
	b.must(b.books.CancelBatch(b.ctx, "off", "me", "a mistake", 0, noted))
	b.now += 5000
	for b.c.LLen(b.ctx, b.keys.Pending()).Val() > 0 {
		id, _ := b.pull()
		ids = append(ids, id)
	}
	b.open(ids[3], 1, "another")
	b.now += 60_000_000
	b.open(ids[4], 1, "another")
	return ids
}

// Attempts that are opened and done together, in few runs of a script, have the same result as those opened and done one by one: in all of Redis, and in
// each answer.
func TestAttemptsThatShareAScriptComeToTheSame(t *testing.T) {
	t.Parallel()
	for name, brakes := range map[string]job.Brakes{
		"without brakes": {},
		"with brakes": {
			Limits: []job.MoneyLimit{{Most: money(1e6, "EUR"), Window: time.Minute}, {Most: money(1e7, "EUR"), Window: 24 * time.Hour}, {Most: money(1e7, "EUR"), Window: 48 * time.Hour}},
			Single: []job.Money{money(150, "EUR")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shareAScript(t, brakes)
		})
	}
}

func shareAScript(t *testing.T, brakes job.Brakes) {
	alone := setup(t, 1000, func(c *ledger.Config) { c.Money, c.Brakes = eurosOrMore, brakes })
	alone.on(testkit.Server(t).Client())
	hook, with := &crowd{}, *alone
	db, err := redisdb.Open(t.Context(), testkit.Server(t).URL(), redisdb.Options{})
	alone.must(err)
	t.Cleanup(func() { _ = db.Close() })
	with.cfg.NowMicros = func() int64 { return with.now }
	with.on(db.Together())
	with.books = ledger.New(with.c, with.cfg)
	db.Client.AddHook(testkit.Around(hook.see))

	ids := scene(alone)
	if others := scene(&with); !slices.Equal(ids, others) {
		t.Fatalf("pulled %v and %v", ids, others)
	}
	pulled := len(ids)
	ids = append(ids, ids[0], "nobody") // one comes twice, and one is of no job
	n := len(ids)
	told := func(a job.Attempt, o job.Opening, err error) string { return fmt.Sprintf("%+v %s %v", a, o, err) }
	openings := make([]string, n)
	attempts := make([]job.Attempt, n)
	for i := range n {
		a, o, err := alone.books.Open(alone.ctx, ids[i], 1, "me", time.Minute)
		openings[i], attempts[i] = told(a, o, err), a
	}
	hook.runs.Store(0)
	first := hook.at(t, n, func(ctx context.Context, i int) {
		a, o, err := with.books.Open(ctx, ids[i], 1, "me", time.Minute)
		if got := told(a, o, err); got != openings[i] {
			t.Errorf("%s opened with others is %s, by itself %s", ids[i], got, openings[i])
		}
	})
	if runs := hook.runs.Load(); runs > first+6 {
		t.Errorf("%d attempts were opened in %d runs", n, runs)
	}
	same(t, "opened", alone.c, with.c)

	ending := func(i int) job.Ending {
		return job.Ending{Called: true, Status: 200 + i%2, Verdict: job.VerdictDone, At: time.UnixMicro(alone.now), Reference: strings.Repeat("r", i%3)}
	}
	for i := range n {
		alone.must(alone.books.Done(alone.ctx, attempts[i], ending(i%pulled)))
	}
	hook.at(t, n, func(ctx context.Context, i int) {
		if err := with.books.Done(ctx, attempts[i], ending(i%pulled)); err != nil {
			t.Error(err)
		}
	})
	same(t, "done", alone.c, with.c)
	if got := alone.record(ids[0]); got.State != job.Done {
		t.Errorf("%s is %s", ids[0], got.State)
	}
}

func same(t *testing.T, when string, alone, with redis.UniversalClient) {
	t.Helper()
	a, b := contents(t, alone), contents(t, with)
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if a[key] != b[key] {
			t.Errorf("%s, %s is\n%s\none by one, and together\n%s", when, key, a[key], b[key])
		}
	}
	if len(a) != len(b) || len(a) < 60 {
		t.Errorf("%s: %d keys one by one, %d together", when, len(a), len(b))
	}
}
