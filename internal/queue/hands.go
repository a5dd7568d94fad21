package queue

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// hands runs handlers on goroutines that live on. asynq begins a new one for each task, whose stack would be copied three times while it
// grows to what a call to Redis and one over HTTP need: an eighth of the dispatcher's time at a thousand jobs a second.
type hands struct {
	work chan func()
	stop chan struct{} // closed when no more comes
	once sync.Once
}

func newHands() *hands { return &hands{work: make(chan func()), stop: make(chan struct{})} }

// do has f run, and returns when it has. There are as many goroutines as were ever wanted at once. If f panics, so does do: asynq knows
// what to do then.
func (h *hands) do(f func()) {
	over := make(chan struct{})
	var trouble any
	task := func() {
		defer close(over)
		defer func() {
			if trouble = recover(); trouble != nil {
				trouble = fmt.Sprintf("%v\n%s", trouble, debug.Stack())
			}
		}()
		f()
	}
	select {
	case h.work <- task:
	default:
		go h.run(task)
	}
	<-over
	if trouble != nil {
		panic(trouble)
	}
}

func (h *hands) run(task func()) {
	for {
		task()
		select {
		case task = <-h.work:
		case <-h.stop:
			return
		}
	}
}

// close ends those that have nothing to do.
func (h *hands) close() { h.once.Do(func() { close(h.stop) }) }
