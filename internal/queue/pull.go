package queue

import (
	"context"
	_ "embed" // the script is a file
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

//go:embed dequeue.lua
var dequeueLua string

var dequeueScript = redisdb.NewScript(dequeueLua)

// puller pulls n jobs in one round trip: a single one by asynq's own script, several by one that does the same for all of them at once. There is
// an answer for each; those that there was no job for are as of an empty queue.
type puller func(n int) []*redis.Cmd

func (c *gatedClient[T]) puller(ctx context.Context, keys []string, args []any, one func() *redis.Cmd) puller {
	return func(n int) []*redis.Cmd {
		cmds := make([]*redis.Cmd, n)
		if n == 1 {
			cmds[0] = one()
			return cmds
		}
		messages, err := dequeueScript.Run(ctx, c.UniversalClient, keys, append(slices.Clone(args), n)...).Slice()
		if err == nil && len(messages) > n {
			err = fmt.Errorf("dequeue.lua: %d messages for %d tasks", len(messages), n)
		}
		for i := range cmds {
			cmds[i] = redis.NewCmd(ctx)
			switch {
			case err != nil:
				cmds[i].SetErr(err)
			case i < len(messages) && messages[i] != nil:
				cmds[i].SetVal(messages[i])
			default:
				cmds[i].SetErr(redis.Nil)
			}
		}
		return cmds
	}
}
