package deadletter

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/seal"
)

// allFields is what a listing reads of each record: all but the payload, which may have a megabyte, and what only live jobs have.
var allFields = []string{"s", "g", "k", "n", "y", "t", "c", "b", "at", "x", "f", "am", "r", "e", "pa", "st", "h", "ed", "m"}

// fields is what is read of the jobs that are parked for a reason.
func (f Filter) fields(r job.Reason) []string {
	if !f.ForClearing {
		return allFields
	}
	few := []string{"s", "g", "r", "pa", "c", "x", "f", "am", "ed", "y", "m"}
	if r == job.Refused {
		few = append(few, "h")
	}
	if f.Batch != "" {
		few = append(few, "b")
	}
	if f.Match != nil {
		few = append(few, "e")
	}
	return few
}

// records reads these fields of the records of these ids, in their order. One that is not there is empty.
func (s *Store) records(ctx context.Context, ids, fields []string) ([]job.Record, error) {
	records := make([]job.Record, len(ids))
	err := s.visit(ctx, ids, fields, func(i int, h map[string]string) { records[i] = job.ParseRecord(s.gateway, ids[i], h) })
	return records, err
}

// payloads is how many payloads are read at once: each may have a megabyte.
const payloads = 64

// withPayloads adds the payloads of those that of says (nil: of all), a few at a time. A job that has gone meanwhile is left out.
func (s *Store) withPayloads(ctx context.Context, found iter.Seq2[job.Record, error], of func(job.Record) bool) iter.Seq2[job.Record, error] {
	return func(yield func(job.Record, error) bool) {
		some := make([]job.Record, 0, payloads)
		for r, err := range found {
			if err != nil {
				yield(job.Record{}, err)
				return
			}
			if len(some) == 0 && of != nil && !of(r) {
				if !yield(r, nil) {
					return
				}
				continue
			}
			if some = append(some, r); len(some) < payloads {
				continue
			}
			if !s.yieldWhole(ctx, some, yield) {
				return
			}
			some = some[:0]
		}
		s.yieldWhole(ctx, some, yield)
	}
}

// yieldWhole reports whether to go on.
func (s *Store) yieldWhole(ctx context.Context, some []job.Record, yield func(job.Record, error) bool) bool {
	if len(some) == 0 {
		return true
	}
	ids := make([]string, len(some))
	for i, r := range some {
		ids[i] = r.Job.ID
	}
	found, err := s.read(ctx, ids, append([]string{"s", "g"}, job.PayloadFields()...))
	if err != nil {
		yield(job.Record{}, err)
		return false
	}
	for i, r := range some {
		if found[i]["s"] != string(job.Parked) || found[i]["g"] != strconv.FormatInt(r.Generation, 10) {
			continue
		}
		if r.Job.Payload = job.PayloadOf(found[i]); seal.Sealed(r.Job.Payload) {
			r.Sealed = r.Job.Payload
			r.Job.Payload, r.Unopened = s.box.Open(r.Job.ID, r.Sealed)
		}
		if !yield(r, nil) {
			return false
		}
	}
	return true
}

// read returns fields of the records of these ids.
func (s *Store) read(ctx context.Context, ids, fields []string) ([]map[string]string, error) {
	found := make([]map[string]string, len(ids))
	err := s.visit(ctx, ids, fields, func(i int, h map[string]string) { found[i] = maps.Clone(h) })
	return found, err
}

// side is how many records one of the connections reads that read side by side.
const side = 128

// visit shows fields of the records of these ids. Several connections read them side by side, so that Redis works on some while the answers
// of others are taken apart. see is called from several goroutines, once for each record; its map is the next record's as soon as it returns.
func (s *Store) visit(ctx context.Context, ids, fields []string, see func(i int, h map[string]string)) error {
	if len(ids) <= side {
		return s.visitSome(ctx, ids, fields, see)
	}
	var wg sync.WaitGroup
	errs := make([]error, (len(ids)+side-1)/side)
	for n := range errs {
		from, to := n*side, min((n+1)*side, len(ids))
		wg.Go(func() {
			errs[n] = s.visitSome(ctx, ids[from:to], fields, func(i int, h map[string]string) { see(from+i, h) })
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// visitSome is visit in one round trip.
func (s *Store) visitSome(ctx context.Context, ids, fields []string, see func(i int, h map[string]string)) error {
	cmds := make([]*redis.SliceCmd, len(ids))
	if _, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, s.keys.Job(id), fields...)
		}
		return nil
	}); err != nil {
		return s.unread(err)
	}
	h := make(map[string]string, len(fields))
	for i, cmd := range cmds {
		clear(h)
		for j, v := range cmd.Val() {
			if text, ok := v.(string); ok {
				h[fields[j]] = text
			}
		}
		see(i, h)
	}
	return nil
}
