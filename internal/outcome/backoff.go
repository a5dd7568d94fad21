package outcome

import (
	"math/rand/v2"
	"time"
)

// Backoff is an exponential back-off with jitter.
type Backoff struct {
	// First is the delay after the first failed attempt. Zero or less means 1 s.
	First time.Duration
	// Max is the longest delay. Less than First counts as First.
	Max time.Duration
}

// Delay returns how long to wait after a failed attempt, counted from 1: a random time in [d/2, d], where d is
// First doubled attempt-1 times and at most Max. Jobs that failed together are thus spread out.
func (b Backoff) Delay(attempt int) time.Duration {
	d := b.ceiling(attempt)
	return d - time.Duration(rand.Int64N(int64(d/2)+1))
}

func (b Backoff) ceiling(attempt int) time.Duration {
	d := b.First
	if d <= 0 {
		d = time.Second
	}
	longest := max(b.Max, d)
	for ; attempt > 1 && d < longest; attempt-- {
		if d > longest/2 {
			return longest
		}
		d *= 2
	}
	return d
}
