package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// slowRecent is how long it counts that a process said so: it says so every other second.
const slowRecent = 10 * time.Second

// Slow says of a process that it is too slow for what its gateways allow. The zero Slow: it is not.
type Slow struct {
	Process string // HOST.PID
	For     time.Duration
	Slots   int64 // how many it may have in hand
}

// SlowSince is a process that is too slow for what its gateways allow.
type SlowSince struct {
	Process string // HOST.PID
	Since   time.Time
	Slots   int64 // how many it may have in hand
}

// SlowOnes returns the processes that serve a gateway and are too slow at a moment of Redis's clock, by their names.
func SlowOnes(ctx context.Context, c redis.UniversalClient, gateway string, now time.Time) ([]SlowSince, error) {
	said, err := c.HGetAll(ctx, redisdb.NewKeys(gateway).Slow()).Result()
	if err != nil {
		return nil, err
	}
	var all []SlowSince
	for process, text := range said {
		var since, seen, slots int64
		if _, err := fmt.Sscan(text, &since, &seen, &slots); err == nil && now.Sub(record.Moment(seen)) < slowRecent {
			all = append(all, SlowSince{process, record.Moment(since), slots})
		}
	}
	slices.SortFunc(all, func(a, b SlowSince) int { return cmp.Compare(a.Process, b.Process) })
	return all, nil
}
