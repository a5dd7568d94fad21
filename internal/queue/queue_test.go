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

// fakePacer grants numbered slots when the test allows, and records those that were returned.
type fakePacer struct {
	allow chan struct{}
	next  atomic.Int64
	mu    sync.Mutex
	back  []int64
	told  int   // times that slots came back
	past  int64 // slots up to this one have passed
}

func newFakePacer() *fakePacer { return &fakePacer{allow: make(chan struct{}, 1000)} }

func (g *fakePacer) Next(ctx context.Context) (job.Slot, error) {
	select {
	case <-g.allow:
		return job.Slot{At: g.next.Add(1)}, nil
	case <-ctx.Done():
		return job.Slot{}, ctx.Err()
	}
}

func (g *fakePacer) AtMost(int) {}

func (g *fakePacer) More(most int) (slots []job.Slot) {
	for len(slots) < most {
		select {
		case <-g.allow:
			slots = append(slots, job.Slot{At: g.next.Add(1)})
		default:
			return slots
		}
	}
	return slots
}

func (g *fakePacer) Empty(_ context.Context, slots ...job.Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range slots {
		g.back = append(g.back, s.At)
	}
	g.told++
}

func (g *fakePacer) Release(ctx context.Context, slots ...job.Slot) error {
	g.Empty(ctx, slots...)
	return nil
}

func (g *fakePacer) Passed(slot job.Slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slot.At <= g.past
}

func (g *fakePacer) letPass(upTo int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past = upTo
}

func (g *fakePacer) returned() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.back)
}

func (g *fakePacer) given() int { return len(g.returned()) }

func (g *fakePacer) times() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
}

type rig struct {
	t     *testing.T
	c     redis.UniversalClient
	gw    string
	keys  redisdb.Keys
	pacer *fakePacer
	srv   *Server
	mu    sync.Mutex
	got   []job.Delivery
	fail  atomic.Bool
}

func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, c: testkit.Client(t), gw: testkit.Gateway(t), pacer: newFakePacer()}
	r.keys = redisdb.NewKeys(r.gw)
	r.srv = NewServer(r.c, ServerConfig{Gateway: r.gw, Concurrency: 20, Pacer: r.pacer, Handle: r.handle,
		Grace: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	return r
}

func (r *rig) handle(_ context.Context, d job.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d)
	if r.fail.Load() {
		return errors.New("not written down")
	}
	return nil
}

func (r *rig) deliveries() []job.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]job.Delivery(nil), r.got...)
}

// put adds tasks to the queue like accept.lua.
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
	r.srv.Start()
	r.t.Cleanup(func() { r.srv.Stop(context.Background()) })
}

func (r *rig) allow(n int) {
	for range n {
		r.pacer.allow <- struct{}{}
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
		if d.Slot.Zero() || seen[d.Slot.At] {
			t.Errorf("job %s came with slot %d, given before: %v", d.JobID, d.Slot.At, seen[d.Slot.At])
		}
		seen[d.Slot.At] = true
	}
}

func TestASlotThatFoundNoJobGoesBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.start()
	r.allow(2)
	testkit.Eventually(t, 5*time.Second, "two slots back", func() bool { return r.pacer.given() == 2 })
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
	r.srv = NewServer(own, ServerConfig{Gateway: r.gw, Concurrency: 5, Pacer: r.pacer, Handle: r.handle,
		Grace: time.Second, Log: slog.New(slog.DiscardHandler)})
	r.put(1, 3)
	r.start()
	for i := 1; i <= 3; i++ {
		own.ScriptFlush(context.Background())
		r.allow(1)
		testkit.Eventually(t, 5*time.Second, "a delivery", func() bool { return len(r.deliveries()) == i })
	}
	if r.pacer.next.Load() != 3 || r.pacer.given() != 0 {
		t.Errorf("%d slots taken for 3 jobs, %d came back", r.pacer.next.Load(), r.pacer.given())
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
	r.srv.cfg.Grace = time.Hour
	r.srv = NewServer(r.c, r.srv.cfg)
	r.put(1, 3)
	r.srv.Start()
	stopped := make(chan struct{})
	go func() { r.srv.Stop(context.Background()); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("Stop waits for a pacer that has no slot to give")
	}
	if n := r.c.LLen(context.Background(), r.keys.Pending()).Val(); n != 3 {
		t.Errorf("%d of 3 jobs are still queued", n)
	}
}

func TestAnErrorOfRedisDoesNotSpin(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.c.Set(context.Background(), r.keys.Pending(), "not a list", 0)
	begun := time.Now()
	r.allow(1000)
	r.start()
	testkit.Eventually(t, 10*time.Second, "errors", func() bool { return r.pacer.given() >= 20+3 }) // the first pull is for as many as can be handled
	if took := time.Since(begun); took < 3*errBackoff {
		t.Errorf("%d tries within %v: an error must make the source wait, and pull one at a time", r.pacer.given(), took)
	}
}

// slowClient delays every script, as if Redis were far away.
type slowClient struct {
	redis.UniversalClient
	delay time.Duration
	most  atomic.Int64
	now   atomic.Int64
}

func (c *slowClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.slowly(func() *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sha, keys, args...) })
}

func (c *slowClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.slowly(func() *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

func (c *slowClient) slowly(run func() *redis.Cmd) *redis.Cmd {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	defer c.now.Add(-1)
	<-time.After(c.delay)
	return run()
}

// far gives a rig a Redis that is far away.
func (r *rig) far(delay time.Duration) *slowClient {
	slow := &slowClient{UniversalClient: r.c, delay: delay}
	r.srv = NewServer(slow, ServerConfig{Gateway: r.gw, Concurrency: 40, Pacer: r.pacer, Handle: r.handle,
		Grace: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	return slow
}

func TestAFarRedisIsAskedForMoreThanOneJobAtOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	slow := r.far(100 * time.Millisecond)
	const jobs = 200
	r.put(1, jobs)
	r.start()
	r.allow(jobs)
	testkit.Eventually(t, time.Minute, "all deliveries", func() bool { return len(r.deliveries()) == jobs })
	if most := slow.most.Load(); most < mostPulls {
		t.Errorf("%d commands under way at most", most)
	}
	seen := map[int64]bool{}
	for _, d := range r.deliveries() {
		if d.Slot.Zero() || seen[d.Slot.At] {
			t.Errorf("job %s came with slot %d, given before: %v", d.JobID, d.Slot.At, seen[d.Slot.At])
		}
		seen[d.Slot.At] = true
	}
}

func TestOneStallIsNoDistance(t *testing.T) {
	t.Parallel()
	c := setup(t).srv.src
	for range 20 {
		c.learn(200 * time.Microsecond)
	}
	for range 5 {
		c.learn(300 * time.Millisecond)
	}
	c.air = 2
	if c.room() {
		t.Errorf("after a stall %d pulls are not enough: a pull is taken to last %v", c.air, c.far)
	}
	for range 30 {
		c.learn(100 * time.Millisecond)
	}
	if c.air = mostPulls - 1; !c.room() {
		t.Errorf("at 100 ms %d pulls are taken to be enough", c.air)
	}
}

func TestWhatWasPulledAndNotTakenGoesBackInOrder(t *testing.T) {
	t.Parallel()
	r := setup(t)
	c := r.srv.src
	c.offer = func() {} // asynq does not come
	r.put(1, 8)
	ctx := context.Background()
	for i := 1; i <= 6; i++ {
		pull := func([]job.Slot) ([]activeTask, error) {
			message, err := dequeue.Run(ctx, r.c, []string{r.keys.Pending(), r.keys.Paused(), r.keys.Active(), r.keys.Lease()}, 1, r.keys.TaskPrefix()).Text()
			return []activeTask{{fmt.Sprintf("j%d~1", i), message}}, err
		}
		c.air++
		c.pullAt(ctx, []job.Slot{{At: int64(i)}}, pull)
	}
	if n := r.c.LLen(ctx, r.keys.Active()).Val(); n != 6 || len(c.jobs) != 6 {
		t.Fatalf("%d pulled, %d on their way to asynq", n, len(c.jobs))
	}
	count := testkit.Trips(r.c)
	r.srv.Halt()
	c.finish(ctx)
	if n := count.Load(); n > 4 { // there is no connection yet, and the script is not known
		t.Errorf("six jobs went back in %d round trips: a stop waits for each", n)
	}
	left := append(r.c.LRange(ctx, r.keys.Pending(), 0, -1).Val(), r.c.LRange(ctx, r.keys.Due(), 0, -1).Val()...)
	if want := []string{"j8~1", "j7~1", "j6~1", "j5~1", "j4~1", "j3~1", "j2~1", "j1~1"}; !slices.Equal(left, want) {
		t.Errorf("the queue is %v, want %v", left, want)
	}
	if n := r.c.LLen(ctx, r.keys.Active()).Val() + r.c.ZCard(ctx, r.keys.Lease()).Val(); n != 0 {
		t.Errorf("%d entries of active and lease are left", n)
	}
	if got := r.c.HMGet(ctx, r.keys.Task("j1~1"), "state", "pending_since").Val(); got[0] != "pending" || got[1] == nil {
		t.Errorf("the task's state is %q, pending since %v", got[0], got[1])
	}
	slots := r.pacer.returned()
	slices.Sort(slots)
	if !slices.Equal(slots, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("slots %v came back", slots)
	}
}

// dequeue is what asynq v0.26.0 does.
var dequeue = redis.NewScript(`
local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
if not id then return nil end
redis.call("HSET", ARGV[2] .. id, "state", "active")
redis.call("HDEL", ARGV[2] .. id, "pending_since")
redis.call("ZADD", KEYS[4], ARGV[1], id)
return redis.call("HGET", ARGV[2] .. id, "msg")`)

// asynq counts a job's lease from the beginning of its dequeue, so an idle dequeue must end early. Otherwise, after half a minute
// without jobs, the next job comes with an expired lease, and looks like that of a dead worker.
func TestAnIdleDequeueEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	if longestWait > 15*time.Second {
		t.Errorf("a dequeue waits %v; asynq's lease is 30 s, and a heartbeat must fall into what is left", longestWait)
	}
	r := setup(t)
	c := r.srv.consumer
	c.longest = 50 * time.Millisecond
	begun := time.Now()
	if cmd := c.EvalSha(t.Context(), "asynq's own", []string{c.pending, "", "", ""}); !errors.Is(cmd.Err(), redis.Nil) {
		t.Errorf("an idle dequeue ends with %v, want an empty queue", cmd.Err())
	}
	if took := time.Since(begun); took < 50*time.Millisecond || took > 4*time.Second {
		t.Errorf("it ended after %v", took)
	}
	r.srv.Stop(t.Context())
}
