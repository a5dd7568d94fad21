package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// fakeGate gives out numbered slots as the test allows, and remembers those that came back.
type fakeGate struct {
	allow chan struct{}
	next  atomic.Int64
	mu    sync.Mutex
	back  []int64
	past  int64 // slots up to this one have passed
}

func newFakeGate() *fakeGate { return &fakeGate{allow: make(chan struct{}, 1000)} }

func (g *fakeGate) Next(ctx context.Context) (int64, error) {
	select {
	case <-g.allow:
		return g.next.Add(1), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (g *fakeGate) Empty(_ context.Context, slot int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = append(g.back, slot)
}

func (g *fakeGate) Release(ctx context.Context, slot int64) { g.Empty(ctx, slot) }

func (g *fakeGate) Passed(slot int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slot <= g.past
}

func (g *fakeGate) letPass(upTo int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past = upTo
}

func (g *fakeGate) returned() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.back)
}

func (g *fakeGate) given() int { return len(g.returned()) }

type rig struct {
	t    *testing.T
	c    redis.UniversalClient
	gw   string
	keys redisdb.Keys
	gate *fakeGate
	srv  *Server[int64]
	mu   sync.Mutex
	got  []Delivery[int64]
	fail atomic.Bool
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, c: testkit.Client(t), gw: testkit.Gateway(t), gate: newFakeGate()}
	r.keys = redisdb.NewKeys(r.gw)
	r.srv = NewServer(r.c, ServerConfig[int64]{Gateway: r.gw, Concurrency: 20, Gate: r.gate, Handle: r.handle,
		Grace: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	return r
}

func (r *rig) handle(_ context.Context, d Delivery[int64]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d)
	if r.fail.Load() {
		return errors.New("not written down")
	}
	return nil
}

func (r *rig) deliveries() []Delivery[int64] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Delivery[int64](nil), r.got...)
}

// put puts tasks into the queue the way accept.lua does.
func (r *rig) put(from, to int) {
	r.t.Helper()
	e := NewEncoder(r.gw)
	for i := from; i <= to; i++ {
		id := job.TaskID(fmt.Sprintf("j%d", i), 1)
		msg, err := e.Encode(id)
		if err != nil {
			r.t.Fatal(err)
		}
		r.c.HSet(context.Background(), r.keys.Task(id), "msg", msg, "state", "pending", "pending_since", 1)
		r.c.LPush(context.Background(), r.keys.Pending(), id)
	}
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.srv.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.srv.Stop(context.Background()) })
}

func (r *rig) allow(n int) {
	for range n {
		r.gate.allow <- struct{}{}
	}
}

func TestATaskIsOutOfReachOfAsynqsOwnDecisions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(1, 1)
	if err := Announce(context.Background(), r.c, r.gw); err != nil {
		t.Fatal(err)
	}
	info, err := asynq.NewInspectorFromRedisClient(r.c).GetTaskInfo(r.gw, "j1~1")
	if err != nil {
		t.Fatal(err)
	}
	if info.MaxRetry < 1_000_000 || info.Timeout != 0 || info.Deadline.Year() != 9999 || info.Retention != 0 {
		t.Errorf("max retry %d, time-out %v, deadline %v, retention %v: asynq may decide over this task", info.MaxRetry, info.Timeout, info.Deadline, info.Retention)
	}
	if len(info.Payload) != 0 || info.State != asynq.TaskStatePending {
		t.Errorf("payload %q, state %v", info.Payload, info.State)
	}
}

func TestNoJobIsPulledWithoutASlot(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(1, 5)
	r.start()
	r.allow(3)
	testkit.Eventually(t, 5*time.Second, "three deliveries", func() bool { return len(r.deliveries()) == 3 })
	if n := r.c.LLen(context.Background(), r.keys.Pending()).Val(); n != 2 {
		t.Errorf("%d jobs are still queued, want 2", n)
	}
	seen := map[int64]bool{}
	for _, d := range r.deliveries() {
		if !d.HasSlot || seen[d.Slot] {
			t.Errorf("job %s came with slot %d (has one: %v), given before: %v", d.JobID, d.Slot, d.HasSlot, seen[d.Slot])
		}
		seen[d.Slot] = true
	}
}

func TestASlotThatFoundNoJobGoesBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.start()
	r.allow(2)
	testkit.Eventually(t, 5*time.Second, "two slots back", func() bool { return r.gate.given() == 2 })
	r.put(1, 1)
	r.allow(1)
	testkit.Eventually(t, 5*time.Second, "the job", func() bool { return len(r.deliveries()) == 1 })
}

func TestAForgottenScriptCostsNoSlot(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	opt, err := redis.ParseURL(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := setup(t)
	own := redis.NewClient(opt)
	t.Cleanup(func() { _ = own.Close() })
	r.c = own
	r.srv = NewServer[int64](own, ServerConfig[int64]{Gateway: r.gw, Concurrency: 5, Gate: r.gate, Handle: r.handle,
		Grace: time.Second, Log: slog.New(slog.DiscardHandler)})
	r.put(1, 3)
	r.start()
	for i := 1; i <= 3; i++ {
		own.ScriptFlush(context.Background())
		r.allow(1)
		testkit.Eventually(t, 5*time.Second, "a delivery", func() bool { return len(r.deliveries()) == i })
	}
	if r.gate.next.Load() != 3 || r.gate.given() != 0 {
		t.Errorf("%d slots taken for 3 jobs, %d came back", r.gate.next.Load(), r.gate.given())
	}
}

func TestWhatWasNotWrittenDownIsNotForgotten(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fail.Store(true)
	r.put(1, 1)
	r.start()
	r.allow(1)
	testkit.Eventually(t, 5*time.Second, "the task in asynq's retry set, for the sweep to take up", func() bool {
		return r.c.ZScore(context.Background(), r.keys.AsynqRetry(), "j1~1").Err() == nil
	})
}

func TestAForeignTaskIsTold(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if _, err := asynq.NewClientFromRedisClient(r.c).Enqueue(asynq.NewTask("email", []byte("hello")), asynq.Queue(r.gw)); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.allow(1)
	testkit.Eventually(t, 5*time.Second, "a delivery", func() bool { return len(r.deliveries()) == 1 })
	if d := r.deliveries()[0]; !d.Foreign || string(d.Payload) != "hello" || d.JobID != "" {
		t.Errorf("got %+v", d)
	}
}

func TestStopLetsTheGateGo(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.put(1, 3)
	if err := r.srv.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { r.srv.Stop(context.Background()); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(5 * time.Second):
		t.Fatal("Stop waits for a gate that has no slot to give")
	}
	if n := r.c.LLen(context.Background(), r.keys.Pending()).Val(); n != 3 {
		t.Errorf("%d of 3 jobs are still queued", n)
	}
}

func TestAnErrorOfRedisDoesNotSpin(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.c.Set(context.Background(), r.keys.Pending(), "not a list", 0)
	r.start()
	r.allow(1000)
	testkit.Eventually(t, 5*time.Second, "an error", func() bool { return r.gate.given() >= 2 })
	if n := r.gate.next.Load(); n > 10 {
		t.Errorf("%d tries at once: an error must make the gate wait", n)
	}
}
