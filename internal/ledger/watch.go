package ledger

import (
	"strconv"
	"sync"
	"time"
)

// A living asynq server extends the lease of every task it has pulled to 30 s from now, every 5 s (asynq v0.26.0, heartbeat.go), as long as
// that lease has not run out by its own clock. It does so in whole seconds of that clock, which may be off, and it reckons the first lease
// from the beginning of a dequeue, which may wait at the gate: a living server's lease may look old, but it does not stay as it is. So a lease that somebody
// watches on Redis's clock, and that stays as it is for longer than a heartbeat, belongs to a server that is dead, or to nobody:
// the server never got the answer to its dequeue. Taking such a task for dead costs only paper if it is not, since the job goes back
// to the queue in a new generation.
const (
	leaseLength = 30 * time.Second
	// lowLease is what a lease has left when more than a heartbeat was left out, one second of it for the cut to whole seconds.
	lowLease = leaseLength - 6500*time.Millisecond
	// silence is how long a low lease must stay as it is.
	silence = 5500 * time.Millisecond
	// leaseGrace is how long past a lease's end nobody is asked any more.
	leaseGrace = 5 * time.Second
	// stall is the time between two pulses after which leases look old because nobody could extend them.
	stall = 3 * time.Second
	// patience is how long the living then have to extend theirs: a heartbeat that fails takes 6 s, the next one begins 5 s later. So long
	// they have, too, to write down what calls came to whose attempts are past their deadlines.
	patience = 12 * time.Second
)

// held is a task that perhaps nobody holds any more. lease is its end in seconds, as Redis says it; empty if it has none.
type held struct{ task, lease string }

// watch remembers the leases that are low, and since when they have been as they are. Times are Redis's, in µs.
type watch struct {
	mu   sync.Mutex
	felt int64 // the last pulse
	calm int64 // no lease is judged before
	seen map[string]sighting
}

type sighting struct {
	lease string
	since int64
}

// feel notes a pulse. When there was none for a while, Redis was away, or we were: old leases say nothing for now.
func (w *watch) feel(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.felt > 0 && now-w.felt > stall.Microseconds() {
		w.calm, w.seen = now+patience.Microseconds(), nil
	}
	w.felt = now
}

// calmed says that Redis has answered for long enough, as far as we have seen, for the living to have written down what they could not.
func (w *watch) calmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.felt >= w.calm
}

// silent returns those tasks whose servers have given no sign of life.
func (w *watch) silent(all []held, now int64) []held {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]sighting, len(all))
	var dead []held
	for _, h := range all {
		s, ok := w.seen[h.task]
		if !ok || s.lease != h.lease {
			s = sighting{h.lease, now}
		}
		seen[h.task] = s
		if h.lease == "" || now >= w.calm && (ended(h.lease, now) || now-s.since >= silence.Microseconds()) {
			dead = append(dead, h)
		}
	}
	w.seen = seen
	return dead
}

// ended says that a lease ran out so long ago that no clock explains it.
func ended(lease string, now int64) bool {
	end, err := strconv.ParseFloat(lease, 64)
	return err != nil || int64(end*1e6)+leaseGrace.Microseconds() <= now
}
