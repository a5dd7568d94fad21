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

// persist records an outcome, and retries until that succeeds: an outcome not recorded would be found as an
// attempt that was cut off, and judged without the gateway's answer.
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

// String increments the counter and returns the new number.
func (c *counter) String() string { return strconv.FormatUint(c.n.Add(1), 36) }
