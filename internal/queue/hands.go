package queue

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Hands is a pool of goroutines that run handlers and pulls for all gateways of a process. It has as many as
// were ever busy at once. asynq starts a new goroutine for each task; its stack would be copied three times
// while it grows to what a Redis and an HTTP call need, which cost an eighth of the dispatcher's time at a
// thousand jobs a second.
type Hands struct {
	work chan func()
	used sync.Pool // finished tasks

	mu     sync.Mutex
	stop   chan struct{} // closed to end idle goroutines
	closed bool
}

// task is a function whose caller waits until it returns, and gets its panic.
type task struct {
	f, run func()
	over   chan any
}

// NewHands returns Hands without goroutines.
func NewHands() *Hands {
	h := &Hands{work: make(chan func()), stop: make(chan struct{})}
	h.used.New = func() any {
		t := &task{over: make(chan any, 1)}
		t.run = t.tell
		return t
	}
	return h
}

// do runs f on a goroutine of the pool and waits until it returns. If f panics, so does do: asynq knows how to
// handle that.
func (h *Hands) do(f func()) {
	t, _ := h.used.Get().(*task)
	t.f = f
	h.start(t.run)
	trouble := <-t.over
	t.f = nil
	h.used.Put(t)
	if trouble != nil {
		panic(trouble)
	}
}

// start runs f on a goroutine of the pool and does not wait. The pool grows to as many goroutines as were ever
// needed at once.
func (h *Hands) start(f func()) {
	select {
	case h.work <- f:
	default:
		go h.run(f)
	}
}

func (h *Hands) run(f func()) {
	for {
		f()
		select {
		case f = <-h.work:
		case <-h.ends():
			return
		}
	}
}

func (h *Hands) ends() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop
}

func (t *task) tell() {
	defer func() {
		trouble := recover()
		if trouble != nil {
			trouble = fmt.Sprintf("%v\n%s", trouble, debug.Stack())
		}
		t.over <- trouble
	}()
	t.f()
}

// trim ends the idle goroutines.
func (h *Hands) trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		close(h.stop)
		h.stop = make(chan struct{})
	}
}

// Close ends the idle goroutines at once, and the others when they are done.
func (h *Hands) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
}
