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

var dequeueScript = redisdb.NewSharedScript(dequeueLua)

// wanted says what to pull.
type wanted struct {
	// leases is the end of the pulled tasks' leases, in Unix seconds.
	leases int64
	// most is the most tasks to pull; at least 1.
	most int
	// ahead marks the pull for a probe after a hold, which checks whether the gateway is back: it prefers a job
	// that was never called.
	ahead bool
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
	keys, args := k.dequeue, []any{w.leases, k.TaskPrefix(), w.most, ahead}
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
		cmds = pull(len(slots), slices.ContainsFunc(slots, func(s job.Slot) bool { return s.Probe }))
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

// puller pulls n jobs in one round trip. It returns n replies; those without a job are like the reply of an
// empty queue.
type puller func(n int, ahead bool) []*redis.Cmd

// pull pulls tasks, whose leases begin now.
func (c *source) pull(n int, ahead bool) []*redis.Cmd {
	ctx := context.Background()
	tasks, err := pull(ctx, c.redis, c.keys, wanted{leases: time.Now().Add(leaseLength).Unix(), most: n, ahead: ahead, order: *c.order.Load()})
	cmds := make([]*redis.Cmd, n)
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
