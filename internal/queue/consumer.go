package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

const (
	// allGateways is the one queue that an asynq server knows. No gateway has this name, and there is nothing in it: its dequeue is answered with
	// the jobs of gateways, whose messages name their own queues.
	allGateways = "all gateways"
	// mostInHand is how many tasks an asynq server has in hand at most. What bounds them before is each gateway's.
	mostInHand = 1 << 16
	// longestWait is how long a dequeue waits for a job. asynq reckons the lease of a job from the beginning of its dequeue:
	// 30 s, which must not be over when a job comes at last.
	longestWait = 10 * time.Second
	// trimAfter is after how many dequeues without a job those goroutines end that have nothing to do.
	trimAfter = 6
	// overdueGrace is how long Close waits for jobs in hand: their servers have waited before it.
	overdueGrace = 500 * time.Millisecond
	// markEnd ends a gateway's name, and the whole mark, in front of a task's id.
	markEnd = "/"
)

var errLeft = errors.New("the gateway's server has stopped")

// consumer is one asynq server and the Redis client that it gets, which answers its dequeue with the jobs of the gateways that share it, in turn.
//
//	asynq ── dequeue ──▶ first ── next ──▶ source of a gateway in the line
//	      ◀── a job ───
//
// asynq knows each task by its id alone, as if all gateways were one queue: so it gets the tasks under ids that begin with a mark of their gateway's server,
// and what it says of them to Redis is told with their own.
type consumer struct {
	redis.UniversalClient
	own     *Consumers
	pending string
	longest time.Duration   // that a dequeue waits
	stop    context.Context // ends when no more jobs are taken
	halt    context.CancelFunc
	news    chan struct{} // there is somebody in the line

	mu      sync.Mutex
	servers map[string]*Server // by their marks
	line    []*Server          // with jobs, in turn, each once
	srv     *asynq.Server      // nil before the first job
	tidied  time.Time
	idle    int // dequeues without a job

	beat   heartbeat
	leases leases
}

func newConsumer(cs *Consumers) *consumer {
	c := &consumer{UniversalClient: cs.redis, own: cs, pending: redisdb.NewKeys(allGateways).Pending(), longest: longestWait, news: make(chan struct{}, 1),
		servers: make(map[string]*Server), tidied: time.Now()}
	c.stop, c.halt = context.WithCancel(context.Background())
	return c
}

func (c *consumer) newAsynq() *asynq.Server {
	return asynq.NewServerFromRedisClient(c, asynq.Config{
		Concurrency:              mostInHand,
		Queues:                   map[string]int{allGateways: 1},
		TaskCheckInterval:        time.Millisecond, // a dequeue waits instead
		DelayedTaskCheckInterval: 100 * 365 * 24 * time.Hour,
		JanitorInterval:          24 * time.Hour, // nothing of ours is ever "completed" in asynq's sense
		ShutdownTimeout:          overdueGrace,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:                func(error) bool { return false },
		Logger:                   asynqLog{c.own.log},
		LogLevel:                 asynq.WarnLevel,
	})
}

func (c *consumer) gateways() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.servers)
}

func (c *consumer) add(mark string, s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[mark] = s
}

func (c *consumer) remove(mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers, mark)
}

// offer puts a server into the line, since it has jobs, and has asynq come for them.
func (c *consumer) offer(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop.Err() != nil {
		return
	}
	if !s.offering {
		s.offering = true
		c.line = append(c.line, s)
	}
	if c.srv == nil {
		c.srv = c.newAsynq()
		if err := c.srv.Start(asynq.HandlerFunc(c.deliver)); err != nil { // it says so of one that was begun before, and of no other
			c.own.log.Error("asynq's server not started", "error", err)
		}
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// close ends asynq's server.
func (c *consumer) close() {
	c.mu.Lock()
	c.halt()
	srv := c.srv
	c.mu.Unlock()
	if srv != nil { // nobody changes it any more
		srv.Stop()
		srv.Shutdown()
	}
	c.leases.sending.Wait()
}

// deliver hands a task to its gateway's server.
func (c *consumer) deliver(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	mark, taskID := unmarked(id)
	s := c.server(mark)
	if s == nil {
		return errLeft
	}
	return s.deliver(taskID, task)
}

func (c *consumer) server(mark string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servers[mark]
}

// unmarked returns the mark in an id that asynq has, and the task's own.
func unmarked(id string) (mark, taskID string) {
	name := strings.Index(id, markEnd)
	end := strings.Index(id[name+1:], markEnd)
	if name < 0 || end < 0 {
		return "", id
	}
	end += name + 2
	return id[:end], id[end:]
}

// EvalSha answers the dequeue, leaves out what is done already, and passes on all else. A dequeue is never answered by asynq's own
// script, which knows one line alone: so asynq never hears that Redis does not know it, and never comes with its text.
func (c *consumer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch {
	case len(keys) == 4 && keys[0] == c.pending:
		return c.dequeue(ctx)
	case c.isBeat(keys):
		return c.beats(ctx, sha, keys, args)
	}
	told := c.tell(keys, args)
	if told.ended() {
		return did(ctx)
	}
	return c.UniversalClient.EvalSha(ctx, sha, told.keys, told.args...)
}

// Eval passes on a script that Redis did not know.
func (c *consumer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	told := c.tell(keys, args)
	return c.UniversalClient.Eval(ctx, script, told.keys, told.args...)
}

// dequeue waits for a job, and answers as asynq's script does.
func (c *consumer) dequeue(ctx context.Context) *redis.Cmd {
	if cmd := c.first(ctx); cmd != nil {
		return cmd
	}
	enough := time.NewTimer(c.longest)
	defer enough.Stop()
	for {
		select {
		case <-c.news:
			if cmd := c.first(ctx); cmd != nil {
				return cmd
			}
		case <-c.stop.Done():
			return nothing(ctx)
		case <-enough.C:
			c.rest()
			return nothing(ctx)
		}
	}
}

// first returns the first job of the gateway whose turn it is, or nil.
func (c *consumer) first(ctx context.Context) *redis.Cmd {
	c.tidy()
	for c.stop.Err() == nil {
		s := c.turn()
		if s == nil {
			return nil
		}
		job, ok, more := s.src.next(time.Now())
		if more {
			c.offer(s)
		}
		s.src.pump()
		if ok {
			cmd := redis.NewCmd(ctx)
			// asynq writes into the queue that the message names: who put it here may have no right to another one
			cmd.SetVal(string(with(with([]byte(job.message), queueField, s.cfg.Gateway), idField, s.mark+job.task)))
			return cmd
		}
	}
	return nil
}

// turn takes the first server out of the line.
func (c *consumer) turn() *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) == 0 {
		return nil
	}
	s := c.line[0]
	c.line, c.idle, s.offering = c.line[1:], 0, false
	return s
}

// tidy looks after what was never called for, now and then.
func (c *consumer) tidy() {
	now := time.Now()
	c.mu.Lock()
	if now.Sub(c.tidied) < longestWait {
		c.mu.Unlock()
		return
	}
	c.tidied = now
	all := make([]*Server, 0, len(c.servers))
	for _, s := range c.servers {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		s.src.tidy(now)
	}
}

// rest ends the goroutines that have nothing to do, once there was no job for a while.
func (c *consumer) rest() {
	c.mu.Lock()
	c.idle++
	trim := c.idle%trimAfter == 0
	c.mu.Unlock()
	if trim {
		c.own.hands.trim()
	}
}
