package bucket

import "time"

// row is how long the answers in a row have been the same: the first and the latest of them; zero if the latest was another.
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

// Stale reports whether the latest answer refused this process as its limits are older than those that the pacer has seen, and since how
// long all have. Whoever is told so has to look which limits hold, and Change.
func (p *Pacer) Stale() (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.known.refused
	return !r.first.IsZero(), r.latest.Sub(r.first)
}
