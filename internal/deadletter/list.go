package deadletter

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// Filter says which parked jobs are meant. An empty filter means all.
type Filter struct {
	Reasons []job.Reason
	Batch   string
	Since   time.Time // parked at or after
	Until   time.Time // parked before
	IDs     []string
	Match   *regexp.Regexp // on the error
	Limit   int            // at most so many, oldest first; 0 means no limit
}

// page is how many records one look at Redis reads: constant memory, however many are parked.
const page = 500

// List yields the parked jobs that the filter means, oldest first. It reads page by page behind the last job seen, so
// jobs that come and go meanwhile neither repeat nor hide others.
func (s *Store) List(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		left := f.Limit
		for r, err := range s.candidates(ctx, f) {
			if err != nil {
				yield(job.Record{}, err)
				return
			}
			if !f.means(r) {
				continue
			}
			if !yield(r, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

func (f Filter) means(r job.Record) bool {
	switch {
	case r.State != job.Parked,
		len(f.Reasons) > 0 && !slices.Contains(f.Reasons, r.Reason),
		f.Batch != "" && r.Job.Batch != f.Batch,
		!f.Since.IsZero() && r.ParkedAt.Before(f.Since),
		!f.Until.IsZero() && !r.ParkedAt.Before(f.Until),
		f.Match != nil && !f.Match.MatchString(r.Error):
		return false
	}
	return true
}

func (s *Store) candidates(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
	if len(f.IDs) > 0 {
		return s.byID(ctx, f.IDs)
	}
	reasons := f.Reasons
	if len(reasons) == 0 {
		reasons = job.Reasons()
	}
	return s.merge(ctx, reasons, f)
}

func (s *Store) byID(ctx context.Context, ids []string) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		records, err := s.records(ctx, slices.Compact(slices.Sorted(slices.Values(ids))))
		if err != nil {
			yield(job.Record{}, err)
			return
		}
		slices.SortFunc(records, func(a, b job.Record) int { return a.ParkedAt.Compare(b.ParkedAt) })
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// merge reads the reasons' sorted sets side by side and yields the oldest job of all each time.
func (s *Store) merge(ctx context.Context, reasons []job.Reason, f Filter) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		cursors := make([]*cursor, len(reasons))
		for i, r := range reasons {
			cursors[i] = &cursor{store: s, set: s.keys.Parked(string(r)), from: bound(f.Since, "-inf"), to: before(f.Until)}
		}
		for {
			oldest, err := pick(ctx, cursors)
			if err != nil {
				yield(job.Record{}, err)
				return
			}
			if oldest == nil || !yield(oldest.pop(), nil) {
				return
			}
		}
	}
}

func pick(ctx context.Context, cursors []*cursor) (*cursor, error) {
	var oldest *cursor
	for _, c := range cursors {
		if err := c.fill(ctx); err != nil {
			return nil, err
		}
		if len(c.ready) > 0 && (oldest == nil || c.ready[0].ParkedAt.Before(oldest.ready[0].ParkedAt)) {
			oldest = c
		}
	}
	return oldest, nil
}

// cursor walks one reason's sorted set.
type cursor struct {
	store    *Store
	set      string
	from, to string
	ready    []job.Record
	ended    bool
}

func (c *cursor) fill(ctx context.Context) error {
	for len(c.ready) == 0 && !c.ended {
		found, err := c.store.c.ZRangeByScoreWithScores(ctx, c.set, &redis.ZRangeBy{Min: c.from, Max: c.to, Count: page}).Result()
		if err != nil {
			return fmt.Errorf("read the dead letters of %s: %w", c.store.gateway, err)
		}
		if len(found) < page {
			c.ended = true
		}
		if len(found) == 0 {
			return nil
		}
		c.from = "(" + strconv.FormatFloat(found[len(found)-1].Score, 'f', 0, 64)
		ids := make([]string, len(found))
		for i, z := range found {
			ids[i], _ = z.Member.(string)
		}
		if c.ready, err = c.store.records(ctx, ids); err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) pop() job.Record {
	r := c.ready[0]
	c.ready = c.ready[1:]
	return r
}

// records reads the records of jobs that are parked right now, in the order of ids.
func (s *Store) records(ctx context.Context, ids []string) ([]job.Record, error) {
	cmds := make([]*redis.MapStringStringCmd, len(ids))
	if _, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HGetAll(ctx, s.keys.Job(id))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the dead letters of %s: %w", s.gateway, err)
	}
	records := make([]job.Record, 0, len(ids))
	for i, cmd := range cmds {
		if h := cmd.Val(); h["s"] == string(job.Parked) {
			records = append(records, job.ParseRecord(s.gateway, ids[i], h))
		}
	}
	return records, nil
}

func bound(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

func before(t time.Time) string {
	if t.IsZero() {
		return "+inf"
	}
	return "(" + strconv.FormatInt(t.UnixMicro(), 10)
}
