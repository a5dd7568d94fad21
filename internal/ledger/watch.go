package ledger

import (
	"strconv"
	"sync"
	"time"
)

// A live asynq server extends the lease of every task it has pulled to 30 s from now, every 5 s (asynq v0.26.0,
// heartbeat.go), as long as the lease has not expired by its own clock. It does so in whole seconds of that
// clock, which may be off. The first lease counts from the start of the dequeue, which may wait at the gate. So
// a live server's lease may look old, but it keeps changing. A lease watched on Redis's clock that does not
// change for longer than a heartbeat belongs to a dead server, or to none: the server never got the reply to
// its dequeue. If a live server's task is taken for dead, the only cost is a stale task, because the job goes
// back to the queue in a new generation.
const (
	leaseLength = 30 * time.Second
	// lowLease is the rest of a lease after more than one missed heartbeat. One second of it allows for the
	// rounding to whole seconds.
	lowLease = leaseLength - 6500*time.Millisecond
	// silence is how long a low lease must stay unchanged.
	silence = 5500 * time.Millisecond
	// leaseGrace is how long after its end a lease counts as expired without further checks.
	leaseGrace = 5 * time.Second
	// stall is the time between two pulses after which leases look old because nobody could extend them.
	stall = 3 * time.Second
	// patience is how long live servers then have to extend their leases: a failing heartbeat takes 6 s, and
	// the next one begins 5 s later. They have as long to record the outcomes of calls whose attempts are past
	// their deadlines.
	patience = 12 * time.Second
)

// held is a task that may no longer be held by a server. lease is its end in seconds, as Redis returns it;
// empty if it has none.
type held struct{ task, lease string }

// watch remembers low leases, and since when they have not changed. Times are Redis's, in µs.
type watch struct {
	mu   sync.Mutex
	felt int64 // the last pulse
	calm int64 // no lease is judged before this time
	seen map[string]sighting
}

type sighting struct {
	lease string
	since int64
}

// feel records a pulse. A gap means that Redis or this process was stalled, and old leases prove nothing for
// now.
func (w *watch) feel(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.felt > 0 && now-w.felt > stall.Microseconds() {
		w.calm, w.seen = now+patience.Microseconds(), nil
	}
	w.felt = now
}

// calmed reports whether Redis has answered for long enough, as seen here, for live servers to have recorded
// what they could not before.
func (w *watch) calmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.felt >= w.calm
}

// silent returns the tasks whose servers have shown no sign of life.
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

// ended reports whether a lease expired so long ago that clock differences can't explain it.
func ended(lease string, now int64) bool {
	end, err := strconv.ParseFloat(lease, 64)
	return err != nil || int64(end*1e6)+leaseGrace.Microseconds() <= now
}
