package queue

import (
	"context"
	_ "embed" // for the script
	"slices"

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
