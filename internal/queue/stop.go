package queue

import (
	"context"
	_ "embed" // for the script
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed unpull.lua
var unpullLua string

var unpullScript = redisdb.NewScript(redisdb.NowLua, record.Expand(unpullLua))

// finish is called when shut is set. It waits for the pulls in flight and gives back the slots and jobs that
// they brought; the first job goes to the head of the queue. If Redis is unreachable, a sweep picks the jobs up
// later.
func (c *source) finish(ctx context.Context) {
	c.pulls.Wait()
	c.giveBack(ctx, c.unused())
	c.mu.Lock()
	left := c.jobs
	c.jobs = nil
	c.mu.Unlock()
	if len(left) == 0 {
		return
	}
	_ = unpullScript.Pipelined(ctx, c.redis, func(run redisdb.Runner) {
		for _, p := range slices.Backward(left) {
			id, _, _ := job.ParseTaskID(p.task)
			run([]string{c.keys.active, c.keys.lease, c.keys.Due(), c.keys.Task(p.task), c.keys.Retries(), c.keys.Job(id), c.keys.Classes()}, p.task)
		}
	})
}

// close ends pulling. It returns a channel that closes when asynq has no job left.
func (c *source) close() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	quiet := make(chan struct{})
	c.quiet = quiet
	c.calm()
	return quiet
}

// calm closes quiet if shut is set and asynq has no job left. asynq acknowledges a handled task at once or
// never. The caller holds mu.
func (c *source) calm() {
	switch {
	case c.quiet == nil || c.handling > 0 || len(c.coming) > 0:
	case len(c.ending) == 0:
		close(c.quiet)
		c.quiet = nil
	case !c.calming:
		c.calming = true
		time.AfterFunc(endsWithin, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			clear(c.ending)
			c.calm()
		})
	}
}

// unused returns every slot that no handler will ask for.
func (c *source) unused() (left []job.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, slot := range c.ready {
		left = append(left, slot)
	}
	left = append(left, c.slots...)
	clear(c.ready)
	c.slots = nil
	return left
}

// passed returns the slots that passed before a handler started, or before they were pulled for: asynq calls a
// handler at once or never. The caller holds mu.
func (c *source) passed() (left []job.Slot) {
	for len(c.slots) > 0 && c.pacer.Passed(c.slots[0]) {
		left = append(left, c.slots[0])
		c.slots = c.slots[1:]
	}
	for taskID, slot := range c.ready {
		if c.pacer.Passed(slot) {
			left = append(left, slot)
			delete(c.ready, taskID)
		}
	}
	return left
}

// leave gives slots back in the background. The caller holds mu, and shut is not set.
func (c *source) leave(slots []job.Slot) {
	if len(slots) > 0 {
		c.beside(func() { c.giveBack(context.Background(), slots) })
	}
}

func (c *source) giveBack(ctx context.Context, slots []job.Slot) {
	if len(slots) > 0 {
		_ = c.pacer.Release(ctx, slots...)
	}
}

// tidy gives back slots that have passed, and drops tasks that asynq should have acknowledged long ago. There
// are none unless the process was suspended.
func (c *source) tidy(now time.Time) {
	c.change(func() {
		for _, tasks := range []map[string]time.Time{c.coming, c.ending} {
			for id, since := range tasks {
				if now.Sub(since) > comesWithin {
					delete(tasks, id)
				}
			}
		}
		c.calm()
	})
}
