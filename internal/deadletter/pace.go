package deadletter

import (
	"context"
	"time"

	"spillway/internal/clock"
)

// Leave is what a gateway permits a replay now.
type Leave struct {
	// Stop says why nothing may be replayed now: the gateway is held or paused. Empty: continue.
	Stop string
	// Rate is how much cost may enter the queue, in units a second, spread evenly. Zero means no bound.
	Rate float64
}

// Halt is the error of a replay that stopped itself. What it took stays taken; a new run continues with what is
// still parked.
type Halt struct {
	Why string
	// Canary is the state of the jobs sent ahead, if they are the reason; nil if the gateway is.
	Canary *Canary
}

// Error implements error.
func (h *Halt) Error() string { return h.Why }

// watchEvery is how often a replay calls Watch.
const watchEvery = 200 * time.Millisecond

// watch calls Watch if the last result is old, and returns a Halt if the replay must stop.
func (c *clearing) watch(ctx context.Context) error {
	now := c.Clock.Now()
	if c.Watch == nil || (!c.watched.IsZero() && now.Sub(c.watched) < watchEvery) {
		return nil
	}
	leave, err := c.Watch(ctx)
	if err != nil {
		return err
	}
	c.watched = now
	if leave.Stop != "" {
		return &Halt{Why: leave.Stop}
	}
	c.pace.change(leave.Rate)
	return nil
}

// pace spreads cost evenly over time.
type pace struct {
	clock clock.Clock
	rate  float64   // units of cost a second; 0 means no bound
	next  time.Time // when the next job may go
}

const (
	// paceTick is the shortest wait: at a high rate several jobs go together, because one script each would be
	// expensive.
	paceTick = 10 * time.Millisecond
	// paceSlack is how much delay is made up for, so that a late timer costs no throughput.
	paceSlack = 50 * time.Millisecond
)

// change sets the rate. A wait for the old rate is shortened to the new one's.
func (p *pace) change(rate float64) {
	if rate == p.rate {
		return
	}
	p.rate = rate
	if first := p.clock.Now().Add(p.span(1)); p.next.After(first) {
		p.next = first
	}
}

// span returns how long so much cost takes at the rate.
func (p *pace) span(cost int64) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(min(float64(cost)/p.rate*float64(time.Second), float64(longest)))
}

// longest keeps a tiny rate from overflowing.
const longest = 1000 * 24 * time.Hour

// room returns how many of the jobs may go now; if none, how long to wait.
func (p *pace) room(jobs []due) (n int, wait time.Duration) {
	if p.rate == 0 {
		return len(jobs), 0
	}
	now := p.clock.Now()
	switch {
	case p.next.IsZero():
		p.next = now
	case p.next.Before(now.Add(-paceSlack)):
		p.next = now.Add(-paceSlack)
	}
	next := p.next
	for n < len(jobs) && !next.After(now) {
		next = next.Add(p.span(jobs[n].rec.Job.Cost))
		n++
	}
	if n > 0 {
		return n, 0
	}
	return 0, max(p.next.Sub(now), paceTick)
}

// spend counts a job that was sent.
func (p *pace) spend(cost int64) { p.next = p.next.Add(p.span(cost)) }
