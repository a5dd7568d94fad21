package deadletter

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Heap is the number of jobs parked for one reason, and when the oldest was parked.
type Heap struct {
	Jobs   int64
	Oldest time.Time
}

// Countable reports whether Count supports the filter: it needs no look at individual jobs.
func (f Filter) Countable() bool {
	return len(f.IDs) == 0 && !f.InDoubt && f.Match == nil && f.Lane+f.Route == "" && f.Limit == 0 && f.After == 0
}

// Count counts the jobs of a countable filter, by reason, all at one moment. The cost does not depend on their
// number. Reasons without jobs are left out.
func (s *Store) Count(ctx context.Context, f Filter) (map[job.Reason]Heap, error) {
	reasons := f.reasons()
	counts, firsts := make([]*redis.IntCmd, len(reasons)), make([]*redis.ZSliceCmd, len(reasons))
	if _, err := s.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range reasons {
			set, from, to := s.set(r, f.Batch), since(f.Since), until(f.Until)
			counts[i] = p.ZCount(ctx, set, from, to)
			firsts[i] = p.ZRangeByScoreWithScores(ctx, set, &redis.ZRangeBy{Min: from, Max: to, Count: 1})
		}
		return nil
	}); err != nil {
		return nil, s.unread(err)
	}
	heaps := map[job.Reason]Heap{}
	for i, r := range reasons {
		if first := firsts[i].Val(); len(first) > 0 {
			heaps[r] = Heap{counts[i].Val(), time.UnixMicro(int64(first[0].Score)).UTC()}
		}
	}
	return heaps, nil
}
