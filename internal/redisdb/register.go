package redisdb

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Gateways is the register: the names of all gateways that ever had jobs (set). It has no hash tag, because it is used
// to find the gateways of a cluster.
const Gateways = "spillway:gateways"

// AsynqQueues is asynq's own set of queue names. Dispatchers add the gateways that they serve; other users of asynq add
// their queues.
const AsynqQueues = "asynq:queues"

// Register adds a gateway to the register. That must happen before its first job is admitted: without an entry,
// programs that don't have the gateway configured would not find it.
func Register(ctx context.Context, c redis.UniversalClient, gateway string) error {
	return c.SAdd(ctx, Gateways, gateway).Err()
}

// Registered returns the names of all gateways that may have jobs, sorted: those in the register, and those of asynq's
// queues, which older versions used alone.
func Registered(ctx context.Context, c redis.UniversalClient) ([]string, error) {
	var names []string
	for _, set := range []string{Gateways, AsynqQueues} {
		some, err := c.SMembers(ctx, set).Result()
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Unregister removes a gateway from both sets.
func Unregister(ctx context.Context, c redis.UniversalClient, gateway string) error {
	for _, set := range []string{Gateways, AsynqQueues} {
		if err := c.SRem(ctx, set, gateway).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Forgotten is the entries of forgotten gateways: who, when, why and what there was (hash: "NAME µs", JSON). It is
// never trimmed.
const Forgotten = "spillway:forgotten"

// Starts returns the prefixes of the names of all keys of a gateway.
func Starts(gateway string) []string {
	k := NewKeys(gateway)
	return []string{k.own, k.asynq}
}

// EachPrimary calls ask for the single Redis, or for every primary of a cluster.
func EachPrimary(ctx context.Context, c redis.UniversalClient, ask func(context.Context, redis.UniversalClient) error) error {
	return eachPrimary(ctx, c, ask)
}
