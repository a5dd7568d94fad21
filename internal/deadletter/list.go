package deadletter

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
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
	// ForClearing reads only what a Clearing and its rules need of each record, which halves the time: the
	// history only of refused jobs, the error only for Match, no attempts, no acceptance time.
	ForClearing bool
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
