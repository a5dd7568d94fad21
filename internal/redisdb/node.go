package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Node returns the Redis that holds a key, for commands that concern a server instead of a key, such as SCAN: in a
// cluster, the primary that currently has the key's slot.
func Node(ctx context.Context, c redis.UniversalClient, key string) (redis.Cmdable, error) {
	if cluster, ok := c.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c, nil
}
