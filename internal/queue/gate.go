package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Gate lets asynq pull a job only when a slot for its call is near.
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

// gatedClient is the Redis client that an asynq server gets: it knows asynq's dequeue by its keys and lets it wait at
// the gate; all else passes. No promise hangs on it: a delivery without a slot says so, and its handler takes one itself.
//
//	asynq ── dequeue ──▶ step ── slots ──▶ pullAt ──▶ Redis      one dequeue at a time; a pull brings a job for each slot that is
//	      ◀── a job ───     ◀── jobs ─────    ◀─────             due, and there are as many pulls as fit in before the first answer
type gatedClient struct {
	redis.UniversalClient
	gate  Gate
	keys  taskKeys
	stop  context.Context // ends when no more jobs may be pulled
	most  int             // jobs that asynq takes at once
	hands *Hands          // for pulls

	longest     time.Duration // that a dequeue waits
	restAfter   time.Duration // without anything to do
	rouse, rest func()        // begin and end asynq's server
	order       atomic.Pointer[order]

	news  chan struct{}  // something of what follows has changed
	pulls sync.WaitGroup // pulls under way, and the wait for a slot

	mu       sync.Mutex
	waiting  bool            // for the next slot
	asleep   bool            // no asynq server is to dequeue
	used     time.Time       // when it had something to do last
	session  context.Context // of asynq's server
	shut     bool            // the gate gives no more
	air      int             // jobs that are being pulled
	handling int             // jobs that handlers have in hand
	resting  int             // pulls that failed, and wait before asynq hears of it
	wary     bool            // the last pull failed: one at a time until one succeeds
	far      time.Duration   // how long a pull usually takes
	slots    []job.Slot      // waited for, and not pulled for yet
	jobs     []pulled
	failed   *redis.Cmd          // an error for asynq's log
	ready    map[string]job.Slot // slots of tasks that were pulled, for their handlers, by task id

	ended ended
	beat  heartbeat
}

// pulled is a task that Redis has handed out, on its way to asynq. Its id is empty if it can't be read.
type pulled struct {
	task string
	cmd  *redis.Cmd
}

const (
	// errBackoff is how long a dequeue that failed keeps asynq from trying again: its processor does not wait by itself.
	errBackoff = 200 * time.Millisecond
	// longestWait is how long a dequeue waits for a job. asynq reckons the lease of a job from the beginning of its dequeue:
	// 30 s, which must not be over when a job comes at last.
	longestWait = 10 * time.Second
	// mostPulls is how many jobs are pulled, or wait for asynq to take them, at once: one, and one more for each pullStep that
	// a pull takes: at least 250 a second from a Redis that is up to 60 ms away, 160 at 100 ms. Near by they stay in order.
	mostPulls = 16
	pullStep  = 4 * time.Millisecond
	// mostAtOnce is how many jobs one pull is for at most: as many slots as the pacer reserves at once. asynq takes them within a millisecond.
	mostAtOnce = 64
	// leaseLength is how long asynq lends a task (v0.26.0, internal/rdb: LeaseDuration).
	leaseLength = 30 * time.Second
)

// EvalSha lets a dequeue wait for its slot, leaves out what is done already, and passes on all else. A dequeue is never answered by asynq's own
// script, which knows one line alone: so asynq never hears that Redis does not know it, and never comes with its text.
func (c *gatedClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch {
	case c.isDequeue(keys):
		if job := c.first(ctx); job != nil {
			return job
		}
		return c.dequeue(ctx, c.puller(ctx, leasesOf(args)))
	case c.isEnd(keys) && len(args) > 0 && c.ended.take(args[0]):
		return did(ctx)
	case c.isBeat(keys):
		return c.beats(ctx, sha, keys, args)
	}
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// leasesOf is when a lease that begins now ends, as asynq says in the first argument of its dequeue, or else as it would (Unix seconds).
func leasesOf(args []any) int64 {
	if len(args) > 0 {
		if end, ok := args[0].(int64); ok {
			return end
		}
	}
	return time.Now().Add(leaseLength).Unix()
}

// taskKeys are a gateway's keys. Those that each script of asynq's is looked at for are written out.
type taskKeys struct {
	redisdb.Keys
	pending, active, lease string
	dequeue                []string // what dequeue.lua names
}

func newTaskKeys(gateway string) taskKeys {
	k := redisdb.NewKeys(gateway)
	return taskKeys{k, k.Pending(), k.Active(), k.Lease(),
		[]string{k.Pending(), k.Paused(), k.Active(), k.Lease(), k.Retries(), k.Replays(), k.Hold(), k.Due()}}
}

func (c *gatedClient) isDequeue(keys []string) bool {
	return len(keys) == 4 && keys[0] == c.keys.pending && keys[2] == c.keys.active && keys[3] == c.keys.lease
}

// isEnd knows what asynq runs at the end of a handler, good or bad: done, requeue and retry, whose first argument is the task's id.
func (c *gatedClient) isEnd(keys []string) bool {
	i := slices.Index(keys, c.keys.active)
	return i >= 0 && i < 2 && i+1 < len(keys) && keys[i+1] == c.keys.lease
}

// dequeue waits until a job was pulled at its slot, an error, or the end.
func (c *gatedClient) dequeue(ctx context.Context, pull puller) *redis.Cmd {
	enough := time.NewTimer(c.longest)
	defer enough.Stop()
	for {
		if job := c.first(ctx); job != nil {
			return job
		}
		c.giveBack(ctx, c.passed())
		if cmd := c.step(ctx, pull); cmd != nil {
			return cmd
		}
		select {
		case <-c.news:
		case <-enough.C:
			if c.doze() {
				go c.rest()
			}
			return nothing(ctx)
		}
	}
}

// step returns what there is for asynq but jobs, or sees to it that something comes.
func (c *gatedClient) step(ctx context.Context, pull puller) *redis.Cmd {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.jobs) > 0:
		return nil // news
	case c.failed != nil:
		return take(&c.failed)
	case c.shut || c.asleep || c.stop.Err() != nil:
		return nothing(ctx)
	}
	for c.room() && len(c.slots) > 0 {
		n := min(len(c.slots), c.atOnce())
		slots := slices.Clone(c.slots[:n])
		c.slots = c.slots[n:]
		c.air += n
		c.beside(func() { c.pullAt(ctx, slots, pull) })
	}
	if c.room() && !c.waiting {
		c.waiting = true
		c.beside(c.await)
	}
	return nil
}

// beside runs f, which speaks to Redis, on a goroutine of those that live on.
func (c *gatedClient) beside(f func()) {
	c.pulls.Add(1)
	c.hands.start(func() {
		defer c.pulls.Done()
		f()
	})
}

func take(from **redis.Cmd) *redis.Cmd {
	cmd := *from
	*from = nil
	return cmd
}

func (c *gatedClient) room() bool {
	most := mostPulls
	if c.wary {
		most = 1
	}
	return c.resting == 0 && c.air+len(c.jobs) < min(most, 1+int(c.far/pullStep))
}

// atOnce is how many jobs may be pulled in one round trip: no more than asynq has hands for now.
func (c *gatedClient) atOnce() int {
	if c.wary {
		return 1
	}
	return max(1, min(mostAtOnce, c.most-c.handling-c.air-len(c.jobs)))
}

// learn takes in how long a pull took. One stall says little of how far away Redis is, and the jobs of many pulls at once
// would come out of it in disorder; so the measure grows slowly and shrinks at once.
func (c *gatedClient) learn(took time.Duration) {
	c.far = min(took, c.far+c.far/4+pullStep/40)
}

// await waits for the next slot, and takes what else is due with it.
func (c *gatedClient) await() {
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
	asleep := false
	c.change(func() {
		c.waiting = false
		if err != nil {
			c.shut = true
			return
		}
		c.slots, asleep = append(c.slots, slots...), c.asleep
	})
	if asleep {
		c.rouse()
	}
}

// pullAt pulls the jobs for slots. Redis may be far away: nobody waits for the answer before the next pull.
func (c *gatedClient) pullAt(ctx context.Context, slots []job.Slot, pull puller) {
	cmds, took := pullFor(ctx, slots, pull)
	var jobs []pulled
	var failed *redis.Cmd
	var left, empty []job.Slot
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
			id, unasked := c.pair(cmd, slots[i])
			jobs, left = append(jobs, pulled{id, cmd}), append(left, unasked...)
		case errors.Is(err, redis.Nil):
			empty = append(empty, slots[i])
		default:
			failed, empty = cmd, append(empty, slots[i])
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
			return
		}
		c.learn(took)
	})
	if failed != nil {
		c.pause()
		c.change(func() { c.resting--; c.failed = failed })
	}
}

// change changes what mu guards and tells the dequeue that waits.
func (c *gatedClient) change(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *gatedClient) pause() {
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
