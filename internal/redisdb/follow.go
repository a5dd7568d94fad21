package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// follower makes a cluster's client reload the cluster state as soon as a node does not answer. By itself, the client
// learns of a failover only from a live node (MOVED), or within a minute, and would use the dead node until then.
type follower struct{ c *redis.ClusterClient }

// DialHook implements redis.Hook.
func (f follower) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f follower) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f.heed(next(ctx, cmd)) }
}

// ProcessPipelineHook implements redis.Hook.
func (f follower) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return f.heed(next(ctx, cmds)) }
}

func (f follower) heed(err error) error {
	if Away(err) {
		f.c.ReloadState(context.Background()) // in the background, one at a time
	}
	return err
}
