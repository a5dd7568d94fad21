package ledger

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// aheadMost is how far into the queue a job is looked for: that takes Redis less than two milliseconds.
const aheadMost = 50_000

// Ahead is how many jobs go before one. AtLeast says that there are more: the job was not found among the first.
type Ahead struct {
	Jobs    int64
	AtLeast bool
}

// Ahead returns how many jobs go before this one, which is queued, or parked as rejected; ok is false if it stands in neither place any
// more.
func (b *Books) Ahead(ctx context.Context, r job.Record) (a Ahead, ok bool, err error) {
	if r.State == job.Parked {
		n, err := b.c.ZRank(ctx, b.keys.Parked(string(r.Reason)), r.Job.ID).Result()
		if errors.Is(err, redis.Nil) {
			return Ahead{}, false, nil
		}
		return Ahead{Jobs: n}, err == nil, err
	}
	var length, place *redis.IntCmd
	_, err = b.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		length = p.LLen(ctx, b.keys.Pending())
		place = p.LPos(ctx, b.keys.Pending(), job.TaskID(r.Job.ID, r.Generation), redis.LPosArgs{Rank: -1, MaxLen: aheadMost})
		return nil
	})
	switch {
	case errors.Is(err, redis.Nil) && length.Val() > aheadMost:
		return Ahead{aheadMost, true}, true, nil
	case errors.Is(err, redis.Nil):
		return Ahead{}, false, nil
	case err != nil:
		return Ahead{}, false, err
	}
	return Ahead{Jobs: length.Val() - 1 - place.Val()}, true, nil
}
