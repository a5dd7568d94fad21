package redisdb

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Gateways is the register: the names of all gateways that ever had jobs (set). It has no hash tag, since it is what finds the gateways of a cluster.
const Gateways = "spillway:gateways"

// AsynqQueues is asynq's own set of the names of all queues. A dispatcher writes the gateways that it serves there; other users of asynq write theirs.
const AsynqQueues = "asynq:queues"

// Register writes a gateway's name into the register. That is done before the first job goes in: what is not there is found by nobody whose file does
// not have it.
func Register(ctx context.Context, c redis.UniversalClient, gateway string) error {
	return c.SAdd(ctx, Gateways, gateway).Err()
}

// Registered returns the names of all gateways that may have jobs, in order: those of the register, and those of asynq's queues, which older versions
// wrote alone.
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

// Unregister takes a gateway's name out of both sets.
func Unregister(ctx context.Context, c redis.UniversalClient, gateway string) error {
	for _, set := range []string{Gateways, AsynqQueues} {
		if err := c.SRem(ctx, set, gateway).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Forgotten is the entries of the gateways that were forgotten: who, when, why and what there was (hash: "NAME µs", JSON). Nothing is ever trimmed from it.
const Forgotten = "spillway:forgotten"

// Starts are what the names of all keys of a gateway begin with.
func Starts(gateway string) []string {
	k := NewKeys(gateway)
	return []string{k.own, k.asynq}
}

// EachPrimary asks the one Redis there is, or every primary of a cluster.
func EachPrimary(ctx context.Context, c redis.UniversalClient, ask func(context.Context, redis.UniversalClient) error) error {
	return eachPrimary(ctx, c, ask)
}
