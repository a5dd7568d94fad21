package testkit

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// migrateWithin bounds how long a node may take to answer another one that sends it keys, in milliseconds.
const migrateWithin = 60_000

// MoveSlot moves the slot of a key to another node, key by key, as an operator's reshard does. It calls halfway, if not nil, when half of the
// keys have moved, and the cluster answers ASK and TRYAGAIN.
func (c *RedisCluster) MoveSlot(key string, from, to *RedisServer, halfway func()) {
	c.Nodes[0].t.Helper()
	ctx := context.Background()
	src, dst := connect(from.Addr()), connect(to.Addr())
	defer func() { _, _ = src.Close(), dst.Close() }()
	slot, srcID, dstID := c.slot(key), src.ClusterMyID(ctx).Val(), dst.ClusterMyID(ctx).Val()
	c.must(dst.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", srcID).Err())
	c.must(src.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", dstID).Err())
	if n := src.ClusterCountKeysInSlot(ctx, int(slot)).Val(); n > 1 {
		c.migrate(ctx, src, to, int(slot), int(n)/2)
	}
	if halfway != nil {
		halfway()
	}
	for c.migrate(ctx, src, to, int(slot), 100) > 0 {
	}
	c.must(dst.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", dstID).Err())
	c.must(src.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", dstID).Err())
}

// migrate moves a number of keys of a slot and returns how many it has moved.
func (c *RedisCluster) migrate(ctx context.Context, src *redis.Client, to *RedisServer, slot, n int) int {
	keys, err := src.ClusterGetKeysInSlot(ctx, slot, n).Result()
	c.must(err)
	if len(keys) == 0 {
		return 0
	}
	args := []any{"MIGRATE", "127.0.0.1", to.lp.port, "", 0, migrateWithin, "KEYS"}
	for _, k := range slices.Sorted(slices.Values(keys)) {
		args = append(args, k)
	}
	c.must(src.Do(ctx, args...).Err())
	return len(keys)
}
