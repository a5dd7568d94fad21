package bucket

import (
	"sync"
	"time"
)

const (
	awayFor  = 10 * time.Second // the shortest round trip of this time tells the distance
	awayStep = 4_000            // µs
)

// away learns the distance to Redis: how long an answer takes, there and back. A busy machine makes answers
// late too: a script waits for others of this process, or a goroutine for a processor when the answer has come.
// That delay is not distance, and it varies. Some of hundreds of round trips wait for nothing, so the shortest
// one of the last ten to twenty seconds counts.
type away struct {
	// careful is for a process with many gateways. While it is overloaded, none of the round trips may be
	// short, and a process that takes its own queue for distance makes the queue longer. So the estimate at
	// most doubles in ten seconds, or grows by awayStep.
	careful bool

	mu    sync.Mutex
	far   int64     // the estimate, in µs; 0: no answer came yet
	least int64     // the shortest round trip since then, in µs; 0: none
	since time.Time // zero: no answer came yet
}

// add takes in a round trip of took µs that has ended now.
func (a *away) add(took int64, now time.Time) {
	took = max(took, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.far == 0 {
		a.far, a.since = took, now
	}
	a.far = min(a.far, took)
	if a.least == 0 || took < a.least {
		a.least = took
	}
	if now.Sub(a.since) >= awayFor {
		far := a.least
		if a.careful {
			far = min(far, max(2*a.far, a.far+awayStep))
		}
		a.far, a.least, a.since = far, 0, now
	}
}

// is returns the distance to Redis, in µs.
func (a *away) is() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.far
}
