package deadletter

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Filter selects parked jobs. An empty filter selects all.
type Filter struct {
	Reasons []job.Reason
	Batch   string
	Since   time.Time // parked at or after
	Until   time.Time // parked before
	IDs     []string
	Match   *regexp.Regexp // of the error
	Lane    string         // empty means any, or none
	Route   string         // likewise
	Limit   int            // at most this many, oldest first; 0 means no limit
	// InDoubt selects only jobs that may have been charged, whatever their reason.
	InDoubt bool
	// Waiting also selects those of IDs that are not parked but wait for their call.
	Waiting bool
	// After is the Cursor of a job: it selects only jobs parked after it, whether it still exists or not. 0
	// means from the first.
	After int64
	// NoPayload skips reading the payloads.
	NoPayload bool
	// ForBulkRun reads only what a BulkRun and its rules need of each record, which halves the time: the
	// history only of refused jobs, the error only for Match, no attempts, no acceptance time.
	ForBulkRun bool
	// PayloadOf selects the jobs whose payloads are read, unless NoPayload is set: nil means all.
	PayloadOf func(job.Record) bool
	// Looked is called with the number of jobs whose error was examined for Match; nil: not called.
	Looked func(jobs int)
}

// Cursor returns a parked job's place in its gateway's order, for Filter.After: the time of its parking in µs,
// which is unique.
func Cursor(r job.Record) int64 { return r.ParkedAt.UnixMicro() }

// List yields the parked jobs that the filter selects, oldest first. It reads pages after the last job seen, so
// jobs that come and go meanwhile neither repeat nor hide others.
func (s *Store) List(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
	found := s.meant(ctx, f)
	if f.NoPayload {
		return found
	}
	return s.withPayloads(ctx, found, f.PayloadOf)
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
	case r.State != job.Parked && !(f.Waiting && r.Waits()),
		f.InDoubt && !r.InDoubt(),
		len(f.Reasons) > 0 && !slices.Contains(f.Reasons, r.Reason),
		f.Batch != "" && r.Job.Batch != f.Batch,
		f.Lane != "" && r.Job.Lane != f.Lane,
		f.Route != "" && r.Job.Route != f.Route,
		!f.Since.IsZero() && r.ParkedAt.Before(f.Since),
		!f.Until.IsZero() && !r.ParkedAt.Before(f.Until),
		f.After > 0 && Cursor(r) <= f.After,
		f.Match != nil && !f.Match.MatchString(r.Error):
		return false
	}
	return true
}

func (s *Store) candidates(ctx context.Context, f Filter) iter.Seq2[job.Record, error] {
	if len(f.IDs) > 0 {
		return s.byID(ctx, f.IDs)
	}
	return s.merge(ctx, f.reasons(), f)
}

// reasons returns the reasons that the filter selects, each once.
func (f Filter) reasons() []job.Reason {
	if len(f.Reasons) == 0 && f.InDoubt { // a foreign task was never called
		return slices.DeleteFunc(job.Reasons(), func(r job.Reason) bool { return r == job.Unreadable })
	}
	if len(f.Reasons) == 0 {
		return job.Reasons()
	}
	return slices.Compact(slices.Sorted(slices.Values(f.Reasons)))
}

func (s *Store) byID(ctx context.Context, ids []string) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		var found []job.Record
		for some := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), page) {
			records, err := s.records(ctx, some, record.Listed())
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

// merge walks the reasons' sorted sets in parallel and yields the oldest job each time.
func (s *Store) merge(ctx context.Context, reasons []job.Reason, f Filter) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		cursors := make([]*cursor, len(reasons))
		for i, r := range reasons {
			cursors[i] = s.cursor(r, &f)
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

// fields returns the fields to read of jobs parked for a reason.
func (f Filter) fields(r job.Reason) []string {
	if !f.ForBulkRun {
		return record.Listed()
	}
	few := []string{"state", "generation", "reason", "parked_at", "cost", "expires_at", "first_call_at", "may_have_charged", "edited_at", "replays", "money"}
	if r == job.Refused {
		few = append(few, "history")
	}
	if f.Batch != "" {
		few = append(few, "batch")
	}
	if f.Lane != "" {
		few = append(few, "lane")
	}
	if f.Route != "" {
		few = append(few, "route")
	}
	if f.Match != nil {
		few = append(few, "error")
	}
	return few
}

// records reads these fields of the records with these ids, in order. A missing record is empty.
func (s *Store) records(ctx context.Context, ids, fields []string) ([]job.Record, error) {
	records := make([]job.Record, len(ids))
	return records, s.recordsInto(ctx, records, ids, fields)
}

// recordsInto is records with memory for them.
func (s *Store) recordsInto(ctx context.Context, records []job.Record, ids, fields []string) error {
	return s.visit(ctx, ids, fields, func(i int, h map[string]string) { records[i] = record.Parse(s.gateway, ids[i], h) })
}

// payloads is how many payloads are read at once: each may be a megabyte.
const payloads = 64

// withPayloads adds the payloads of the jobs that of selects (nil: all), a few at a time. Such a job is left
// out if it has gone meanwhile.
func (s *Store) withPayloads(ctx context.Context, found iter.Seq2[job.Record, error], of func(job.Record) bool) iter.Seq2[job.Record, error] {
	if of == nil {
		of = func(job.Record) bool { return true }
	}
	return func(yield func(job.Record, error) bool) {
		some := make([]job.Record, 0, payloads)
		for r, err := range found {
			if err != nil {
				yield(job.Record{}, err)
				return
			}
			if len(some) == 0 && !of(r) {
				if !yield(r, nil) {
					return
				}
				continue
			}
			if some = append(some, r); len(some) < payloads {
				continue
			}
			if !s.yieldWhole(ctx, some, of, yield) {
				return
			}
			some = some[:0]
		}
		s.yieldWhole(ctx, some, of, yield)
	}
}

// yieldWhole yields some jobs, with the payloads of those that of selects. It reports whether to continue.
func (s *Store) yieldWhole(ctx context.Context, some []job.Record, of func(job.Record) bool, yield func(job.Record, error) bool) bool {
	var ids []string
	for _, r := range some {
		if of(r) {
			ids = append(ids, r.Job.ID)
		}
	}
	found, err := s.read(ctx, ids, append([]string{"state", "generation", "reason", "digest"}, record.PayloadFields()...))
	if err != nil {
		yield(job.Record{}, err)
		return false
	}
	for _, r := range some {
		if of(r) {
			h := found[0]
			found = found[1:]
			if h["state"] != string(job.Parked) || h["generation"] != strconv.FormatInt(r.Generation, 10) {
				continue
			}
			var stored []byte
			if stored, r.Unopened = record.PayloadOf(s.gateway, r.Job.ID, h); r.Unopened == nil {
				r.Job.Payload, r.Sealed, r.Unopened = s.box.Reveal(r.Job.ID, stored, h["digest"], h["reason"] == string(job.Unreadable))
			}
		}
		if !yield(r, nil) {
			return false
		}
	}
	return true
}

// read returns fields of the records with these ids.
func (s *Store) read(ctx context.Context, ids, fields []string) ([]map[string]string, error) {
	found := make([]map[string]string, len(ids))
	err := s.visit(ctx, ids, fields, func(i int, h map[string]string) { found[i] = maps.Clone(h) })
	return found, err
}

// perConnection is how many records each of the parallel connections reads at once.
const perConnection = 128

// visit calls see with fields of the records with these ids. Several connections read in parallel, so that
// Redis works on some while other replies are decoded. see is called from several goroutines, once for each
// record. Its map is reused after it returns.
func (s *Store) visit(ctx context.Context, ids, fields []string, see func(i int, h map[string]string)) error {
	var wg sync.WaitGroup
	errs := make([]error, (len(ids)+perConnection-1)/perConnection)
	for n := range errs {
		from, to := n*perConnection, min((n+1)*perConnection, len(ids))
		wg.Go(func() {
			errs[n] = s.visitSome(ctx, ids[from:to], fields, func(i int, h map[string]string) { see(from+i, h) })
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// visitSome is visit in one round trip.
func (s *Store) visitSome(ctx context.Context, ids, fields []string, see func(i int, h map[string]string)) (failed error) {
	record.Reader{C: s.c, Keys: s.keys, Fields: fields}.Read(ctx, ids, func(i int, h map[string]string, err error) {
		switch {
		case redisdb.DamagedKeyOf(err, s.keys.Job(ids[i])): // it must not hide others
			h["state"], h["reason"], h["error"] = string(job.Parked), string(job.Unreadable), err.Error()
		case err != nil:
			failed = cmp.Or(failed, s.unread(err))
		}
		see(i, h)
	})
	return failed
}

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

// set returns the sorted set of a reason's jobs, or of those of one batch.
func (s *Store) set(r job.Reason, batch string) string {
	if batch != "" {
		return s.keys.ParkedBatch(string(r), batch)
	}
	return s.keys.Parked(string(r))
}
