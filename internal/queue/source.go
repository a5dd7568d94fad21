package queue

import (
	"context"
	"fmt"

	_ "embed" // for the script
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// for the script

//go:embed dequeue.lua
var dequeueLua string

var dequeueScript = redisdb.NewSharedScript(redisdb.NowLua, dequeueLua)

// Pacer makes a job be pulled only when a slot for its call is near.
type Pacer interface {
	// Next blocks until a job is pending and a slot is due within the lead time, or until ctx ends. The slot
	// may come with its job (job.Slot.Task), whose task is then active.
	Next(ctx context.Context) (job.Slot, error)
	// More returns up to most further slots that are due within the lead time, in order. It doesn't wait.
	More(most int) []job.Slot
	// Empty gives back slots whose dequeues found no job.
	Empty(ctx context.Context, slots ...job.Slot)
	// Passed reports whether a slot is too old to be used.
	Passed(slot job.Slot) bool
	// AtMost sets how many jobs can be handled. No more slots that come with their jobs are wanted at once.
	AtMost(jobs int)
	// Release gives back slots whose jobs were pulled and never reached their handlers. A slot that can't be
	// given back stays charged, which wastes it but breaks no limit.
	Release(ctx context.Context, slots ...job.Slot) error
}

// source supplies the jobs of one gateway: it pulls them at their slots and offers them to asynq.
//
//	pacer ─ slots ──▶ pump ──▶ pullAt ──▶ Redis      a pull brings a job for each slot that is due, and there are as many
//	                                ◀── jobs ───     pulls as fit in before the first answer
//	asynq ◀── next ── jobs                           see consumer; a delivery may lack its slot, and its handler then takes one itself
type source struct {
	redis   redis.UniversalClient
	gateway string
	pacer   Pacer
	keys    taskKeys
	stop    context.Context // done when no more jobs may be pulled
	most    int             // jobs in flight at once
	pool    *pool           // run pulls
	offer   func()          // tells asynq that there are jobs
	log     *slog.Logger
	order   atomic.Pointer[order]

	pulls sync.WaitGroup // pulls in flight, the wait for a slot, and slots being given back

	mu       sync.Mutex
	waiting  bool                 // for the next slot
	shut     bool                 // pulling has ended
	air      int                  // jobs being pulled
	coming   map[string]time.Time // by task id, when asynq took a task whose handler has not started
	handling int                  // jobs that handlers work on
	ending   map[string]time.Time // by task id, when the handler of a task returned that asynq has not acknowledged
	quiet    chan struct{}        // closed when shut is set and asynq has no job left
	calming  bool                 // quiet is about to close
	resting  int                  // failed pulls that wait out their back-off
	wary     bool                 // the last pull failed: one pull at a time until one succeeds
	said     time.Time            // when a failed pull was last logged
	far      time.Duration        // the usual duration of a pull
	slots    []job.Slot           // granted, not pulled for yet
	jobs     []pulled
	ready    map[string]job.Slot // slots of pulled tasks, for their handlers, by task id

	ended ended
}

// pulled is a task that Redis has handed out, on its way to asynq.
type pulled struct{ task, message string }

const (
	// errBackoff is the pause after a failed pull.
	errBackoff = 200 * time.Millisecond
	// sayEvery is how often failed pulls of a gateway are logged.
	sayEvery = 3 * time.Second
	// mostPulls is the most jobs being pulled, or waiting for asynq, at once. The number in use is one, plus
	// one for each pullStep that a pull takes. That is at least 250 jobs a second from a Redis up to 60 ms
	// away, and 160 at 100 ms. With a nearby Redis, jobs stay in order.
	mostPulls = 16
	pullStep  = 4 * time.Millisecond
	// mostAtOnce is the most jobs for one pull: as many slots as the pacer reserves at once. asynq takes them
	// within a millisecond.
	mostAtOnce = 128
	// comesWithin is longer than the time from asynq's taking a task to the start of its handler, or to its end
	// without one.
	comesWithin = time.Minute
	// endsWithin is how long a stop waits for asynq to acknowledge handled tasks.
	endsWithin = time.Second
)

// taskKeys are a gateway's keys. Those that every asynq script is compared with are precomputed.
type taskKeys struct {
	redisdb.Keys
	active, lease string
	dequeue       []string // the keys of dequeue.lua
}

func newTaskKeys(gateway string) taskKeys {
	k := redisdb.NewKeys(gateway)
	return taskKeys{k, k.Active(), k.Lease(),
		[]string{k.Pending(), k.Paused(), k.Active(), k.Lease(), k.Retries(), k.Replays(), k.Hold(), k.Due()}}
}

// begin starts to wait for the first slot.
func (c *source) begin() { c.change(func() {}) }

// pump keeps jobs coming: as far as there is room, it pulls for the granted slots and waits for the next one.
func (c *source) pump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return
	}
	for c.room() && len(c.slots) > 0 {
		n := min(len(c.slots), c.atOnce())
		slots := slices.Clone(c.slots[:n])
		c.slots = c.slots[n:]
		c.air += n
		c.beside(func() { c.pullAt(context.Background(), slots, c.pull) })
	}
	if c.room() && !c.waiting {
		c.waiting = true
		c.beside(c.await)
	}
}

// beside runs f, which uses Redis, on a pooled goroutine. The caller holds mu, and shut is not set.
func (c *source) beside(f func()) {
	c.pulls.Add(1)
	c.pool.start(func() {
		defer c.pulls.Done()
		f()
	})
}

// room reports whether another pull may begin.
func (c *source) room() bool {
	most := mostPulls
	if c.wary {
		most = 1
	}
	return c.resting == 0 && c.free() > 0 && c.air+len(c.jobs) < min(most, 1+int(c.far/pullStep))
}

// free returns how many more jobs may be in flight.
func (c *source) free() int { return c.most - c.handling - len(c.coming) - c.air - len(c.jobs) }

// atOnce returns how many jobs may be pulled in one round trip: at most as many as can be handled now.
func (c *source) atOnce() int {
	if c.wary {
		return 1
	}
	return max(1, min(mostAtOnce, c.free()))
}

// learn updates the usual duration of a pull. A single stall says little about the distance to Redis, and the
// jobs of many concurrent pulls would arrive out of order, so the value grows slowly and shrinks at once.
func (c *source) learn(took time.Duration) {
	c.far = min(took, c.far+c.far/4+pullStep/40)
}

// await waits for the next slot, and takes the others that are due with it.
func (c *source) await() {
	c.mu.Lock()
	jobs := c.atOnce()
	c.mu.Unlock()
	c.pacer.AtMost(jobs)
	slot, err := c.pacer.Next(c.stop)
	c.mu.Lock()
	more := c.atOnce() - 1
	c.mu.Unlock()
	var others []job.Slot
	if err == nil {
		others = c.pacer.More(more)
	}
	c.change(func() {
		c.waiting = false
		if err != nil {
			c.shut = true
			return
		}
		c.slots = append(append(c.slots, slot), others...)
	})
}

// pullAt pulls the jobs for slots. Redis may be far away, so the next pull does not wait for this one's answer.
func (c *source) pullAt(ctx context.Context, slots []job.Slot, pull puller) {
	tasks, took, failed := jobsFor(slots, pull)
	var jobs []pulled
	var left, empty []job.Slot
	for i, slot := range slots {
		if failed != nil || tasks[i].id == "" {
			empty = append(empty, slot)
			continue
		}
		job, unasked := c.pair(tasks[i].message, slot)
		left = append(left, unasked...)
		if job.task != "" { // unreadable: it is found as a stray
			jobs = append(jobs, job)
		}
	}
	c.change(func() { // before slots are given back, which takes a round trip
		c.air -= len(slots) - len(empty)
		c.jobs = append(c.jobs, jobs...)
		c.wary = failed != nil
	})
	c.giveBack(ctx, left)
	if len(empty) > 0 { // all at once: the next pull waits for it, and each reply may take a while
		c.pacer.Empty(ctx, empty...)
	}
	c.change(func() {
		c.air -= len(empty)
		if failed != nil {
			c.resting++
			c.say(failed)
			return
		}
		c.learn(took)
	})
	if failed != nil {
		c.pause()
		c.change(func() { c.resting-- })
	}
}

// pair keeps the slot for the handler of the task that a pull brought. It returns the task, with the slots that
// no handler will ask for: this one, if the task can't be read, or an earlier one of the same task.
//
// asynq may take a task and never call a handler for it, such as one whose deadline has passed. A slot therefore
// belongs to the task that was pulled at it, by id. A slot whose task never reaches a handler is given back when
// it has passed.
func (c *source) pair(message string, slot job.Slot) (p pulled, left []job.Slot) {
	m, ok := parseMessage([]byte(message))
	if !ok {
		return p, []job.Slot{slot}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, again := c.ready[m.id]; again {
		left = []job.Slot{earlier}
	}
	c.ready[m.id] = slot
	return pulled{m.id, message}, left
}

// jobsFor returns a task for each slot, empty if there is no job for it, and how long that took. A job comes with
// its slot, or is pulled now.
func jobsFor(slots []job.Slot, pull puller) (tasks []activeTask, took time.Duration, err error) {
	if !slices.ContainsFunc(slots, func(s job.Slot) bool { return s.Task != "" }) {
		begun := time.Now()
		tasks, err = pull(slots)
		return tasks, time.Since(begun), err
	}
	tasks = make([]activeTask, len(slots))
	for i, s := range slots {
		tasks[i] = activeTask{s.Task, s.Message}
		slots[i].Task, slots[i].Message = "", "" // the slot's job is passed on
	}
	return tasks, 0, nil
}

// puller pulls jobs in one round trip. It returns a task for each slot, empty if there is no job for it.
type puller func(slots []job.Slot) ([]activeTask, error)

// pull pulls tasks, whose leases begin now.
func (c *source) pull(slots []job.Slot) ([]activeTask, error) {
	w := wanted{most: len(slots), order: *c.order.Load()}
	for _, s := range slots {
		w.ahead = w.ahead || s.Probe
		if s.Costly {
			w.slot = max(w.slot, s.At)
		}
	}
	found, err := pull(context.Background(), c.redis, c.keys, w)
	tasks := make([]activeTask, len(slots))
	for i, t := range found {
		if t.message != "" {
			tasks[i] = t
		}
	}
	return tasks, err
}

// wanted says what to pull.
type wanted struct {
	// now is when the pulled tasks' leases begin, in µs; zero means by Redis's clock.
	now int64
	// most is the most tasks to pull; at least 1.
	most int
	// ahead marks the pull for a probe after a hold, which checks whether the gateway is back: it prefers a job
	// that was never called.
	ahead bool
	// slot is the latest slot that the tasks are pulled for, if jobs have costs (µs on Redis's clock); else zero.
	slot int64
	// order is the order of jobs never called.
	order order
}

// activeTask is a pulled task. Its message is empty if it has none.
type activeTask struct{ id, message string }

// pull takes tasks from a gateway's queue, as asynq's dequeue does, in the order in which the queue's lines
// take turns. An empty result is not an error.
func pull(ctx context.Context, c redis.UniversalClient, k taskKeys, w wanted) ([]activeTask, error) {
	ahead := 0
	if w.ahead {
		ahead = 1
	}
	keys, args := k.dequeue, []any{w.now, k.TaskPrefix(), w.most, ahead, w.slot}
	if w.order.text != "" {
		keys, args = slices.Concat(keys, w.order.keys), append(args, w.order.text)
	}
	found, err := dequeueScript.Run(ctx, c, keys, args...).Slice()
	if err != nil {
		return nil, err
	}
	if len(found)%2 != 0 || len(found) > 2*w.most {
		return nil, fmt.Errorf("dequeue.lua: %d values for %d tasks: is another version of the program using this Redis?", len(found), w.most)
	}
	tasks := make([]activeTask, len(found)/2)
	for i := range tasks {
		tasks[i].id, _ = found[2*i].(string)
		tasks[i].message, _ = found[2*i+1].(string)
	}
	return tasks, nil
}

// say logs, at most once every sayEvery, that jobs can't be pulled. The caller holds mu.
func (c *source) say(err error) {
	if now := time.Now(); now.Sub(c.said) > sayEvery {
		c.said = now
		c.log.Error("jobs not pulled, trying again", "gateway", c.gateway, "error", err)
	}
}

// change runs f under mu, then offers asynq the available jobs and pumps.
func (c *source) change(f func()) {
	c.mu.Lock()
	f()
	jobs := len(c.jobs) > 0 && !c.shut
	if !c.shut {
		c.leave(c.passed())
	}
	c.mu.Unlock()
	if jobs {
		c.offer()
	}
	c.pump()
}

func (c *source) pause() {
	t := time.NewTimer(errBackoff)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stop.Done():
	}
}
