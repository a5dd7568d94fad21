package queue

import (
	"log/slog"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// mostConsumers is how many asynq servers a process has at most. One would do; each takes its tasks one by one, and takes none while it says that it
// lives and puts off the ends of its leases.
const mostConsumers = 16

// Consumers are the asynq servers of a process, which its gateways share: an asynq server is seven goroutines and says every 5 s that it lives, and a process
// may serve thousands of gateways. The first gateways have one each, and those behind them share them evenly. Safe for concurrent use.
type Consumers struct {
	redis redis.UniversalClient
	log   *slog.Logger
	hands *Hands
	most  int // asynq servers

	mu     sync.Mutex
	all    []*consumer
	joined int64 // servers so far
}

// NewConsumers returns consumers without an asynq server: each begins with the first job.
func NewConsumers(c redis.UniversalClient, log *slog.Logger) *Consumers {
	return &Consumers{redis: c, log: log, hands: NewHands(), most: mostConsumers}
}

// join has a gateway's server share one of them: the one with the fewest gateways. The mark begins the ids of its tasks there: two gateways may have jobs of
// the same id at once, and a gateway that left and came back may have two servers.
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

// leave is for a server that has stopped.
func (cs *Consumers) leave(s *Server) { s.consumer.remove(s.mark) }

// Close ends the asynq servers. Jobs that are still in hand go back to the head of their queues.
func (cs *Consumers) Close() {
	cs.mu.Lock()
	all := cs.all
	cs.mu.Unlock()
	var ending sync.WaitGroup
	for _, c := range all {
		ending.Go(c.close)
	}
	ending.Wait()
	cs.hands.Close()
}
