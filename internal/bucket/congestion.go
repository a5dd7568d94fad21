package bucket

import (
	"context"
	"maps"
	"sync"
	"time"

	"spillway/internal/job"
)

const (
	strayed = 3_000_000 // a slot reserved this long ago, in µs, no longer counts as in hand, whatever has become of its job
	regain  = 0.25      // how much of the reduction by one late job is undone by one that is ready in time
)

// congestion bounds how many slots this process has in hand: those that are reserved and whose jobs are not yet
// ready to be called. On a machine that is too busy, slots pass before their jobs are ready. Each of them still
// costs the work of a pull and of putting the job back, and that work makes the next ones pass too. So each
// slot that passes lowers the bound by one, and each whose job is ready in time while more slots were wanted
// raises it by a quarter. If one of five passes, the bound stays.
type congestion struct {
	mu    sync.Mutex
	hand  map[int64]inHand // by slot number
	less  float64          // how far the bound is below the plan's
	all   *Burden          // of the process
	freed chan struct{}
}

// inHand is what is known of one slot.
type inHand struct {
	since int64 // local µs
	short bool  // more slots were wanted with it, and there was no room
}

func newCongestion() congestion {
	return congestion{hand: map[int64]inHand{}, freed: make(chan struct{})}
}

// start records that a slot is in hand from local time now, in µs. short means that more slots were wanted with
// it, and there was no room.
func (c *congestion) start(s job.Slot, now int64, short bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hand[s.Number] = inHand{now, short}
	c.all.add(1)
}

// inTime records that a slot's job was ready to be called when the slot came, or not too late after it. What
// follows, such as the way to the gateway, gets no shorter with fewer slots.
func (c *congestion) inTime(s job.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.end(s); ok && h.short {
		c.less = max(c.less-regain, 0)
	}
}

// unused records that a slot is given back. most is the plan's bound.
func (c *congestion) unused(s job.Slot, passed bool, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.end(s); ok && passed {
		c.less = min(c.less+1, float64(most-1))
	}
}

// end removes a slot from those in hand. The caller holds mu.
func (c *congestion) end(s job.Slot) (h inHand, ok bool) {
	if h, ok = c.hand[s.Number]; ok {
		delete(c.hand, s.Number)
		c.all.add(-1)
		close(c.freed)
		c.freed = make(chan struct{})
	}
	return h, ok
}

// close removes all slots from those in hand: no more are asked for.
func (c *congestion) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.add(-int64(len(c.hand)))
	clear(c.hand)
}

// room returns how many slots this process may reserve at local time now, in µs, and a channel that is closed
// when a slot is no longer in hand. most is the plan's bound, least the lowest one.
func (c *congestion) room(now, least, most int64) (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.hand)
	maps.DeleteFunc(c.hand, func(_ int64, h inHand) bool { return now > h.since+strayed })
	c.all.add(int64(len(c.hand) - before))
	c.less = min(c.less, float64(most-1)) // the limit may have been higher
	if c.less == 0 {
		return job.MaxCount, c.freed
	}
	return max(most-int64(c.less), min(least, most)) - int64(len(c.hand)), c.freed
}

// room waits until this process may reserve a slot, and returns how many, at the most. The lowest bound is one
// slot plus those that come during one answer of Redis: these are in hand however far away Redis is, and a
// lower number would not bring it nearer.
func (p *Pacer) room(ctx context.Context) (int64, error) {
	for {
		now, pl := p.clock.Now(), p.plan.Load()
		n, freed := p.congestion.room(p.local(now), 1+p.away.is()/max(pl.spacing, 1), pl.inHand)
		if n > 0 {
			return n, nil
		}
		if err := p.sleep(ctx, time.Second, freed); err != nil {
			return 0, err
		}
	}
}
