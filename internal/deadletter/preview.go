package deadletter

import (
	"context"
	"time"

	"spillway/internal/job"
)

// Preview counts what an act would do to its jobs, before anyone has confirmed it.
type Preview struct {
	// Rules and Decide determine what would become of a job's key, or why the job would be held back.
	Rules  Rules
	Decide func(Rules, job.Record) (change job.KeyChange, why string)
	// Seen remembers the jobs for the act. Nil: not remembered.
	Seen *Seen
	// Until is just after the last job counted: jobs parked from then on are excluded. Zero: none was counted.
	Until time.Time
	// Held is how many jobs would be held back, by reason.
	Held map[string]int
	// Often is how many jobs would be taken that were replayed OftenReplayed times or more.
	Often int
}

// Meet counts the next job, and reports whether it would be taken.
func (p *Preview) Meet(r job.Record) bool {
	change, why := p.Decide(p.Rules, r)
	if p.Seen != nil {
		p.Seen.Add(r, change, why)
	}
	p.Until = r.ParkedAt.Add(time.Microsecond)
	if why != "" {
		if p.Held == nil {
			p.Held = map[string]int{}
		}
		p.Held[why]++
		return false
	}
	if r.Replays >= OftenReplayed {
		p.Often++
	}
	return true
}

// OftenReplayed is after how many unsuccessful replays a preview warns: another one may fail, too.
const OftenReplayed = 3

// ToCount makes a filter read only what counting jobs and their money takes, and a clearing of them. It reads a
// payload only if the record does not contain the money. amounts says that the jobs have money.
func (f *Filter) ToCount(amounts bool) {
	f.ForClearing, f.NoPayload = true, !amounts
	f.PayloadOf = func(r job.Record) bool {
		_, booked := job.Booked(r.Money)
		return !booked
	}
}

// UpToNow makes a filter exclude jobs parked from now on.
func (s *Store) UpToNow(ctx context.Context, f Filter) (Filter, error) {
	mark, err := s.Mark(ctx)
	if err == nil && (f.Until.IsZero() || f.Until.After(mark)) {
		f.Until = mark
	}
	return f, err
}
