package deadletter

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"strconv"
	"sync"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// fields returns the fields to read of jobs parked for a reason.
func (f Filter) fields(r job.Reason) []string {
	if !f.ForClearing {
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
