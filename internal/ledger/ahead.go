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
	lines, at := make([]*redis.IntCmd, 4), make([]*redis.IntCmd, 4)
	task := job.TaskID(r.Job.ID, r.Generation)
	_, err = b.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, line := range b.keys.Lines() {
			lines[i] = p.LLen(ctx, line)
			at[i] = p.LPos(ctx, line, task, redis.LPosArgs{Rank: -1, MaxLen: aheadMost})
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Ahead{}, false, err
	}
	var long [4]int64
	longest := int64(0)
	for i := range lines {
		long[i] = lines[i].Val()
		longest = max(longest, long[i])
	}
	for i := range at {
		if at[i].Err() == nil {
			return Ahead{Jobs: ahead(i, long[i]-1-at[i].Val(), long)}, true, nil
		}
	}
	if longest > aheadMost {
		return Ahead{aheadMost, true}, true, nil
	}
	return Ahead{}, false, nil
}

// ahead is how many jobs go before the one at a place in a line of the queue, as dequeue.lua has them take turns: jobs that were never called, the
// due ones first, with the retries, and the retries before the replays.
func ahead(line int, place int64, long [4]int64) int64 {
	if line == 1 || line == 3 {
		place += long[line-1]
	}
	if line < 2 {
		return place + min(place+1, long[2]+long[3])
	}
	return place + min(place, long[0]+long[1])
}
