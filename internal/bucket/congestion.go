package bucket

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	strayed = 5_000_000 // a slot that was reserved so long ago, in µs, is in hand no longer: nobody tells of it any more
	regain  = 0.25      // how much a slot that is used gives back of what one that passes takes away
)

// congestion bounds how many slots this process has in hand: those that are reserved, and neither written nor given back. On a machine that is too busy the
// slots pass before their jobs are ready to be called. Each of them still costs the work of a pull and of putting the job back, and that work makes the next
// ones pass too. So each slot that passes lowers the bound by one, as a lost segment lowers TCP's (RFC 5681), and each that is used, where others were wanted with
// it and had no room, raises it by a quarter. Where one of five passes, the bound stays. Where fewer pass it comes to have no effect: it is then what the
// limit gives until the first of them has passed, and there are never more.
type congestion struct {
	mu    sync.Mutex
	hand  map[int64]inHand // by the slot's number
	less  float64          // the bound is so much less than the plan's
	short bool             // the last reservation was for fewer slots than wanted
	freed chan struct{}
}

// inHand is what is known of one slot.
type inHand struct {
	since int64 // local µs
	short bool  // others were wanted with it, and there was no room for them
	soon  bool  // its job was ready to be called when the slot came
}

func newCongestion() congestion {
	return congestion{hand: map[int64]inHand{}, freed: make(chan struct{})}
}

// start notes that a slot is in hand, at a local moment in µs.
func (c *congestion) start(s Slot, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hand[s.nth] = inHand{since: now, short: c.short}
}

// ready notes that the job of a slot was ready to be called before the slot came.
func (c *congestion) ready(s Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.hand[s.nth]; ok {
		h.soon = true
		c.hand[s.nth] = h
	}
}

// used notes that a slot's call was written.
func (c *congestion) used(s Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.end(s); ok && h.short {
		c.less = max(c.less-regain, 0)
	}
}

// unused notes that a slot is given back. A job that was ready in time, and whose slot passed nevertheless, may have waited for its connection, which no
// smaller number makes quicker. The plan's bound is most.
func (c *congestion) unused(s Slot, passed bool, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.end(s); ok && passed && !h.soon {
		c.less = min(c.less+1, float64(most-1))
	}
}

// end takes a slot out of the hand. The caller holds mu.
func (c *congestion) end(s Slot) (h inHand, ok bool) {
	if h, ok = c.hand[s.nth]; ok {
		delete(c.hand, s.nth)
		close(c.freed)
		c.freed = make(chan struct{})
	}
	return h, ok
}

// room returns how many of the slots that are wanted this process may reserve at a local moment in µs, where the plan's bound is most, and what
// closes when a slot is no longer in hand.
func (c *congestion) room(now, want, most int64) (int64, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.hand, func(_ int64, h inHand) bool { return now > h.since+strayed })
	have := want
	if c.less > 0 {
		have = min(want, max(most-int64(c.less), 1)-int64(len(c.hand)))
	}
	c.short = have < want
	return have, c.freed
}

// room waits until this process may reserve a slot, and returns how many of those that are wanted.
func (p *Pacer) room(ctx context.Context, want int64) (int64, error) {
	for {
		n, freed := p.congestion.room(p.local(p.clock.Now()), want, p.plan.Load().inHand)
		if n > 0 {
			return n, nil
		}
		if err := p.sleep(ctx, strayed*time.Microsecond, freed); err != nil {
			return 0, err
		}
	}
}
