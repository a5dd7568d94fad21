package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Node returns the Redis that holds a key, for what is asked of one server and not of a key, as SCAN is: of a cluster, the
// primary that has the key's slot now.
func Node(ctx context.Context, c redis.UniversalClient, key string) (redis.Cmdable, error) {
	if cluster, ok := c.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return c, nil
}
