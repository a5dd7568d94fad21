package queue

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

//go:embed dequeue.lua
var dequeueLua string

var dequeueScript = redisdb.NewSharedScript(redisdb.NowLua, dequeueLua)

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

// pullFor returns the jobs for slots and how long that took. A job comes with its slot, or is pulled now.
func pullFor(ctx context.Context, slots []job.Slot, pull puller) (cmds []*redis.Cmd, took time.Duration) {
	if !slices.ContainsFunc(slots, func(s job.Slot) bool { return s.Task != "" }) {
		begun := time.Now()
		cmds = pull(slots)
		return cmds, time.Since(begun)
	}
	for i, s := range slots {
		cmd := nothing(ctx)
		if s.Task != "" {
			cmd = redis.NewCmd(ctx)
			cmd.SetVal(s.Message)
		}
		cmds, slots[i].Task, slots[i].Message = append(cmds, cmd), "", "" // the slot's job is passed on
	}
	return cmds, 0
}

// puller pulls a job for each slot in one round trip. It returns as many replies; those without a job are like
// the reply of an empty queue.
type puller func(slots []job.Slot) []*redis.Cmd

// pull pulls tasks, whose leases begin now.
func (c *source) pull(slots []job.Slot) []*redis.Cmd {
	ctx := context.Background()
	w := wanted{most: len(slots), order: *c.order.Load()}
	for _, s := range slots {
		w.ahead = w.ahead || s.Probe
		if s.Costly {
			w.slot = max(w.slot, s.At)
		}
	}
	tasks, err := pull(ctx, c.redis, c.keys, w)
	cmds := make([]*redis.Cmd, len(slots))
	for i := range cmds {
		cmds[i] = redis.NewCmd(ctx)
		switch {
		case err != nil:
			cmds[i].SetErr(err)
		case i < len(tasks) && tasks[i].message != "":
			cmds[i].SetVal(tasks[i].message)
		default:
			cmds[i].SetErr(redis.Nil)
		}
	}
	return cmds
}

// order is the order in which jobs never called are pulled, as dequeue.lua reads it. The zero order means that
// the gateway has no classes.
type order struct {
	keys []string
	text string
}

// FirstLines returns the lines of a gateway's jobs that were never called, class by class, the highest first.
// It returns nil without classes.
func FirstLines(gateway string, classes []job.Class) (lines []string) {
	return orderOf(redisdb.NewKeys(gateway), classes).lines()
}

func (o order) lines() []string {
	if len(o.keys) == 0 {
		return nil
	}
	return o.keys[1:]
}

func orderOf(k redisdb.Keys, classes []job.Class) (o order) {
	if len(classes) == 0 {
		return order{}
	}
	o.keys = []string{k.Classes()}
	for _, c := range classes {
		lines := []string{k.First(c.Name)}
		if c.Usual {
			lines = append([]string{k.Due()}, append(lines, k.Pending())...) // the default lines hold jobs from a time when another class was the default
		}
		o.keys = append(o.keys, lines...)
		o.text += fmt.Sprintf("%s %d %d ", c.Name, c.Floor, len(lines))
	}
	return o
}

// Order sets the classes by which jobs are pulled from now on, the highest first. Without classes, lines alone
// set the order, as before the first call of Order.
func (s *Server) Order(classes []job.Class) {
	s.src.order.Store(new(orderOf(redisdb.NewKeys(s.cfg.Gateway), classes)))
}

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
	if slot, has := c.ready[p.task]; has && c.pacer.Passed(slot) {
		delete(c.ready, p.task)
		c.leave([]job.Slot{slot})
	}
	c.coming[p.task] = now
	return p, true, len(c.jobs) > 0
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
		_ = c.pacer.Release(ctx, slots...)
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

// over records that asynq has acknowledged a task, possibly without having called a handler. Then its place is
// free again.
func (c *source) over(taskID string) {
	c.mu.Lock()
	full := c.free() <= 0
	delete(c.coming, taskID)
	delete(c.ending, taskID)
	freed := full && c.free() > 0
	c.calm()
	c.mu.Unlock()
	if freed {
		c.pump()
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
