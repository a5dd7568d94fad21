package queue

import (
	"context"
	_ "embed" // the script is a file
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

// wanted is what to pull.
type wanted struct {
	// leases is when the leases of the tasks end, in Unix seconds.
	leases int64
	// most is how many tasks are pulled at most; at least 1.
	most int
	// ahead says that the call is sent ahead after a hold, to see whether the gateway is back: a job goes that was never called, if there is one.
	ahead bool
	// order is that of jobs that were never called.
	order order
}

// activeTask is a task that was pulled. Its message is empty if it has none.
type activeTask struct{ id, message string }

// pull takes tasks out of a gateway's queue, as asynq's dequeue does, in the order in which the queue's lines take turns. None is no error.
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

// pullFor returns the jobs for slots, and how long it took: those that came with them, or what is pulled now.
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
		cmds, slots[i].Task, slots[i].Message = append(cmds, cmd), "", "" // the job is in other hands now
	}
	return cmds, 0
}

// puller pulls n jobs in one round trip. There is an answer for each; those that there was no job for are as of an empty queue.
type puller func(n int, ahead bool) []*redis.Cmd

// pull pulls tasks, and lends them from now on.
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
