package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// asynq may pull a task and never call a handler for it: one whose deadline has passed, or one it can't read. So a slot
// belongs to the task that was pulled at it, by its id, and one whose task never comes goes back when it has passed.

// pair keeps the slot for the handler of the task that a dequeue brought, and returns the task's id with the slots that nobody will
// ask for: this one, if the task can't be read (asynq can't either), or an earlier one of the same task.
func (c *gatedClient) pair(cmd *redis.Cmd, slot job.Slot) (id string, left []job.Slot) {
	text, _ := cmd.Text()
	m, ok := parseMessage([]byte(text))
	if !ok {
		return "", []job.Slot{slot}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, again := c.ready[m.id]; again {
		left = []job.Slot{earlier}
	}
	c.ready[m.id] = slot
	return m.id, left
}

// take returns the slot at which the task was pulled; the zero Slot if it has none, or none any more.
func (c *gatedClient) take(taskID string) job.Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.ready[taskID]
	delete(c.ready, taskID)
	return slot
}

// first returns the first job that was pulled, if there is one, for its handler to come for its slot.
func (c *gatedClient) first(ctx context.Context) *redis.Cmd {
	cmd, left := c.arrived()
	c.giveBack(ctx, left)
	return cmd
}

// arrived takes the first job that was pulled. If its slot has passed by now, its handler gets none, and it is left.
func (c *gatedClient) arrived() (cmd *redis.Cmd, left []job.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 {
		return nil, nil
	}
	first := c.jobs[0]
	c.jobs, c.used = c.jobs[1:], time.Now()
	if slot, ok := c.ready[first.task]; ok && c.gate.Passed(slot) {
		left = []job.Slot{slot}
		delete(c.ready, first.task)
	}
	return first.cmd, left
}

// passed returns the slots that have passed before a handler came for them, or before asynq came for a job: it calls handlers
// at once or never. Each look costs as much as there are slots: it is taken when there is nothing to do but wait.
func (c *gatedClient) passed() (left []job.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// unused returns every slot that no handler will ask for any more.
func (c *gatedClient) unused() (left []job.Slot) {
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

func (c *gatedClient) giveBack(ctx context.Context, slots []job.Slot) {
	if len(slots) > 0 {
		_ = c.gate.Release(ctx, slots...)
	}
}

// has notes that handlers have a job more in hand, or less.
func (c *gatedClient) has(more int) {
	c.mu.Lock()
	c.handling += more
	c.used = time.Now()
	c.mu.Unlock()
}
