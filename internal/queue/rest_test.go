package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// resting is a rig whose server rests when it had nothing to do for a few milliseconds.
func resting(t *testing.T) *rig {
	r := setup(t)
	r.srv.client.longest, r.srv.client.restAfter = 2*time.Millisecond, 5*time.Millisecond
	return r
}

// asleep says that the gateway has no asynq server.
func (r *rig) asleep() bool {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	return r.srv.srv == nil
}

// A gateway has an asynq server while it has jobs, and no goroutine of one before and after. Each job comes, once, whenever it comes.
func TestAGatewayWithoutJobsHasNoAsynqServer(t *testing.T) {
	t.Parallel()
	r := resting(t)
	r.c = testkit.Server(t).Client()
	r.srv = NewServer(r.c, r.srv.cfg)
	r.srv.client.longest, r.srv.client.restAfter = 2*time.Millisecond, 5*time.Millisecond
	servers := func() int {
		all, err := asynq.NewInspectorFromRedisClient(r.c).Servers()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	r.start()
	if !r.asleep() || servers() != 0 {
		t.Error("it begins with an asynq server, and no job")
	}
	for i := 1; i <= 3; i++ {
		r.put(i, i)
		r.allow(1)
		testkit.Eventually(t, 20*time.Second, "the job", func() bool { return len(r.deliveries()) == i })
		testkit.Eventually(t, 20*time.Second, "the server to rest", r.asleep)
		if n := servers(); n != 0 {
			t.Errorf("Redis knows of %d servers", n)
		}
	}
	if n := r.gate.given(); n != 0 {
		t.Errorf("%d slots came back", n)
	}
}

// Jobs that come just when the server goes to rest are neither lost nor doubled, and keep their slots.
func TestNoJobIsLostWhenAServerGoesToRest(t *testing.T) {
	t.Parallel()
	r := resting(t)
	r.start()
	const jobs = 300
	for i := 1; i <= jobs; i++ {
		r.put(i, i)
		<-time.After(time.Duration(i%13) * time.Millisecond) // about as long as it takes until it rests
		r.allow(1)
	}
	testkit.Eventually(t, time.Minute, "all jobs", func() bool { return len(r.deliveries()) >= jobs })
	seen := map[string]bool{}
	for _, d := range r.deliveries() {
		if seen[d.JobID] || d.Slot.Zero() {
			t.Errorf("%s came with the slot %d, and before: %v", d.JobID, d.Slot.At, seen[d.JobID])
		}
		seen[d.JobID] = true
	}
	if len(seen) != jobs || r.gate.given() != 0 {
		t.Errorf("%d jobs of %d, %d slots came back", len(seen), jobs, r.gate.given())
	}
}

// A server with a job in hand does not rest, however long that takes, and a stop waits for it.
func TestAServerWithAJobInHandDoesNotRest(t *testing.T) {
	t.Parallel()
	r, hang, done := resting(t), make(chan struct{}), atomic.Bool{}
	cfg := r.srv.cfg
	cfg.Handle = func(ctx context.Context, d job.Delivery) error {
		<-hang
		done.Store(true)
		return r.handle(ctx, d)
	}
	r.srv = NewServer(r.c, cfg)
	c := r.srv.client
	c.longest, c.restAfter = time.Millisecond, 0
	r.put(1, 1)
	r.srv.Start()
	r.allow(1)
	inHand := func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.handling == 1 }
	testkit.Eventually(t, 20*time.Second, "the job to be in hand", inHand)
	if c.doze() {
		t.Error("it rests with a job in hand")
	}
	stopped := make(chan struct{})
	go func() { r.srv.Stop(context.Background()); close(stopped) }()
	testkit.Eventually(t, 20*time.Second, "the stop to have begun", func() bool { return c.stop.Err() != nil })
	select {
	case <-stopped:
		t.Error("the stop does not wait for the job")
	default:
	}
	close(hang)
	<-stopped
	if !done.Load() {
		t.Error("it stopped before the job was done")
	}
}

// What keeps a server from going to rest: anything that it has in hand, or that is on its way.
func TestWhatKeepsAServerAwake(t *testing.T) {
	t.Parallel()
	idle := func() *gatedClient {
		return &gatedClient{stop: t.Context(), waiting: true, rest: func() {}, restAfter: time.Minute, used: time.Now().Add(-2 * time.Minute)}
	}
	if c := idle(); !c.doze() || !c.asleep {
		t.Error("an idle one stays awake")
	}
	for what, set := range map[string]func(c *gatedClient){
		"a job in hand":          func(c *gatedClient) { c.handling = 1 },
		"a pull under way":       func(c *gatedClient) { c.air = 1 },
		"a pull that failed":     func(c *gatedClient) { c.resting = 1 },
		"its error":              func(c *gatedClient) { c.failed = nothing(t.Context()) },
		"a job for asynq":        func(c *gatedClient) { c.jobs = make([]pulled, 1) },
		"a slot":                 func(c *gatedClient) { c.slots = make([]job.Slot, 1) },
		"a slot of a job":        func(c *gatedClient) { c.ready = map[string]job.Slot{"a~1": {}} },
		"a job a moment ago":     func(c *gatedClient) { c.used = time.Now() },
		"nobody waits for slots": func(c *gatedClient) { c.waiting = false },
	} {
		c := idle()
		if set(c); c.doze() || c.asleep {
			t.Errorf("%s: it goes to rest", what)
		}
	}
}

// A server that stops while it rests gives back what came for it.
func TestAServerThatStopsAtRestKeepsNothing(t *testing.T) {
	t.Parallel()
	r := resting(t)
	r.srv.Start()
	r.srv.Stop(t.Context())
	r.srv.rouse() // too late
	if !r.asleep() {
		t.Error("an asynq server has begun after the stop")
	}
	late := resting(t)
	late.srv.client.rouse = func() {}
	late.srv.client.asleep, late.srv.client.waiting = true, true
	late.allow(3)
	late.srv.client.beside(late.srv.client.await)
	testkit.Eventually(t, 20*time.Second, "slots", func() bool { return late.gate.next.Load() == 3 })
	late.srv.Stop(t.Context())
	if got := fmt.Sprint(late.gate.returned()); got != "[1 2 3]" {
		t.Errorf("slots %s came back", got)
	}
}

// A slot that comes between the decision to rest and the rest itself keeps the server.
func TestASlotThatComesFirstKeepsTheServer(t *testing.T) {
	t.Parallel()
	r := setup(t)
	c := r.srv.client
	c.longest, c.restAfter = time.Hour, 0
	r.start()
	r.put(1, 1)
	r.allow(1)
	testkit.Eventually(t, 20*time.Second, "the job", func() bool { return len(r.deliveries()) == 1 })
	testkit.Eventually(t, 20*time.Second, "it to be about to rest", c.doze)
	r.srv.rouse()
	r.srv.rest()
	if r.asleep() || c.dozes() {
		t.Errorf("it rests (%v), or serves no dequeue (%v)", r.asleep(), c.dozes())
	}
	r.put(2, 2)
	r.allow(1)
	testkit.Eventually(t, 20*time.Second, "the next job", func() bool { return len(r.deliveries()) == 2 })
}
