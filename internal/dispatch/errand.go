package dispatch

import (
	"context"
	"sync"
	"time"
)

// errand is occasional work. While there is none, no goroutine waits for it: a gateway has several errands, and
// a process may serve thousands of gateways. Only one run of it is active at a time. An errand is safe for
// concurrent use.
type errand struct {
	ctx  context.Context
	runs *sync.WaitGroup
	// do does the work and returns when to run next: 0 means at once, negative means only when nudged.
	do func(context.Context) time.Duration

	mu    sync.Mutex
	begun bool
	over  bool
	busy  bool
	again bool // nudged while it could not run
	timer *time.Timer
}

func (u *unit) errand(do func(context.Context) time.Duration) *errand {
	e := &errand{ctx: u.ctx, runs: &u.loops, do: do}
	u.errands = append(u.errands, e)
	return e
}

// begin enables it. It runs at once if it was nudged before, and otherwise after first; negative means only
// when nudged.
func (e *errand) begin(first time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun = true
	if e.again {
		first = 0
	}
	e.comesUp(first)
}

// nudge runs it now, or once more if it is running.
func (e *errand) nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun || e.busy {
		e.again = true
		return
	}
	e.comesUp(0)
}

// end disables it. A run in progress is not interrupted.
func (e *errand) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// comesUp starts it, or sets its timer.
func (e *errand) comesUp(in time.Duration) {
	if e.timer != nil {
		e.timer.Stop()
	}
	switch {
	case e.over || in < 0:
	case in > 0 && e.timer == nil:
		e.timer = time.AfterFunc(in, e.nudge)
	case in > 0:
		e.timer.Reset(in)
	default:
		e.busy, e.again = true, false
		e.runs.Go(e.run)
	}
}

func (e *errand) run() {
	for next := time.Duration(0); next == 0; {
		next = e.do(e.ctx)
		e.mu.Lock()
		switch {
		case e.ctx.Err() != nil || e.over:
			e.over, next = true, -1
		case e.again:
			e.again, next = false, 0
		}
		if e.busy = next == 0; !e.busy {
			e.comesUp(next)
		}
		e.mu.Unlock()
	}
}
