// Package queue is step 3 of 8, and the only package that uses asynq. It encodes tasks, pulls each gateway's
// jobs at their slots, and delivers them through a few asynq servers that the gateways of a process share.
// asynq never decides what becomes of a job: the handler returns nil once it has recorded what happens next,
// and an error only if it could not.
package queue

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// ServerConfig says how to pull one gateway's jobs.
type ServerConfig struct {
	Gateway string
	// Concurrency is how many jobs this process may have in flight at once; at least 1.
	Concurrency int
	Pacer       Pacer
	// Handle handles one delivery and returns when what happens next is recorded. An error means that it is
	// not, and the task must come again. The context never ends, even if asynq gives the task up: only the
	// call's own timeout ends a call.
	Handle func(ctx context.Context, d job.Delivery) error
	// Grace is how long Stop waits for jobs in flight. Those still open then go back to the head of the queue.
	Grace time.Duration
	// Consumers are asynq servers shared with other Servers. Their creator closes them after the Servers have
	// stopped. Nil means that the Server has its own.
	Consumers *Consumers
	Log       *slog.Logger
}

// Server pulls one gateway's jobs and delivers them to the worker.
type Server struct {
	cfg       ServerConfig
	src       *source
	halt      context.CancelFunc
	halting   sync.Once
	quiet     <-chan struct{} // closed when asynq has no job of it left; nil before Halt
	mark      string          // prefix of its task ids in asynq
	consumers *Consumers
	consumer  *consumer
	offering  bool // it is in the consumer's line; guarded by the consumer's lock
}

// NewServer returns a server that pulls nothing until Start.
func NewServer(c redis.UniversalClient, cfg ServerConfig) *Server {
	stop, halt := context.WithCancel(context.Background())
	s := &Server{cfg: cfg, halt: halt, consumers: cfg.Consumers}
	if s.consumers == nil {
		s.consumers = NewConsumers(c, cfg.Log)
	}
	s.consumer, s.mark = s.consumers.join(s)
	s.src = &source{redis: c, gateway: cfg.Gateway, pacer: cfg.Pacer, keys: newTaskKeys(cfg.Gateway), stop: stop, most: cfg.Concurrency, pool: s.consumers.pool,
		offer: func() { s.consumer.offer(s) }, log: cfg.Log, ready: make(map[string]job.Slot), coming: make(map[string]time.Time), ending: make(map[string]time.Time)}
	s.Order(nil)
	return s
}

// Start starts pulling.
func (s *Server) Start() { s.src.begin() }

// Halt stops pulling. Jobs in flight continue.
func (s *Server) Halt() {
	s.halting.Do(func() {
		s.quiet = s.src.close()
		s.halt()
	})
}

// Stop halts, waits up to the grace time for jobs in flight, and gives unused slots and jobs back.
func (s *Server) Stop(ctx context.Context) {
	s.Halt()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	select {
	case <-s.quiet:
	case <-grace.C:
	}
	s.src.finish(ctx)
	if s.cfg.Consumers == nil {
		s.consumers.Close()
	}
	s.consumers.leave(s)
}

// ended holds the tasks that a script has removed from the queue in the same step in which it recorded the
// result of the attempt. When the handler has returned, asynq acknowledges each of them and is answered at
// once, which saves a round trip for each job. A task that asynq does not acknowledge, because its lease has
// expired, is dropped after a while. If asynq's script is not recognised, it finds no such task and logs that.
type ended struct {
	mu    sync.Mutex
	tasks map[string]time.Time // when it was added, by task id
	sweep time.Time            // when old tasks were last dropped
}

// endedStays is longer than the time from the end of an attempt to the end of its handler.
const endedStays = time.Minute

// add adds a task.
func (e *ended) add(taskID string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks == nil {
		e.tasks = make(map[string]time.Time)
	}
	e.tasks[taskID] = now
	if now.Sub(e.sweep) < endedStays {
		return
	}
	e.sweep = now
	for id, since := range e.tasks {
		if now.Sub(since) > endedStays {
			delete(e.tasks, id)
		}
	}
}

// take removes a task and reports whether it was there. taskID is an argument of asynq's script.
func (e *ended) take(taskID any) bool {
	id, _ := taskID.(string)
	e.mu.Lock()
	defer e.mu.Unlock()
	_, noted := e.tasks[id]
	delete(e.tasks, id)
	return noted
}

// Ended tells the server that a task that it has delivered was removed from the queue when its attempt ended.
func (s *Server) Ended(taskID string) { s.src.ended.add(taskID, time.Now()) }

// pool is goroutines that run handlers and pulls for all gateways of a process. It has as many as
// were ever busy at once. asynq starts a new goroutine for each task; its stack would be copied three times
// while it grows to what a Redis and an HTTP call need, which cost an eighth of the dispatcher's time at a
// thousand jobs a second.
type pool struct {
	work chan func()
	used sync.Pool // of awaited

	mu     sync.Mutex
	stop   chan struct{} // closed to end idle goroutines
	closed bool
}

// awaited is a function whose caller waits until it returns, and gets its panic.
type awaited struct {
	f, run func()
	over   chan any
}

// newPool returns a pool without goroutines.
func newPool() *pool {
	p := &pool{work: make(chan func()), stop: make(chan struct{})}
	p.used.New = func() any {
		t := &awaited{over: make(chan any, 1)}
		t.run = t.runHere
		return t
	}
	return p
}

// do runs f on a goroutine of the pool and waits until it returns. If f panics, so does do: asynq knows how to
// handle that.
func (p *pool) do(f func()) {
	t, _ := p.used.Get().(*awaited)
	t.f = f
	p.start(t.run)
	trouble := <-t.over
	t.f = nil
	p.used.Put(t)
	if trouble != nil {
		panic(trouble)
	}
}

// start runs f on a goroutine of the pool and does not wait. The pool grows to as many goroutines as were ever
// needed at once.
func (p *pool) start(f func()) {
	select {
	case p.work <- f:
	default:
		go p.run(f)
	}
}

func (p *pool) run(f func()) {
	for {
		f()
		select {
		case f = <-p.work:
		case <-p.ends():
			return
		}
	}
}

func (p *pool) ends() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop
}

func (t *awaited) runHere() {
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
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		close(p.stop)
		p.stop = make(chan struct{})
	}
}

// Close ends the idle goroutines at once, and the others when they are done.
func (p *pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
}
