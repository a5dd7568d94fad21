package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// foreign puts a foreign task into the queue.
func (r *rig) foreign(id string, o ...asynq.Option) {
	r.t.Helper()
	task := asynq.NewTask("email", []byte("hello"))
	if _, err := asynq.NewClientFromRedisClient(r.c).Enqueue(task, append(o, asynq.TaskID(id), asynq.Queue(r.gw))...); err != nil {
		r.t.Fatal(err)
	}
}

var overdue = asynq.Deadline(time.Now().Add(-time.Minute))

// undecodable puts a task into the queue that asynq can't read.
func (r *rig) undecodable(id string) {
	r.c.HSet(context.Background(), r.keys.Task(id), "msg", "\xff\xff\xff junk", "state", "pending")
	r.c.LPush(context.Background(), r.keys.Pending(), id)
}

// drained waits until the queue is empty and asynq is back at the pacer.
func (r *rig) drained() {
	r.t.Helper()
	testkit.Eventually(r.t, 5*time.Second, "the queue to be empty", func() bool {
		return r.c.LLen(context.Background(), r.keys.Pending()).Val() == 0
	})
}

// slotsOf adds three jobs to the queue, and returns the slots with which they are delivered.
func (r *rig) slotsOf() []int64 {
	r.t.Helper()
	r.put(1, 3)
	var slots []int64
	for i := 1; i <= 3; i++ {
		r.allow(1)
		testkit.Eventually(r.t, 5*time.Second, "a delivery", func() bool { return len(r.deliveries()) == i })
		slots = append(slots, r.deliveries()[i-1].Slot.At)
	}
	return slots
}

// asynq pulls a task whose deadline has passed, and calls no handler. The jobs after it keep their own slots.
func TestATaskThatIsNeverDeliveredShiftsNoSlot(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.foreign("late", overdue)
	r.start()
	r.allow(1)
	r.drained()
	if got := r.slotsOf(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("pulled for slots 2, 3 and 4, delivered with %v", got)
	}
	if r.pacer.given() != 0 {
		t.Fatal("a slot came back before it had passed")
	}
	r.pacer.letPass(1)
	r.put(4, 4)
	r.allow(1)
	testkit.Eventually(t, 5*time.Second, "the slot of the task that never came", func() bool { return slices.Equal(r.pacer.returned(), []int64{1}) })
}

// A job that waited for asynq until its slot had passed is delivered without a slot. The next one keeps its own.
func TestASlotThatPassedBeforeAsynqCameIsGivenBack(t *testing.T) {
	t.Parallel()
	pacer := newFakePacer()
	pacer.letPass(1)
	c := &source{pacer: pacer, pool: newPool(), ready: map[string]job.Slot{"a": {At: 1}, "b": {At: 2}}, coming: map[string]time.Time{},
		jobs: []pulled{{task: "a"}, {task: "b"}}}
	for _, want := range []string{"a", "b"} {
		if p, ok, more := c.next(time.Now()); !ok || p.task != want || more != (want == "a") {
			t.Errorf("got %v, %v, more: %v, want %s", p, ok, more, want)
		}
	}
	c.pulls.Wait()
	if got := pacer.returned(); !slices.Equal(got, []int64{1}) {
		t.Errorf("slots %v came back, want the first", got)
	}
	if first, second := c.take("a"), c.take("b"); !first.Zero() || second.At != 2 {
		t.Errorf("the first job has the slot %d, the second %d", first.At, second.At)
	}
	if p, ok, _ := c.next(time.Now()); ok {
		t.Errorf("got %v of no jobs", p)
	}
}

func TestAnUnreadableMessageGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.undecodable("junk")
	r.start()
	r.allow(1)
	testkit.Eventually(t, 5*time.Second, "its slot", func() bool { return slices.Equal(r.pacer.returned(), []int64{1}) })
	if got := r.slotsOf(); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("pulled for slots 2, 3 and 4, delivered with %v", got)
	}
}

// A stop returns the slots of tasks that were never delivered.
func TestStopGivesLeftSlotsBack(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.foreign("late", overdue)
	r.start()
	r.allow(1)
	r.drained()
	testkit.Eventually(t, 5*time.Second, "asynq to have put it aside", func() bool {
		return r.c.ZCard(context.Background(), r.keys.AsynqRetry()).Val() == 1
	})
	r.srv.Stop(context.Background())
	if got := r.pacer.returned(); !slices.Equal(got, []int64{1}) {
		t.Errorf("slots %v came back, want the first", got)
	}
}

func TestAMessageIsReadAsAsynqWritesIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.foreign("some-id")
	text := r.c.HGet(context.Background(), r.keys.Task("some-id"), "msg").Val()
	if m, ok := parseMessage([]byte(text)); !ok || m.id != "some-id" || string(m.payload) != "hello" {
		t.Errorf("read %+v, %v", m, ok)
	}
	for cut := range len(text) - 1 {
		parseMessage([]byte(text[:cut]))
	}
	for _, bad := range []string{"", "x", "\x1a\x7fshort", "\xff\xff\xff junk"} {
		if m, ok := parseMessage([]byte(bad)); ok {
			t.Errorf("%q was read as %+v", bad, m)
		}
	}
}

// A task that asynq ends without a handler frees its place at once.
func TestATaskThatAsynqEndsItselfFreesItsPlace(t *testing.T) {
	t.Parallel()
	pacer := newFakePacer()
	stop, halt := context.WithCancel(t.Context())
	c := &source{pacer: pacer, pool: newPool(), most: 1, stop: stop, ready: map[string]job.Slot{}, ending: map[string]time.Time{},
		coming: map[string]time.Time{"late": time.Now()}}
	if c.begin(); c.waiting {
		t.Fatal("there is a wait for a slot without a place")
	}
	c.over("late")
	c.mu.Lock()
	waiting := c.waiting
	c.mu.Unlock()
	if !waiting {
		t.Error("there is no wait for a slot, though there is a place")
	}
	halt()
	c.pulls.Wait()
}

// slowPacer takes its time to take slots back.
type slowPacer struct {
	*fakePacer
	taken chan struct{}
}

func (g slowPacer) Empty(ctx context.Context, slots ...job.Slot) {
	<-g.taken
	g.fakePacer.Empty(ctx, slots...)
}

func (g slowPacer) Release(ctx context.Context, slots ...job.Slot) error {
	g.Empty(ctx, slots...)
	return nil
}

// A job that was pulled does not wait until the slots without jobs are given back.
func TestAPulledJobDoesNotWaitForTheSlotsWithoutOne(t *testing.T) {
	t.Parallel()
	pacer := slowPacer{newFakePacer(), make(chan struct{})}
	stop, halt := context.WithCancel(t.Context())
	offered := make(chan struct{}, 8)
	c := &source{pacer: pacer, pool: newPool(), most: 8, stop: stop, ready: map[string]job.Slot{}, ending: map[string]time.Time{}, coming: map[string]time.Time{},
		air: 2, waiting: true, offer: func() { offered <- struct{}{} }}
	message, err := NewEncoder("g").Encode("a~1")
	if err != nil {
		t.Fatal(err)
	}
	pulled := make(chan struct{})
	go func() {
		defer close(pulled)
		c.pullAt(context.Background(), []job.Slot{{At: 1}, {At: 2}}, func([]job.Slot) ([]activeTask, error) {
			return []activeTask{{"a~1", string(message)}, {}}, nil
		})
	}()
	select {
	case <-offered:
	case <-time.After(5 * time.Second):
		t.Error("the job waits until the other slot is given back")
	}
	c.mu.Lock()
	if c.air != 1 {
		t.Errorf("%d pulls are in the air while a slot is given back, want 1", c.air)
	}
	c.mu.Unlock()
	close(pacer.taken)
	<-pulled
	halt()
	c.pulls.Wait()
	if got := pacer.returned(); !slices.Equal(got, []int64{2}) || c.air != 0 || len(c.jobs) != 1 {
		t.Errorf("the slots %v came back, %d are in the air, %d jobs are there; want slot 2, none, and one", got, c.air, len(c.jobs))
	}
}
