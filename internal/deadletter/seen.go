package deadletter

import (
	"context"
	"iter"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Seen remembers parked jobs that were just read, and what was decided of each, so that a Clearing need not read them again. It keeps so
// much of them as a clearing needs, of no more than 200,000 jobs (some 30 MB), and for no longer than 30 s: the clearing reads the rest itself. That a
// job is still parked as it was is for the script to say that takes it.
type Seen struct {
	clock clock.Clock
	since time.Time // when the first was read
	jobs  []seen
	ended bool // none is added any more: what follows is to be read again
}

// seen is a due job in few bytes.
type seen struct {
	id, money, why           string
	reason                   job.Reason
	key                      job.KeyChange
	generation, cost, parked int64
}

const (
	mostSeen = 200_000
	seenFor  = 30 * time.Second
)

// NewSeen returns one that remembers nothing yet.
func NewSeen(c clock.Clock) *Seen { return &Seen{clock: c} }

// Add remembers the next job that List has yielded: what becomes of its key, or why it is to be held back. A payload is not remembered: a job with one
// is the first of those that are read again.
func (s *Seen) Add(r job.Record, key job.KeyChange, why string) {
	if s.since.IsZero() {
		s.since = s.clock.Now()
	}
	if s.ended = s.ended || len(s.jobs) == mostSeen || len(r.Job.Payload) > 0; s.ended {
		return
	}
	s.jobs = append(s.jobs, seen{r.Job.ID, r.Money, why, r.Reason, key, r.Generation, r.Job.Cost, Cursor(r)})
}

// fresh yields the jobs while they are remembered. Nil remembers none.
func (s *Seen) fresh(gateway string) iter.Seq[due] {
	return func(yield func(due) bool) {
		if s == nil {
			return
		}
		for _, j := range s.jobs {
			if s.clock.Now().Sub(s.since) > seenFor || !yield(j.due(gateway)) {
				return
			}
		}
	}
}

func (j seen) due(gateway string) due {
	rec := job.Record{Job: job.Job{ID: j.id, Gateway: gateway, Cost: j.cost}, State: job.Parked, Generation: j.generation,
		Reason: j.reason, ParkedAt: time.UnixMicro(j.parked).UTC(), Money: j.money}
	return due{rec, j.key, j.why}
}

// jobs yields the jobs whose turn has come: those seen, and behind the last of them what is there to be read.
func (c Clearing) jobs(ctx context.Context, key decide) iter.Seq2[due, error] {
	return func(yield func(due, error) bool) {
		f, n := c.Filter, 0
		for d := range c.Seen.fresh(c.Store.gateway) {
			if n++; !yield(d, nil) {
				return
			}
			f.After = Cursor(d.rec)
		}
		if f.Limit > 0 {
			if f.Limit -= n; f.Limit <= 0 {
				return
			}
		}
		for rec, err := range c.Store.List(ctx, f) {
			change, why := job.KeyChange(""), ""
			if err == nil {
				change, why = key(rec)
			}
			if !yield(due{rec, change, why}, err) || err != nil {
				return
			}
		}
	}
}
