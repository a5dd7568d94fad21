package deadletter

import (
	"context"
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
	// NoPayload leaves the payloads out, which saves reading them.
	NoPayload bool
}

// page is how many records one look at Redis reads, without their payloads: constant memory, however many are parked.
const page = 500

// List yields the parked jobs that the filter means, oldest first. It reads page by page behind the last job seen, so
// jobs that come and go meanwhile neither repeat nor hide others.
func (s *Store) List(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
	found := s.meant(ctx, f)
	if f.NoPayload {
		return found
	}
	return s.withPayloads(ctx, found)
}

func (s *Store) meant(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
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
	return s.merge(ctx, slices.Compact(slices.Sorted(slices.Values(reasons))), f)
}

func (s *Store) byID(ctx context.Context, ids []string) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		var found []job.Record
		for some := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), page) {
			records, err := s.records(ctx, some)
			if err != nil {
				yield(job.Record{}, err)
				return
			}
			found = append(found, records...)
		}
		slices.SortFunc(found, func(a, b job.Record) int { return a.ParkedAt.Compare(b.ParkedAt) })
		for _, r := range found {
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
			cursors[i] = &cursor{store: s, reason: r, from: since(f.Since), to: until(f.Until)}
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

// cursor walks one reason's sorted set. No two scores of a gateway are the same, so the last one seen says where to go on.
type cursor struct {
	store    *Store
	reason   job.Reason
	from, to string
	ready    []job.Record
	ended    bool
}

func (c *cursor) fill(ctx context.Context) error {
	for len(c.ready) == 0 && !c.ended {
		set := c.store.keys.Parked(string(c.reason))
		found, err := c.store.c.ZRangeByScoreWithScores(ctx, set, &redis.ZRangeBy{Min: c.from, Max: c.to, Count: page}).Result()
		if err != nil {
			return c.store.unread(err)
		}
		c.ended = len(found) < page
		if len(found) == 0 {
			return nil
		}
		c.from = "(" + strconv.FormatInt(int64(found[len(found)-1].Score), 10)
		if err := c.read(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// read keeps the records that still are what the set said: a job that was replayed and parked again since then comes
// at its new place.
func (c *cursor) read(ctx context.Context, found []redis.Z) error {
	ids := make([]string, len(found))
	for i, z := range found {
		ids[i], _ = z.Member.(string)
	}
	records, err := c.store.records(ctx, ids)
	if err != nil {
		return err
	}
	for i, r := range records {
		if r.ParkedAt.UnixMicro() == int64(found[i].Score) {
			c.ready = append(c.ready, r)
		}
	}
	return nil
}

func (c *cursor) pop() job.Record {
	r := c.ready[0]
	c.ready = c.ready[1:]
	return r
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-inf"
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

func until(t time.Time) string {
	if t.IsZero() {
		return "+inf"
	}
	return "(" + strconv.FormatInt(t.UnixMicro(), 10)
}
