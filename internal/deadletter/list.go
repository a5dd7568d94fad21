package deadletter

import (
	"cmp"
	"context"
	"iter"
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

// ToCount makes a filter read only what counting jobs and their money takes, and a bulk run on them. It reads a
// payload only if the record does not contain the money. amounts says that the jobs have money.
func (f *Filter) ToCount(amounts bool) {
	f.ForBulkRun, f.NoPayload = true, !amounts
	f.PayloadOf = func(r job.Record) bool {
		_, booked := job.Booked(r.Money)
		return !booked
	}
}

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
			for _, r := range records {
				if r.State != "" { // otherwise there is none
					found = append(found, r)
				}
			}
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

const (
	// page is how many records are read at once, without payloads: memory use is constant, however many are
	// parked.
	page = 500
	// leastPage is how many records a short list reads at once.
	leastPage = 50
)

// cursor walks one reason's sorted set. All scores of a gateway differ, so the last one seen says where to
// continue.
type cursor struct {
	store  *Store
	set    string
	filter *Filter
	fields []string // fields read from a record
	from   string   // the lowest score still to be read
	to     string
	size   int          // of a page
	whole  []job.Record // the current page
	ready  []job.Record // what is left of it
	spare  []job.Record // the page before, in whose place another one is read: a page is large
	next   chan stretch // the next page, being read while the current one is used; nil if none is
	ended  bool
}

// stretch is a page of a set.
type stretch struct {
	records []job.Record
	from    string // where the next page begins
	last    bool
	looked  int // jobs skipped because no error of their part of the set matches
	err     error
}

func (s *Store) cursor(r job.Reason, f *Filter) *cursor {
	c := &cursor{store: s, set: s.set(r, f.Batch), filter: f, fields: f.fields(r), from: since(f.Since), to: until(f.Until), size: page}
	if f.Limit > 0 && f.Match == nil && f.Lane+f.Route == "" {
		c.size = min(max(f.Limit, leastPage), page)
	}
	if f.After > 0 && (f.Since.IsZero() || f.Since.UnixMicro() <= f.After) {
		c.from = behind(f.After)
	}
	c.ended = f.excludes(r)
	return c
}

// fill reads the next page when the current one is used up.
func (c *cursor) fill(ctx context.Context) error {
	for len(c.ready) == 0 && !c.ended {
		if c.next == nil {
			c.ahead(ctx)
		}
		got := <-c.next
		c.next = nil
		if got.err != nil {
			return got.err
		}
		c.spare, c.whole = c.whole, got.records
		c.ready, c.from, c.ended = got.records, got.from, got.last
		if c.filter.Looked != nil {
			c.filter.Looked(got.looked)
		}
		if !c.ended && c.size == page { // a short list may have enough
			c.ahead(ctx)
		}
	}
	return nil
}

// ahead starts to read the next page.
func (c *cursor) ahead(ctx context.Context) {
	from, into, next := c.from, c.spare, make(chan stretch, 1)
	c.next, c.spare = next, nil
	go func() { next <- c.stretch(ctx, from, into) }()
}

// stretch reads the next page, into memory that is free.
func (c *cursor) stretch(ctx context.Context, from string, into []job.Record) stretch {
	if c.filter.Match == nil {
		return c.page(ctx, from, into)
	}
	return c.matching(ctx, from, into)
}

// page reads the next records.
func (c *cursor) page(ctx context.Context, from string, into []job.Record) stretch {
	found, err := c.store.c.ZRangeByScoreWithScores(ctx, c.set, &redis.ZRangeBy{Min: from, Max: c.to, Count: int64(c.size)}).Result()
	if err != nil {
		return stretch{err: c.store.unread(err)}
	}
	if len(found) == 0 {
		return stretch{last: true}
	}
	some := c.read(ctx, found, into)
	some.from, some.last = behind(int64(found[len(found)-1].Score)), len(found) < c.size
	return some
}

// read reads records that still match the set: a job that was replayed and parked again since appears at its
// new place.
func (c *cursor) read(ctx context.Context, found []redis.Z, into []job.Record) stretch {
	ids := make([]string, len(found))
	for i, z := range found {
		ids[i], _ = z.Member.(string)
	}
	records := slices.Grow(into[:0], len(ids))[:len(ids)]
	if err := c.store.recordsInto(ctx, records, ids, c.fields); err != nil {
		return stretch{err: err}
	}
	kept := records[:0]
	for i := range records {
		if records[i].ParkedAt.UnixMicro() == int64(found[i].Score) {
			kept = append(kept, records[i])
		}
	}
	return stretch{records: kept}
}

func (c *cursor) pop() job.Record {
	r := c.ready[0]
	c.ready = c.ready[1:]
	return r
}

func behind(score int64) string { return "(" + strconv.FormatInt(score, 10) }

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
	return behind(t.UnixMicro())
}

// set returns the sorted set of a reason's jobs, or of those of one batch.
func (s *Store) set(r job.Reason, batch string) string {
	if batch != "" {
		return s.keys.ParkedBatch(string(r), batch)
	}
	return s.keys.Parked(string(r))
}

// fields returns the fields to read of jobs parked for a reason.
func (f Filter) fields(r job.Reason) []string {
	if !f.ForBulkRun {
		return record.Listed()
	}
	few := []string{"state", "generation", "reason", "parked_at", "cost", "expires_at", "first_call_at", "first_call_back", "may_have_charged", "edited_at", "replays", "money"}
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
