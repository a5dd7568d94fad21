package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

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

const (
	// mostInHand is the most tasks in flight in an asynq server. Each gateway's own limit is reached before.
	mostInHand = 1 << 16
	// trimAfter is the number of dequeues without a job after which idle goroutines end.
	trimAfter = 6
	// overdueGrace is how long Close waits for jobs in flight. Their servers have already waited.
	overdueGrace = 500 * time.Millisecond
)

// mostConsumers is the most asynq servers in a process. One would do, but a server takes its tasks one by one,
// and takes none while it sends its heartbeat and extends its leases.
const mostConsumers = 16

// asynqLog passes asynq's log messages to slog.
type asynqLog struct{ l *slog.Logger }

func text(args []any) string { return strings.TrimSpace(fmt.Sprint(args...)) }

func (a asynqLog) Debug(args ...any) { a.l.Debug("queue", "says", text(args)) }

func (a asynqLog) Info(args ...any) { a.l.Info("queue", "says", text(args)) }

func (a asynqLog) Warn(args ...any) { a.l.Warn("queue", "says", text(args)) }

func (a asynqLog) Error(args ...any) {
	if says := text(args); !isUnheard(says) {
		a.l.Error("queue", "says", says)
	}
}

func (a asynqLog) Fatal(args ...any) { a.l.Error("queue", "says", text(args)) }
