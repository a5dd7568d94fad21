package ledger

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// aheadMost is how many places of the queue are searched for a job. It takes Redis less than 2 ms.
const aheadMost = 50_000

// Ahead is how many jobs are called before one. AtLeast says that there are more, because the job was not found
// within the search limit. InLane says that the count covers only the job's own lane, class and route.
type Ahead struct {
	Jobs            int64
	AtLeast, InLane bool
}

// Ahead returns how many jobs are called before r, which is queued or parked as rejected. With lanes, it counts
// the job's own flow. ok is false if the job is no longer in either place.
func (b *Books) Ahead(ctx context.Context, r job.Record) (a Ahead, ok bool, err error) {
	if r.State == job.Parked {
		n, err := b.c.ZRank(ctx, b.keys.Parked(string(r.Reason)), r.Job.ID).Result()
		if errors.Is(err, redis.Nil) {
			return Ahead{}, false, nil
		}
		return Ahead{Jobs: n}, err == nil, err
	}
	if len(b.cfg.Lanes) > 0 {
		for _, class := range slices.Compact([]string{r.Job.Priority, ""}) {
			if a, ok, err := b.aheadIn(ctx, r, b.keys.FlowLines(class, r.Job.Route, r.Job.Lane)); ok || err != nil {
				a.InLane = ok
				return a, ok, err
			}
		}
	}
	return b.aheadIn(ctx, r, append(slices.Clone(b.fresh(r)), b.keys.Retries(), b.keys.Replays()))
}

// aheadIn is Ahead for a job in one of these lines. The last two hold jobs that were called before.
func (b *Books) aheadIn(ctx context.Context, r job.Record, all []string) (a Ahead, ok bool, err error) {
	lines, at := make([]*redis.IntCmd, len(all)), make([]*redis.IntCmd, len(all))
	task := job.TaskID(r.Job.ID, r.Generation)
	_, err = b.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, line := range all {
			lines[i] = p.LLen(ctx, line)
			at[i] = p.LPos(ctx, line, task, redis.LPosArgs{Rank: -1, MaxLen: aheadMost})
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Ahead{}, false, err
	}
	long, longest := make([]int64, len(all)), int64(0)
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
		return Ahead{Jobs: aheadMost, AtLeast: true}, true, nil
	}
	return Ahead{}, false, nil
}

// fresh returns the lines of jobs never called, including this job's, in the order in which they are pulled,
// without regard to floors.
func (b *Books) fresh(r job.Record) []string {
	lines := b.cfg.First
	if len(lines) == 0 {
		lines = []string{b.keys.Due(), b.keys.Pending()}
	}
	if own := b.keys.First(r.Job.Priority); r.Job.Priority != "" && !slices.Contains(lines, own) {
		lines = append(slices.Clone(lines), own)
	}
	return lines
}

// ahead returns how many jobs are called before the one at a place in a line, given how dequeue.lua alternates:
// jobs never called, line by line, alternate with retries, and retries go before replays. Those are the last
// two lines.
func ahead(line int, place int64, long []int64) int64 {
	first := len(long) - 2
	fresh, called := sum(long[:first]), sum(long[first:])
	if line < first {
		place += sum(long[:line])
		return place + min(place+1, called)
	}
	place += sum(long[first:line])
	return place + min(place, fresh)
}

func sum(of []int64) (all int64) {
	for _, n := range of {
		all += n
	}
	return all
}
