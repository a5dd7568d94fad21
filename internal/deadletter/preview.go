package deadletter

import (
	"context"
	"time"

	"spillway/internal/job"
)

// Preview counts what an act would do to the jobs that it meets, before anybody has agreed to it.
type Preview struct {
	// Rules and Decide say what would become of a job's key, or why it would be held back.
	Rules  Rules
	Decide func(Rules, job.Record) (change job.KeyChange, why string)
	// Seen remembers the jobs for the act. Nil: nobody does.
	Seen *Seen
	// Until is just after the last job that was met: what is parked from then on is not meant. Zero: none was met.
	Until time.Time
	// Held is how many jobs would be held back, by why.
	Held map[string]int
	// Often is how many would be taken that were replayed OftenReplayed times or more.
	Often int
}

// Meet counts the next job, and says whether it would be taken.
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

// OftenReplayed is after how many replays without success a preview says so: another one may be in vain too.
const OftenReplayed = 3

// ToCount makes a filter read what counting jobs and their money takes, and a clearing of them: no more of each record than that, and a payload only
// where the record does not say the money. amounts says that the jobs have money.
func (f *Filter) ToCount(amounts bool) {
	f.ForClearing, f.NoPayload = true, !amounts
	f.PayloadOf = func(r job.Record) bool {
		_, booked := job.Booked(r.Money)
		return !booked
	}
}

// UpToNow makes a filter leave out what is parked from now on.
func (s *Store) UpToNow(ctx context.Context, f Filter) (Filter, error) {
	mark, err := s.Mark(ctx)
	if err == nil && (f.Until.IsZero() || f.Until.After(mark)) {
		f.Until = mark
	}
	return f, err
}
