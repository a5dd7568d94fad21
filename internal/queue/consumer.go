package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

const (
	// allGateways is the only queue that an asynq server knows. No gateway has this name, and the queue is
	// always empty: its dequeue is answered with jobs of the gateways, whose messages name their own queues.
	allGateways = "all gateways"
	// mostInHand is the most tasks in flight in an asynq server. Each gateway's own limit is reached before.
	mostInHand = 1 << 16
	// longestWait is how long a dequeue waits for a job. asynq counts the 30 s lease of a job from the start of
	// its dequeue, so the wait must use only a part of it.
	longestWait = 10 * time.Second
	// trimAfter is the number of dequeues without a job after which idle goroutines end.
	trimAfter = 6
	// overdueGrace is how long Close waits for jobs in flight. Their servers have already waited.
	overdueGrace = 500 * time.Millisecond
	// markEnd separates the mark, which begins with a gateway's name, from the task's id.
	markEnd = "/"
)

var errLeft = errors.New("the gateway's server has stopped")

// consumer is one asynq server and the Redis client given to it. The client answers the server's dequeues with
// jobs of the gateways that share it, in turn.
//
//	asynq ── dequeue ──▶ first ── next ──▶ source of a gateway in the line
//	      ◀── a job ───
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
		TaskCheckInterval:        time.Millisecond, // the wait is in dequeue instead
		DelayedTaskCheckInterval: 100 * 365 * 24 * time.Hour,
		JanitorInterval:          24 * time.Hour, // Spillway's tasks are never "completed" in asynq's sense
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

// close ends asynq's server.
func (c *consumer) close() {
	c.mu.Lock()
	c.halt()
	srv := c.srv
	c.mu.Unlock()
	if srv != nil { // it no longer changes
		srv.Stop()
		srv.Shutdown()
	}
	c.leases.sending.Wait()
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

// Eval passes on a script that Redis did not know.
func (c *consumer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	asked := c.translate(keys, args)
	return c.UniversalClient.Eval(ctx, script, asked.keys, asked.args...)
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

// tidy drops, from time to time, state of tasks that were never called.
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

// rest ends idle goroutines after a time without jobs.
func (c *consumer) rest() {
	c.mu.Lock()
	c.idle++
	trim := c.idle%trimAfter == 0
	c.mu.Unlock()
	if trim {
		c.own.pool.trim()
	}
}

// mostConsumers is the most asynq servers in a process. One would do, but a server takes its tasks one by one,
// and takes none while it sends its heartbeat and extends its leases.
const mostConsumers = 16

// Consumers are the asynq servers of a process, shared by its gateways: an asynq server runs seven goroutines
// and sends a heartbeat every 5 s, and a process may serve thousands of gateways. The first gateways get one
// each; later ones are spread evenly. Consumers is safe for concurrent use.
type Consumers struct {
	redis redis.UniversalClient
	log   *slog.Logger
	pool  *pool
	most  int // asynq servers

	mu     sync.Mutex
	all    []*consumer
	joined int64 // servers that ever joined
}

// NewConsumers returns Consumers without an asynq server; each is started with its first job.
func NewConsumers(c redis.UniversalClient, log *slog.Logger) *Consumers {
	return &Consumers{redis: c, log: log, pool: newPool(), most: mostConsumers}
}

// join assigns a gateway's server to the consumer with the fewest gateways. The ids of its tasks there begin
// with the returned mark, because two gateways may have jobs with the same id, and a gateway that left and came
// back may have two servers.
func (cs *Consumers) join(s *Server) (c *consumer, mark string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.all) < cs.most {
		cs.all = append(cs.all, newConsumer(cs))
	}
	c = cs.all[0]
	for _, other := range cs.all[1:] {
		if other.gateways() < c.gateways() {
			c = other
		}
	}
	cs.joined++
	mark = s.cfg.Gateway + markEnd + strconv.FormatInt(cs.joined, 36) + markEnd
	c.add(mark, s)
	return c, mark
}

// leave removes a server that has stopped.
func (cs *Consumers) leave(s *Server) { s.consumer.remove(s.mark) }

// Close ends the asynq servers. Jobs still in flight go back to the head of their queues.
func (cs *Consumers) Close() {
	cs.mu.Lock()
	all := cs.all
	cs.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range all {
		ending.Go(c.close)
	}
	ending.Wait()
	cs.pool.Close()
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

// ended reports whether the command acknowledges a task that is already removed.
func (t command) ended() bool {
	if t.server == nil || !t.server.src.keys.isEnd(t.keys) {
		return false
	}
	t.server.src.over(t.taskID)
	return t.server.src.ended.take(t.taskID)
}
