package bucket

import (
	"sync"
	"time"
)

const (
	awayFor  = 10 * time.Second // so long the shortest round trip tells how far away Redis is
	awayStep = 4_000            // µs
)

// away learns how far away Redis is: how long an answer takes, there and back. A busy machine makes answers late too: a script waits for others of this
// process, or a goroutine for a processor when the answer has come. That is no distance, and it varies. Of hundreds of round trips some wait for nothing,
// so the shortest one of the last ten to twenty seconds counts.
type away struct {
	// careful is for a process with many gateways, where none of the round trips may be short while it is overloaded, and one that takes its own queue for a long way makes the
	// queue longer. So what is believed doubles at most in ten seconds, or grows by awayStep.
	careful bool

	mu    sync.Mutex
	far   int64     // what is believed, in µs; 0: no answer came yet
	least int64     // the shortest round trip since then, in µs; 0: there was none
	since time.Time // zero: no answer came yet
}

// add takes in a round trip that took so many µs and has ended now.
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

// is returns how far away Redis is, in µs.
func (a *away) is() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.far
}
