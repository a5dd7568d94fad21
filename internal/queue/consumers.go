package queue

import (
	"log/slog"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// mostConsumers is the most asynq servers in a process. One would do, but a server takes its tasks one by one,
// and takes none while it sends its heartbeat and extends its leases.
const mostConsumers = 16

// Consumers are the asynq servers of a process, shared by its gateways: an asynq server runs seven goroutines
// and sends a heartbeat every 5 s, and a process may serve thousands of gateways. The first gateways get one
// each; later ones are spread evenly. Consumers is safe for concurrent use.
type Consumers struct {
	redis redis.UniversalClient
	log   *slog.Logger
	hands *Hands
	most  int // asynq servers

	mu     sync.Mutex
	all    []*consumer
	joined int64 // servers that ever joined
}

// NewConsumers returns Consumers without an asynq server; each is started with its first job.
func NewConsumers(c redis.UniversalClient, log *slog.Logger) *Consumers {
	return &Consumers{redis: c, log: log, hands: NewHands(), most: mostConsumers}
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
	cs.hands.Close()
}
