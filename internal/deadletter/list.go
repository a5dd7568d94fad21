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

// Filter says which parked jobs are meant. An empty filter means all.
type Filter struct {
	Reasons []job.Reason
	Batch   string
	Since   time.Time // parked at or after
	Until   time.Time // parked before
	IDs     []string
	Match   *regexp.Regexp // on the error
	Lane    string         // empty means any, or none
	Route   string         // likewise
	Limit   int            // at most so many, oldest first; 0 means no limit
	// InDoubt means only jobs that may have been charged, whatever their reason.
	InDoubt bool
	// Waiting means those of IDs, too, that are not parked but wait for their call.
	Waiting bool
	// After is the Cursor of a job: only those parked behind it, whether it is still there or not. 0 means from the first.
	After int64
	// NoPayload leaves the payloads out, which saves reading them.
	NoPayload bool
	// ForClearing reads so much of each record as a Clearing and its rules need, which takes half the time: no history but of refused jobs, no
	// error but for Match, no attempts, and not when it was accepted.
	ForClearing bool
	// PayloadOf says which jobs' payloads are read, where NoPayload leaves them in: nil means all.
	PayloadOf func(job.Record) bool
	// Looked is told of jobs that were looked at for their error, since Match is answered by reading; nil means nobody asks.
	Looked func(jobs int)
}

// Cursor is a parked job's place in its gateway's order, for Filter.After: the time of its parking in µs, which no other has.
func Cursor(r job.Record) int64 { return r.ParkedAt.UnixMicro() }

// List yields the parked jobs that the filter means, oldest first. It reads page by page behind the last job seen, so
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

// reasons is the reasons that the filter means, each once.
func (f Filter) reasons() []job.Reason {
	if len(f.Reasons) == 0 && f.InDoubt { // what is no job was never called
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

// merge reads the reasons' sorted sets side by side and yields the oldest job of all each time.
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
