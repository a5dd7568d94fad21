package deadletter

import (
	"context"
	"iter"
	"maps"
	"strconv"

	"spillway/internal/job"
	"spillway/internal/record"
)

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

// payloads is how many payloads are read at once: each may be a megabyte.
const payloads = 64
