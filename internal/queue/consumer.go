package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

const (
	// allGateways is the only queue that an asynq server knows. No gateway has this name, and the queue is
	// always empty: its dequeue is answered with jobs of the gateways, whose messages name their own queues.
	allGateways = "all gateways"
	// longestWait is how long a dequeue waits for a job. asynq counts the 30 s lease of a job from the start of
	// its dequeue, so the wait must use only a part of it.
	longestWait = 10 * time.Second
	// markEnd separates the mark, which begins with a gateway's name, from the task's id.
	markEnd = "/"
)

var errLeft = errors.New("the gateway's server has stopped")

// consumer is one asynq server and the Redis client given to it. The client answers the server's dequeues with
// jobs of the gateways that share it, in turn.
//
//	source ── offer ──▶ line                                  a gateway has pulled jobs
//	asynq ── EvalSha ──▶ dequeue ──▶ first ──▶ source.next    asynq asks for a job and gets the message of the next one
//	asynq ── deliver ──▶ Server.deliver                       asynq runs its handler: source.take returns the job's slot,
//	                                                          the worker handles it, and source.handled counts it out
//	asynq ── EvalSha ──▶ command.ended ──▶ source.over        asynq acknowledges the task, which is no longer there
//
// asynq identifies a task only by its id, as if all gateways were one queue. It therefore gets ids that begin
// with a mark of the gateway's server. In its commands to Redis, the client puts the task's own id back.
type consumer struct {
	redis.UniversalClient
	own     *Consumers
	pending string
	longest time.Duration   // of a dequeue
	stop    context.Context // done when no more jobs are taken
	halt    context.CancelFunc
	news    chan struct{} // signals that the line is not empty

	mu      sync.Mutex
	servers map[string]*Server // by mark
	line    []*Server          // servers with jobs, in turn, each once
	srv     *asynq.Server      // nil before the first job
	tidied  time.Time
	idle    int // dequeues without a job so far

	beat   heartbeat
	leases leases
}

// offer puts a server that has jobs into the line and makes asynq fetch them.
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
		if err := c.srv.Start(asynq.HandlerFunc(c.deliver)); err != nil { // the only error is that it was started before
			c.own.log.Error("asynq's server not started", "error", err)
		}
	}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// EvalSha answers the dequeue, skips what is done already, and passes everything else on. asynq's own dequeue
// script, which knows only one queue, never runs. So asynq is never told that Redis does not know it, and never
// sends its text.
func (c *consumer) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch {
	case len(keys) == 4 && keys[0] == c.pending:
		return c.dequeue(ctx)
	case c.isBeat(keys):
		return c.beats(ctx, sha, keys, args)
	}
	asked := c.translate(keys, args)
	if asked.ended() {
		return did(ctx)
	}
	return c.UniversalClient.EvalSha(ctx, sha, asked.keys, asked.args...)
}

// dequeue waits for a job and answers like asynq's script.
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
			// asynq writes into the queue that the message names. The writer of the message may have no access
			// to another gateway's queue.
			cmd.SetVal(string(with(with([]byte(job.message), queueField, s.cfg.Gateway), idField, s.mark+job.task)))
			return cmd
		}
	}
	return nil
}

// turn removes the first server from the line.
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

// next takes the first pulled job, and reports whether there are more. If its slot has passed, its handler gets
// none.
func (c *source) next(now time.Time) (p pulled, ok, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 || c.shut {
		return p, false, false
	}
	p, c.jobs = c.jobs[0], c.jobs[1:]
	if slot, has := c.ready[p.task]; has && c.pacer.Passed(slot) {
		delete(c.ready, p.task)
		c.leave([]job.Slot{slot})
	}
	c.coming[p.task] = now
	return p, true, len(c.jobs) > 0
}

// nothing returns the reply of an empty queue.
func nothing(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.Nil)
	return cmd
}

// deliver passes a task to its gateway's server.
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

// unmarked splits an id of asynq's into the mark and the task's own id.
func unmarked(id string) (mark, taskID string) {
	name := strings.Index(id, markEnd)
	end := strings.Index(id[name+1:], markEnd)
	if name < 0 || end < 0 {
		return "", id
	}
	end += name + 2
	return id[:end], id[end:]
}

// deliver handles a task.
func (s *Server) deliver(taskID string, task *asynq.Task) error {
	d := job.Delivery{TaskID: taskID, Slot: s.src.take(taskID)}
	defer s.src.handled(taskID)
	var ours bool
	d.JobID, d.Generation, ours = job.ParseTaskID(taskID)
	if !ours || task.Type() != taskType {
		d.JobID, d.Generation, d.Foreign, d.Payload = "", 0, true, task.Payload()
	}
	var err error
	s.consumers.pool.do(func() { err = s.cfg.Handle(context.Background(), d) })
	return err
}

// take is called when the handler of a task begins. It returns the slot at which the task was pulled, or the
// zero Slot if it has none or has it no longer.
func (c *source) take(taskID string) job.Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.ready[taskID]
	delete(c.ready, taskID)
	delete(c.coming, taskID)
	c.handling++
	return slot
}

// handled records that a task's handler has returned.
func (c *source) handled(taskID string) {
	c.mu.Lock()
	full := c.free() <= 0
	c.handling--
	c.ending[taskID] = time.Now()
	c.calm()
	c.mu.Unlock()
	if full {
		c.pump()
	}
}

// command is a command of asynq's about a task, with the task's own id.
type command struct {
	keys   []string
	args   []any
	server *Server // the task's server; nil: unknown, or it has stopped
	taskID string
}

// translate returns the arguments of an asynq script with the task's own id, which is its first argument and part of
// the task's key and message. Scripts that concern no task are unchanged.
func (c *consumer) translate(keys []string, args []any) command {
	t := command{keys: keys, args: args}
	if len(args) == 0 {
		return t
	}
	id, _ := args[0].(string)
	mark, taskID := unmarked(id)
	if mark == "" {
		return t
	}
	t.server, t.taskID, t.keys, t.args = c.server(mark), taskID, slices.Clone(keys), slices.Clone(args)
	t.args[0] = taskID
	for i, key := range t.keys {
		if rest, is := strings.CutSuffix(key, ":t:"+id); is {
			t.keys[i] = rest + ":t:" + taskID
		}
	}
	for i, arg := range t.args {
		if msg, is := arg.([]byte); is {
			t.args[i] = with(msg, idField, taskID)
		}
	}
	return t
}

// Eval passes on a script that Redis did not know.
func (c *consumer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	asked := c.translate(keys, args)
	return c.UniversalClient.Eval(ctx, script, asked.keys, asked.args...)
}

// ended reports whether the command acknowledges a task that is already removed.
func (t command) ended() bool {
	if t.server == nil || !t.server.src.keys.isEnd(t.keys) {
		return false
	}
	t.server.src.over(t.taskID)
	return t.server.src.ended.take(t.taskID)
}

// isEnd recognises the scripts that asynq runs when a handler returns: done, requeue and retry. Their first
// argument is the task's id.
func (k taskKeys) isEnd(keys []string) bool {
	i := slices.Index(keys, k.active)
	return i >= 0 && i < 2 && i+1 < len(keys) && keys[i+1] == k.lease
}

// over records that asynq has acknowledged a task, possibly without having called a handler. Then its place is
// free again.
func (c *source) over(taskID string) {
	c.mu.Lock()
	full := c.free() <= 0
	delete(c.coming, taskID)
	delete(c.ending, taskID)
	freed := full && c.free() > 0
	c.calm()
	c.mu.Unlock()
	if freed {
		c.pump()
	}
}

// did returns the reply of an asynq script that succeeded.
func did(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	return cmd
}
