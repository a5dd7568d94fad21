package worker

import (
	"context"
	"sync"
	"time"

	"spillway/internal/job"
)

// turn is the slot of a call that is being sent. It may be replaced while the call waits with its connection.
type turn struct {
	w     *Worker
	a     job.Attempt
	fence fence

	mu   sync.Mutex
	slot job.Slot
	over bool // the call is over
}

// now returns the slot.
func (t *turn) now() job.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slot
}

// end ends the turn and returns its slot.
func (t *turn) end() job.Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.slot
}

// leave takes the slot from the turn to release it, unless the call is over.
func (t *turn) leave() (s job.Slot, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.slot
	if !t.over {
		t.slot = job.Slot{}
	}
	return s, !t.over
}

// again takes another slot for the call, whose slot has passed, and returns when it may be written. ok is false if
// there is none in time, or the call is over meanwhile.
func (t *turn) again(ctx context.Context) (due time.Time, ok bool) {
	p := t.w.cfg.Pacer
	now := t.w.cfg.Clock.Now()
	if t.fence.over(now) {
		return due, false
	}
	passed, ok := t.leave()
	if !ok {
		return due, false
	}
	_ = p.Release(ctx, passed)
	next, err := t.w.retake(t.a, t.fence.latest.Sub(now))
	if err != nil {
		return due, false
	}
	p.Ready(next, t.w.cfg.Clock.Now())
	t.mu.Lock()
	over := t.over
	if !over {
		t.slot = next
	}
	t.mu.Unlock()
	if over {
		_ = p.Release(ctx, next)
	}
	return p.Due(next), !over
}
