package dispatch

import (
	"context"
	"sync"
	"time"
)

// errand is work that comes up now and then. While there is none, no goroutine waits for it: a gateway has several errands, and a process may serve
// thousands of gateways. It runs once at a time. Safe for concurrent use.
type errand struct {
	ctx  context.Context
	runs *sync.WaitGroup
	// do does the work and returns when it comes up again by itself: at once where that is 0, never where it is negative.
	do func(context.Context) time.Duration

	mu    sync.Mutex
	begun bool
	over  bool
	busy  bool
	again bool // it was nudged while it could not run
	timer *time.Timer
}

func (u *unit) errand(do func(context.Context) time.Duration) *errand {
	e := &errand{ctx: u.ctx, runs: &u.loops, do: do}
	u.errands = append(u.errands, e)
	return e
}

// begin lets it run from now on: at once where it was nudged before, else after a while. Negative: when it is nudged.
func (e *errand) begin(first time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun = true
	if e.again {
		first = 0
	}
	e.comesUp(first)
}

// nudge has it run now, or once more where it is running.
func (e *errand) nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun || e.busy {
		e.again = true
		return
	}
	e.comesUp(0)
}

// end lets it run no more. The run under way ends by itself.
func (e *errand) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// comesUp starts it, or sets the timer for it.
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
