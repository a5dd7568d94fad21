package deadletter

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// ByItself replaces an act's audit entry when ledger.Books.Readmit admits what Again returned. The script
// counts these replays of each job, so that the next one comes later, and none after the last.
func ByItself() string { return "again" }

// Again returns up to n jobs parked as exhausted that are due for an automatic replay. left is how many the
// rules hold back: these stay parked for an operator.
func (s *Store) Again(ctx context.Context, r Rules, n int64) (jobs []job.Return, left int, err error) {
	due := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(r.Now.UnixMicro(), 10), Count: n}
	ids, err := s.c.ZRangeByScore(ctx, s.keys.Again(), due).Result()
	if err != nil {
		return nil, 0, s.unread(err)
	}
	records, err := s.records(ctx, ids, record.Listed())
	if err != nil {
		return nil, 0, err
	}
	for i, rec := range records {
		change, why := r.Key(rec)
		if rec.State == job.Parked && rec.Reason == job.Exhausted && why == "" && change == job.KeepKey {
			jobs = append(jobs, job.Return{ID: ids[i], Generation: rec.Generation, Reason: rec.Reason, Key: change})
			continue
		}
		if err := s.c.ZRem(ctx, s.keys.Again(), ids[i]).Err(); err != nil {
			return nil, left, s.unread(err)
		}
		left++
	}
	return jobs, left, nil
}
