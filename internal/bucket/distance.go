package bucket

import (
	"sync"
	"time"
)

const (
	distanceFor  = 10 * time.Second // the shortest round trip of this time tells the distance
	distanceStep = 4_000            // µs
)

// distance learns the distance to Redis: how long an answer takes, there and back. A busy machine makes answers
// late too: a script waits for others of this process, or a goroutine for a processor when the answer has come.
// That delay is not distance, and it varies. Some of hundreds of round trips wait for nothing, so the shortest
// one of the last ten to twenty seconds counts.
type distance struct {
	// careful is for a process with many gateways. While it is overloaded, none of the round trips may be
	// short, and a process that takes its own queue for distance makes the queue longer. So the estimate at
	// most doubles in ten seconds, or grows by distanceStep.
	careful bool

	mu    sync.Mutex
	far   int64     // the estimate, in µs; 0: no answer came yet
	least int64     // the shortest round trip since then, in µs; 0: none
	since time.Time // zero: no answer came yet
}

// add takes in a round trip of took µs that has ended now.
func (d *distance) add(took int64, now time.Time) {
	took = max(took, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.far == 0 {
		d.far, d.since = took, now
	}
	d.far = min(d.far, took)
	if d.least == 0 || took < d.least {
		d.least = took
	}
	if now.Sub(d.since) >= distanceFor {
		far := d.least
		if d.careful {
			far = min(far, max(2*d.far, d.far+distanceStep))
		}
		d.far, d.least, d.since = far, 0, now
	}
}

// is returns the distance to Redis, in µs.
func (d *distance) is() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.far
}
