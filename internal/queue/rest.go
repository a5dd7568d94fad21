package queue

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

// An asynq server takes seven goroutines and some 60 kB, and a process may serve thousands of gateways, few of which have jobs at a time. So a gateway
// has one while it has jobs: the first slot, which comes when a job is pending, starts it, and one that had nothing to do for a while stops.
// What dead workers left is found without it, by the sweep that every process makes of all its gateways.
//
//	asleep ──slot──▶ rouse: an asynq server begins, and its first dequeue pulls the job ──nothing for restAfter──▶ doze, rest: it ends ──▶ asleep

// restAfter is how long an asynq server has nothing to do before it ends: to begin one costs a few scripts of asynq's.
const restAfter = time.Minute

// begin waits for the first slot. Each slot that comes while nobody dequeues calls rouse; rest is called when a dequeue found nothing to do for a while.
func (c *gatedClient) begin(rouse, rest func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rouse, c.rest = rouse, rest
	c.asleep, c.waiting = true, true
	c.beside(c.await)
}

// doze says that there was nothing to do for a while and nothing is in hand. From then on no dequeue is served: a slot that comes calls rouse.
func (c *gatedClient) doze() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	busy := c.handling+c.air+c.resting+len(c.jobs)+len(c.slots)+len(c.ready) > 0 || c.failed != nil || !c.waiting || c.shut
	if busy || c.rest == nil || time.Since(c.used) < c.restAfter {
		return false
	}
	c.asleep = true
	return true
}

// awake lets dequeues be served again, and notes when that was. A subscription of asynq's lasts until the session ends.
func (c *gatedClient) awake(session context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep, c.used, c.session = false, time.Now(), session
}

func (c *gatedClient) dozes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep
}

// rouse has asynq come for the jobs.
func (s *Server) rouse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted {
		return
	}
	if s.srv != nil { // it was about to rest
		s.client.awake(s.session)
		return
	}
	s.session, s.leave = context.WithCancel(s.client.stop)
	s.client.awake(s.session)
	s.srv = s.newAsynq()
	if err := s.srv.Start(asynq.HandlerFunc(s.deliver)); err != nil { // it says so of one that was begun before, and of no other
		s.cfg.Log.Error("asynq's server not started", "gateway", s.cfg.Gateway, "error", err)
	}
}

// rest ends asynq's server, unless a slot has come meanwhile. It waits for jobs in hand, if there are any after all.
func (s *Server) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted || !s.client.dozes() {
		return
	}
	s.leave()
	s.srv.Stop()
	s.srv.Shutdown()
	s.srv = nil
	s.hands.trim()
}
