package queue

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// hands runs handlers, and pulls, on goroutines that live on, for all servers of the process: thousands of gateways take as many as are busy at once. asynq begins a new one for each task, whose stack would be copied three times while it
// grows to what a call to Redis and one over HTTP need: an eighth of the dispatcher's time at a thousand jobs a second.
type hands struct {
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

// common is the hands that the servers of this process share, while there is one.
var common struct {
	mu      sync.Mutex
	hands   *hands
	servers int
}

// joinHands returns them for one server more, which leaves them when it stops.
func joinHands() *hands {
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.servers == 0 {
		common.hands = newHands()
	}
	common.servers++
	return common.hands
}

// leaveHands is for a server that has joined them. The last one ends them.
func leaveHands() {
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.servers--; common.servers == 0 {
		common.hands.close()
	}
}

func newHands() *hands {
	h := &hands{work: make(chan func()), stop: make(chan struct{})}
	h.used.New = func() any {
		t := &task{over: make(chan any, 1)}
		t.run = t.tell
		return t
	}
	return h
}

// do has f run, and returns when it has. If f panics, so does do: asynq knows what to do then.
func (h *hands) do(f func()) {
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
func (h *hands) start(f func()) {
	select {
	case h.work <- f:
	default:
		go h.run(f)
	}
}

func (h *hands) run(f func()) {
	for {
		f()
		select {
		case f = <-h.work:
		case <-h.ends():
			return
		}
	}
}

func (h *hands) ends() <-chan struct{} {
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
func (h *hands) trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		close(h.stop)
		h.stop = make(chan struct{})
	}
}

// close ends those that have nothing to do, and the others when they have done it.
func (h *hands) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.stop)
	}
}
