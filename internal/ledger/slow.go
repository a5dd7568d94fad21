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

// slowRecent is how long a process's report counts. Reports come every other second.
const slowRecent = 10 * time.Second

// Slow reports that a process is too slow for its gateways' limits. The zero Slow reports nothing.
type Slow struct {
	Process string // HOST.PID
	For     time.Duration
	Slots   int64 // its limit of jobs in flight
}

// SlowSince is a process that is too slow for its gateways' limits.
type SlowSince struct {
	Process string // HOST.PID
	Since   time.Time
	Slots   int64 // its limit of jobs in flight
}

// SlowOnes returns the processes serving a gateway that are too slow at a time on Redis's clock, sorted by
// name.
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
