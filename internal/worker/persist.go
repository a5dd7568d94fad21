package worker

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	firstPersist = 50 * time.Millisecond
	maxPersist   = 2 * time.Second
)

// persist writes an outcome down, for as long as that takes: an outcome that is not written down would be found as an
// attempt cut off, and judged without knowing what the gateway said.
func (w *Worker) persist(ctx context.Context, id string, write func() error) {
	for wait := firstPersist; ; wait = min(2*wait, maxPersist) {
		err := write()
		if err == nil {
			return
		}
		w.cfg.Metrics.unrecorded(w.cfg.Gateway)
		w.cfg.Log.Warn("outcome not written down, trying again", "job", id, "error", err)
		select {
		case <-w.cfg.Clock.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

type counter struct{ n atomic.Uint64 }

// String counts on and returns the new number.
func (c *counter) String() string { return strconv.FormatUint(c.n.Add(1), 36) }
