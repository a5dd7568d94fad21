package queue

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// hands runs handlers on goroutines that live on. asynq begins a new one for each task, whose stack would be copied three times while it
// grows to what a call to Redis and one over HTTP need: an eighth of the dispatcher's time at a thousand jobs a second.
type hands struct {
	work chan *task
	stop chan struct{} // closed when no more comes
	once sync.Once
	used sync.Pool // tasks that are over
}

// task is something to do for somebody who waits until it is over, and is told of a panic.
type task struct {
	f    func()
	over chan any
}

func newHands() *hands {
	return &hands{work: make(chan *task), stop: make(chan struct{}), used: sync.Pool{New: func() any { return &task{over: make(chan any, 1)} }}}
}

// do has f run, and returns when it has. There are as many goroutines as were ever wanted at once. If f panics, so does do: asynq knows
// what to do then.
func (h *hands) do(f func()) {
	t, _ := h.used.Get().(*task)
	t.f = f
	select {
	case h.work <- t:
	default:
		go h.run(t)
	}
	trouble := <-t.over
	t.f = nil
	h.used.Put(t)
	if trouble != nil {
		panic(trouble)
	}
}

func (h *hands) run(t *task) {
	for {
		t.run()
		select {
		case t = <-h.work:
		case <-h.stop:
			return
		}
	}
}

func (t *task) run() {
	defer func() {
		trouble := recover()
		if trouble != nil {
			trouble = fmt.Sprintf("%v\n%s", trouble, debug.Stack())
		}
		t.over <- trouble
	}()
	t.f()
}

// close ends those that have nothing to do.
func (h *hands) close() { h.once.Do(func() { close(h.stop) }) }
