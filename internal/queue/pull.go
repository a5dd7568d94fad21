package queue

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
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
