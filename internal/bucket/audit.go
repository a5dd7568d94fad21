package bucket

import (
	"sync"
	"time"
)

// audited is the largest limit that a process audits: a window of N calls takes 16 bytes for each of them.
const audited = 100_000

// audit is a process's own check that the limits were kept. For each window it holds the calls written within
// the last one, and the most units that any rolling window has had. It sees only this process's calls; only the
// gateway can check the sum over all processes.
type audit struct {
	mu      sync.Mutex
	windows []ring
}

// ring holds the calls of one rolling window, oldest first.
type ring struct {
	name   string
	length int64 // µs
	calls  []written
	units  int64
	most   int64
}

type written struct{ at, cost int64 }

func newAudit(windows []window) *audit {
	a := &audit{}
	for _, w := range windows {
		if w.n <= audited {
			name := time.Duration(w.length * int64(time.Microsecond)).String()
			a.windows = append(a.windows, ring{name: name, length: w.length})
		}
	}
	return a
}

// add takes in a call written at local time at, in µs, and calls tell for each audited window with the most
// units that any rolling window has had so far.
func (a *audit) add(at, cost int64, tell func(window string, most int64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.windows {
		tell(a.windows[i].name, a.windows[i].add(at, cost))
	}
}

// add keeps the calls in the order of their writes; they are reported in the order of their handlers.
func (r *ring) add(at, cost int64) int64 {
	i := len(r.calls)
	for i > 0 && r.calls[i-1].at > at {
		i--
	}
	r.calls = append(r.calls, written{})
	copy(r.calls[i+1:], r.calls[i:])
	r.calls[i] = written{at, cost}
	r.units += cost
	newest := r.calls[len(r.calls)-1].at
	gone := 0
	for r.calls[gone].at <= newest-r.length {
		r.units -= r.calls[gone].cost
		gone++
	}
	r.calls = r.calls[gone:]
	r.most = max(r.most, r.units)
	return r.most
}
