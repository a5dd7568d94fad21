package deadletter

import (
	"iter"
	"math"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Seen remembers parked jobs that were just read, with the decision on each, so that a BulkRun need not read
// them again. It keeps only what a bulk run needs, of at most a million jobs (some 50 MB), and for at most 30 s:
// the bulk run reads the rest itself. The script that takes a job checks that it is still parked as it was.
type Seen struct {
	clock clock.Clock
	since time.Time // when the first one was read
	jobs  []*block
	count int
	kinds []decision
	known map[decision]uint32 // indexes in kinds
	ended bool                // no more are added: what follows is read again
}

// block is some jobs, which don't move as more are added.
type block struct {
	jobs []seen
	text []byte // id and money of each, one after the other
}

// seen is a due job in few bytes, without pointers, which the garbage collector would follow again and again.
type seen struct {
	parked    int64
	from      uint32 // where its id begins
	id, money uint16 // their lengths
	kind      uint32 // index of its decision
}

// decision is what many jobs have in common.
type decision struct {
	reason           job.Reason
	key              job.KeyChange
	why              string
	generation, cost int64
}

const (
	mostSeen  = 1_000_000
	seenBlock = 1000
	seenFor   = 30 * time.Second
)

// NewSeen returns an empty Seen.
func NewSeen(c clock.Clock) *Seen { return &Seen{clock: c, known: map[decision]uint32{}} }

// Add remembers the next job that List has yielded: what becomes of its key, or why it is held back. Payloads
// are not remembered: the jobs from the first one with a payload on are read again, and so are those from the
// first one that is not parked.
func (s *Seen) Add(r job.Record, key job.KeyChange, why string) {
	if s.since.IsZero() {
		s.since = s.clock.Now()
	}
	if s.ended = s.ended || s.count == mostSeen || len(r.Job.Payload) > 0 || r.State != job.Parked || max(len(r.Job.ID), len(r.Money)) > math.MaxUint16; s.ended {
		return
	}
	if s.count%seenBlock == 0 {
		s.jobs = append(s.jobs, &block{jobs: make([]seen, 0, seenBlock)})
	}
	s.count++
	b := s.jobs[len(s.jobs)-1]
	b.jobs = append(b.jobs, seen{Cursor(r), uint32(len(b.text)), uint16(len(r.Job.ID)), uint16(len(r.Money)), //nolint:gosec // looked at above
		s.kind(decision{r.Reason, key, why, r.Generation, r.Job.Cost})})
	b.text = append(append(b.text, r.Job.ID...), r.Money...)
}

// kind returns the index of a decision.
func (s *Seen) kind(d decision) uint32 {
	if n := len(s.kinds) - 1; n >= 0 && s.kinds[n] == d { // nearly always
		return uint32(n) //nolint:gosec // fewer than jobs
	}
	i, is := s.known[d]
	if !is {
		i = uint32(len(s.kinds)) //nolint:gosec // fewer than jobs
		s.kinds, s.known[d] = append(s.kinds, d), i
	}
	return i
}

// fresh yields the jobs while they are remembered.
func (s *Seen) fresh(gateway string) iter.Seq[due] {
	return func(yield func(due) bool) {
		for _, b := range s.jobs {
			text := string(b.text)
			for _, j := range b.jobs {
				if s.clock.Now().Sub(s.since) > seenFor || !yield(s.due(j, text[j.from:], gateway)) {
					return
				}
			}
		}
	}
}

// due returns a job; text begins with its id.
func (s *Seen) due(j seen, text, gateway string) due {
	is, end := s.kinds[j.kind], j.id+j.money
	rec := job.Record{Job: job.Job{ID: text[:j.id], Gateway: gateway, Cost: is.cost}, State: job.Parked, Generation: is.generation,
		Reason: is.reason, ParkedAt: time.UnixMicro(j.parked).UTC(), Money: text[j.id:end]}
	return due{rec, is.key, is.why}
}
