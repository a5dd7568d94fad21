package queue

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Hands runs handlers, and pulls, on goroutines that live on, for all gateways of a process: they take as many as are busy at once. asynq begins a new one for each task, whose stack would be copied three times while it
// grows to what a call to Redis and one over HTTP need: an eighth of the dispatcher's time at a thousand jobs a second.
type Hands struct {
	work chan func()
	used sync.Pool // tasks that are over

	mu     sync.Mutex
	stop   chan struct{} // closes for those that have nothing to do
	closed bool
}

// task is something to do for somebody who waits until it is over, and is told of a panic.
type task struct {
	f, run func()
	over   chan any
}

// NewHands returns hands without a goroutine.
func NewHands() *Hands {
	h := &Hands{work: make(chan func()), stop: make(chan struct{})}
	h.used.New = func() any {
		t := &task{over: make(chan any, 1)}
		t.run = t.tell
		return t
	}
	return h
}

// do has f run, and returns when it has. If f panics, so does do: asynq knows what to do then.
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

// start has f run beside the caller. There are as many goroutines as were ever wanted at once.
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

// trim ends those that have nothing to do now.
func (h *Hands) trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		close(h.stop)
		h.stop = make(chan struct{})
	}
}

// Close ends those that have nothing to do, and the others when they have done it.
func (h *Hands) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
}
