package deadletter

import (
	"context"
	"iter"
	"slices"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Seen remembers parked jobs that were just read, with the decision on each, so that a Clearing need not read
// them again. It keeps only what a clearing needs, of at most 200,000 jobs (some 20 MB), and for at most 30 s:
// the clearing reads the rest itself. The script that takes a job checks that it is still parked as it was.
type Seen struct {
	clock clock.Clock
	since time.Time // when the first one was read
	jobs  [][]seen  // in blocks, which never move as they grow
	count int
	kinds []decision
	ended bool // no more are added: what follows is read again
}

// seen is a due job in few bytes, with few pointers for the garbage collector.
type seen struct {
	id, money                string
	generation, cost, parked int64
	kind                     int // index of its decision
}

// decision is what many jobs have in common.
type decision struct {
	reason job.Reason
	key    job.KeyChange
	why    string
}

const (
	mostSeen  = 200_000
	seenBlock = 1000
	seenFor   = 30 * time.Second
)

// NewSeen returns an empty Seen.
func NewSeen(c clock.Clock) *Seen { return &Seen{clock: c} }

// Add remembers the next job that List has yielded: what becomes of its key, or why it is held back. Payloads
// are not remembered: the jobs from the first one with a payload on are read again, and so are those from the
// first one that is not parked.
func (s *Seen) Add(r job.Record, key job.KeyChange, why string) {
	if s.since.IsZero() {
		s.since = s.clock.Now()
	}
	if s.ended = s.ended || s.count == mostSeen || len(r.Job.Payload) > 0 || r.State != job.Parked; s.ended {
		return
	}
	if s.count%seenBlock == 0 {
		s.jobs = append(s.jobs, make([]seen, 0, seenBlock))
	}
	s.count++
	last := &s.jobs[len(s.jobs)-1]
	*last = append(*last, seen{r.Job.ID, r.Money, r.Generation, r.Job.Cost, Cursor(r), s.kind(decision{r.Reason, key, why})})
}

// kind returns the index of a decision. There are few.
func (s *Seen) kind(d decision) int {
	i := slices.Index(s.kinds, d)
	if i < 0 {
		i = len(s.kinds)
		s.kinds = append(s.kinds, d)
	}
	return i
}

// fresh yields the jobs while they are remembered. Nil remembers none.
func (s *Seen) fresh(gateway string) iter.Seq[due] {
	return func(yield func(due) bool) {
		if s == nil {
			return
		}
		for _, block := range s.jobs {
			for _, j := range block {
				if s.clock.Now().Sub(s.since) > seenFor || !yield(s.due(j, gateway)) {
					return
				}
			}
		}
	}
}

func (s *Seen) due(j seen, gateway string) due {
	is := s.kinds[j.kind]
	rec := job.Record{Job: job.Job{ID: j.id, Gateway: gateway, Cost: j.cost}, State: job.Parked, Generation: j.generation,
		Reason: is.reason, ParkedAt: time.UnixMicro(j.parked).UTC(), Money: j.money}
	return due{rec, is.key, is.why}
}

// jobs yields the jobs whose turn has come: those in Seen, then those read after the last of them.
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
