package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Gate lets a job be pulled only when a slot for its call is near.
type Gate interface {
	// Next blocks until a job is pending and a slot is due within the lead, or until ctx ends. The slot may come with its job (job.Slot.Task), which is active by then.
	Next(ctx context.Context) (job.Slot, error)
	// More returns further slots that are due within the lead by now, in order, at most so many. It doesn't wait.
	More(most int) []job.Slot
	// Empty gives slots back whose dequeues found no job.
	Empty(ctx context.Context, slots ...job.Slot)
	// Passed reports that a slot can't be used any more.
	Passed(slot job.Slot) bool
	// AtMost says for how many jobs there are hands: no more slots are wanted at once that come with their jobs.
	AtMost(jobs int)
	// Release gives back slots whose jobs were pulled and never came to their handlers. What can't be given back stays charged: that wastes it and breaks no limit.
	Release(ctx context.Context, slots ...job.Slot) error
}

// source is where the jobs of one gateway come from: it pulls them at their slots, and offers them to asynq.
//
//	gate ── slots ──▶ pump ──▶ pullAt ──▶ Redis      a pull brings a job for each slot that is due, and there are as many
//	                                ◀── jobs ───     pulls as fit in before the first answer
//	asynq ◀── next ── jobs                           no promise hangs on it: a delivery without a slot says so, and its handler takes one itself
type source struct {
	redis   redis.UniversalClient
	gateway string
	gate    Gate
	keys    taskKeys
	stop    context.Context // ends when no more jobs may be pulled
	most    int             // jobs in hand at once
	hands   *Hands          // for pulls
	offer   func()          // tells asynq that there are jobs
	log     *slog.Logger
	order   atomic.Pointer[order]

	pulls sync.WaitGroup // pulls under way, the wait for a slot, and slots that go back

	mu       sync.Mutex
	waiting  bool                 // for the next slot
	shut     bool                 // no more is pulled
	air      int                  // jobs that are being pulled
	coming   map[string]time.Time // since when asynq has a task whose handler has not begun, by its id
	handling int                  // jobs that handlers have in hand
	ending   map[string]time.Time // since when a task's handler has returned that asynq has not ended
	quiet    chan struct{}        // closes when it is shut and asynq has no job in hand
	calming  bool                 // it is about to
	resting  int                  // pulls that failed, and wait before there are more
	wary     bool                 // the last pull failed: one at a time until one succeeds
	said     time.Time            // when the log last said that a pull failed
	far      time.Duration        // how long a pull usually takes
	slots    []job.Slot           // waited for, and not pulled for yet
	jobs     []pulled
	ready    map[string]job.Slot // slots of tasks that were pulled, for their handlers, by task id

	ended ended
}

// pulled is a task that Redis has handed out, on its way to asynq.
type pulled struct{ task, message string }

const (
	// errBackoff is how long there is no pull after one that failed.
	errBackoff = 200 * time.Millisecond
	// sayEvery is how often the log says of a gateway that its jobs can't be pulled.
	sayEvery = 3 * time.Second
	// mostPulls is how many jobs are pulled, or wait for asynq to take them, at once: one, and one more for each pullStep that
	// a pull takes: at least 250 a second from a Redis that is up to 60 ms away, 160 at 100 ms. Near by they stay in order.
	mostPulls = 16
	pullStep  = 4 * time.Millisecond
	// mostAtOnce is how many jobs one pull is for at most: as many slots as the pacer reserves at once. asynq takes them within a millisecond.
	mostAtOnce = 64
	// leaseLength is how long a task is lent, as asynq does (v0.26.0, internal/rdb: LeaseDuration).
	leaseLength = 30 * time.Second
	// comesWithin is longer than it takes from asynq's taking a task to its handler, or to its end without one.
	comesWithin = time.Minute
	// endsWithin is how long a stop waits for asynq to end tasks whose handlers have returned.
	endsWithin = time.Second
)

// taskKeys are a gateway's keys. Those that each script of asynq's is looked at for are written out.
type taskKeys struct {
	redisdb.Keys
	active, lease string
	dequeue       []string // what dequeue.lua names
}

func newTaskKeys(gateway string) taskKeys {
	k := redisdb.NewKeys(gateway)
	return taskKeys{k, k.Active(), k.Lease(),
		[]string{k.Pending(), k.Paused(), k.Active(), k.Lease(), k.Retries(), k.Replays(), k.Hold(), k.Due()}}
}

// isEnd knows what asynq runs at the end of a handler, good or bad: done, requeue and retry, whose first argument is the task's id.
func (k taskKeys) isEnd(keys []string) bool {
	i := slices.Index(keys, k.active)
	return i >= 0 && i < 2 && i+1 < len(keys) && keys[i+1] == k.lease
}

// begin waits for the first slot.
func (c *source) begin() { c.change(func() {}) }

// pump sees to it that jobs come: it pulls for the slots that there are, and waits for the next one, as far as there is room.
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

// beside runs f, which speaks to Redis, on a goroutine of those that live on. The caller holds mu, and it is not shut.
func (c *source) beside(f func()) {
	c.pulls.Add(1)
	c.hands.start(func() {
		defer c.pulls.Done()
		f()
	})
}

// room says whether another pull may begin.
func (c *source) room() bool {
	most := mostPulls
	if c.wary {
		most = 1
	}
	return c.resting == 0 && c.free() > 0 && c.air+len(c.jobs) < min(most, 1+int(c.far/pullStep))
}

// free is how many jobs more may be in hand.
func (c *source) free() int { return c.most - c.handling - len(c.coming) - c.air - len(c.jobs) }

// atOnce is how many jobs may be pulled in one round trip: no more than there are hands for now.
func (c *source) atOnce() int {
	if c.wary {
		return 1
	}
	return max(1, min(mostAtOnce, c.free()))
}

// learn takes in how long a pull took. One stall says little of how far away Redis is, and the jobs of many pulls at once
// would come out of it in disorder; so the measure grows slowly and shrinks at once.
func (c *source) learn(took time.Duration) {
	c.far = min(took, c.far+c.far/4+pullStep/40)
}

// await waits for the next slot, and takes what else is due with it.
func (c *source) await() {
	c.mu.Lock()
	hands := c.atOnce()
	c.mu.Unlock()
	c.gate.AtMost(hands)
	slot, err := c.gate.Next(c.stop)
	c.mu.Lock()
	more := c.atOnce() - 1
	c.mu.Unlock()
	slots := []job.Slot{slot}
	if err == nil {
		slots = append(slots, c.gate.More(more)...)
	}
	c.change(func() {
		c.waiting = false
		if err != nil {
			c.shut = true
			return
		}
		c.slots = append(c.slots, slots...)
	})
}

// pullAt pulls the jobs for slots. Redis may be far away: nobody waits for the answer before the next pull.
func (c *source) pullAt(ctx context.Context, slots []job.Slot, pull puller) {
	cmds, took := pullFor(ctx, slots, pull)
	var jobs []pulled
	var failed error
	var left, empty []job.Slot
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
			job, unasked := c.pair(cmd, slots[i])
			left = append(left, unasked...)
			if job.task != "" { // nobody can read it: it is found as a stray
				jobs = append(jobs, job)
			}
		case errors.Is(err, redis.Nil):
			empty = append(empty, slots[i])
		default:
			failed, empty = err, append(empty, slots[i])
		}
	}
	c.giveBack(ctx, left)
	if len(empty) > 0 { // all at once: what was pulled waits for it, and each answer may take its time
		c.gate.Empty(ctx, empty...)
	}
	c.change(func() {
		c.air -= len(slots)
		c.jobs = append(c.jobs, jobs...)
		if c.wary = failed != nil; c.wary {
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

// say tells the log that jobs can't be pulled, now and then. The caller holds mu.
func (c *source) say(err error) {
	if now := time.Now(); now.Sub(c.said) > sayEvery {
		c.said = now
		c.log.Error("jobs not pulled, trying again", "gateway", c.gateway, "error", err)
	}
}

// change changes what mu guards, offers asynq the jobs that there are, and sees to it that more come.
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

// nothing is the answer of an empty queue.
func nothing(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	return cmd
}
