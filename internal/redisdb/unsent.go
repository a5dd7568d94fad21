package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// unsent gives the commands of a pipeline that was not sent the error of the pipeline. If Redis refuses a new
// connection (BUSY, LOADING), the driver returns that error but leaves the commands with neither a reply nor an error.
// Code that checks a single command, as the queue does for each dequeue, would take that for an empty reply.
type unsent struct{}

// DialHook implements redis.Hook.
func (unsent) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (unsent) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (unsent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil {
			return nil
		}
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return err // those without an error have their replies
			}
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}
