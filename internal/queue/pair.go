package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// asynq may take a task and never call a handler for it, such as one whose deadline has passed. A slot
// therefore belongs to the task that was pulled at it, by id. A slot whose task never reaches a handler is
// given back when it has passed.

// pair keeps the slot for the handler of the task that a pull brought. It returns the task, with the slots that
// no handler will ask for: this one, if the task can't be read, or an earlier one of the same task.
func (c *source) pair(cmd *redis.Cmd, slot job.Slot) (p pulled, left []job.Slot) {
	text, _ := cmd.Text()
	m, ok := parseMessage([]byte(text))
	if !ok {
		return p, []job.Slot{slot}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, again := c.ready[m.id]; again {
		left = []job.Slot{earlier}
	}
	c.ready[m.id] = slot
	return pulled{m.id, text}, left
}

// take is called when the handler of a task begins. It returns the slot at which the task was pulled, or the
// zero Slot if it has none or has it no longer.
func (c *source) take(taskID string) job.Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.ready[taskID]
	delete(c.ready, taskID)
	delete(c.coming, taskID)
	c.handling++
	return slot
}

// next takes the first pulled job, and reports whether there are more. If its slot has passed, its handler gets
// none.
func (c *source) next(now time.Time) (p pulled, ok, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 || c.shut {
		return p, false, false
	}
	p, c.jobs = c.jobs[0], c.jobs[1:]
	if slot, has := c.ready[p.task]; has && c.gate.Passed(slot) {
		delete(c.ready, p.task)
		c.leave([]job.Slot{slot})
	}
	c.coming[p.task] = now
	return p, true, len(c.jobs) > 0
}

// passed returns the slots that passed before a handler started, or before they were pulled for: asynq calls a
// handler at once or never. The caller holds mu.
func (c *source) passed() (left []job.Slot) {
	for len(c.slots) > 0 && c.gate.Passed(c.slots[0]) {
		left = append(left, c.slots[0])
		c.slots = c.slots[1:]
	}
	for taskID, slot := range c.ready {
		if c.gate.Passed(slot) {
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

func (c *source) giveBack(ctx context.Context, slots []job.Slot) {
	if len(slots) > 0 {
		_ = c.gate.Release(ctx, slots...)
	}
}

// handled records that a task's handler has returned.
func (c *source) handled(taskID string) {
	c.mu.Lock()
	full := c.free() <= 0
	c.handling--
	c.ending[taskID] = time.Now()
	c.calm()
	c.mu.Unlock()
	if full {
		c.pump()
	}
}

// over records that asynq has acknowledged a task, possibly without having called a handler.
func (c *source) over(taskID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.coming, taskID)
	delete(c.ending, taskID)
	c.calm()
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
