package bucket

import "time"

// row is how long the latest answers have all been the same: the time of the first and the latest of them; zero
// if the latest answer was a different one.
type row struct{ first, latest time.Time }

func (r *row) add(same bool, at time.Time) {
	switch {
	case !same:
		*r = row{}
	case r.first.IsZero():
		*r = row{at, at}
	default:
		r.latest = at
	}
}

// Stale reports whether the latest answer refused this process because its limits are older than those that the
// pacer has seen, and for how long every answer has. The caller should then look up which limits hold, and call
// Change.
func (p *Pacer) Stale() (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.known.refused
	return !r.first.IsZero(), r.latest.Sub(r.first)
}
