package bucket

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"spillway/internal/job"
)

const (
	lateWithin  = time.Minute // how long a late report is retried
	lateRetries = 20 * time.Millisecond
	lateAtOnce  = 512                    // calls in one report
	earlyWait   = 100 * time.Millisecond // how long a report of calls that are counted too late waits for others,
	earlyPart   = 10                     // but at most this part of the shortest window
)

// tellLater tells Redis, in the background, of a call that it counts too early.
func (p *Pacer) tellLater(c lateCall) {
	epsilon := c.plan.epsilon
	if !p.late.add(&p.late.later, c) {
		return
	}
	p.background(func() {
		<-time.After(time.Duration(2*epsilon) * time.Microsecond)
		var all sync.WaitGroup
		for calls := p.late.take(&p.late.later); len(calls) > 0; calls = p.late.take(&p.late.later) {
			all.Go(func() { p.reportLate(calls) })
		}
		all.Wait()
	})
}

// tellEarlier tells Redis, in the background, of a call that exact windows count too late. It is tried once, as
// a second try could find the permit of another call, and not after Close: then the permit only comes back
// later than it could. In a process that is too slow for its gateways no call waits for a permit, and the
// report would only be work that delays others.
func (p *Pacer) tellEarlier(c lateCall) {
	pl := c.plan
	if _, slow := p.congestion.all.Overloaded(p.clock.Now()); slow || !pl.exact || p.over() || !p.late.add(&p.late.earlier, c) {
		return
	}
	p.background(func() {
		<-time.After(min(time.Duration(pl.windows[0].length)*time.Microsecond/earlyPart, earlyWait))
		for calls := p.late.take(&p.late.earlier); len(calls) > 0; calls = p.late.take(&p.late.earlier) {
			_, _ = p.reportOnce(calls, answerWithin)
		}
	})
}

// add adds a call, and reports whether it is the first that waits.
func (l *lateCalls) add(to *[]lateCall, c lateCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to = append(*to, c)
	return len(*to) == 1
}

// take removes and returns the oldest waiting calls of one plan, at most lateAtOnce. With none left, the next
// call is the first again.
func (l *lateCalls) take(from *[]lateCall) []lateCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, n := *from, 0
	for n < len(all) && n < lateAtOnce && all[n].plan == all[0].plan {
		n++
	}
	next := slices.Clone(all[:n])
	*from = slices.Delete(all, 0, n)
	return next
}

// reportLate tells Redis of the calls until it answers; telling it twice of a later moment does no harm. It
// goes on trying because other processes may reach Redis while this one does not, and would be given the
// permits too soon. All calls are of one plan.
func (p *Pacer) reportLate(calls []lateCall) {
	for wait := lateRetries; ; wait = min(2*wait, time.Second) {
		calls = slices.DeleteFunc(calls, func(c lateCall) bool {
			old := p.clock.Now().Sub(c.since) >= lateWithin
			if old {
				p.meters.lost.Inc()
			}
			return old
		})
		if len(calls) == 0 {
			return
		}
		counted, err := p.reportOnce(calls, answerWithin)
		if err == nil {
			for _, yes := range counted {
				if !yes {
					p.meters.lost.Inc()
				}
			}
			return
		}
		<-time.After(wait)
	}
}

// reportOnce tells Redis once, and returns for each call whether Redis counts it at its new moment.
func (p *Pacer) reportOnce(calls []lateCall, within time.Duration) (counted []bool, err error) {
	pl := calls[0].plan
	keys := append([]string{p.keys.Pace()}, p.lists(len(pl.windows))...)
	args := []any{pl.shape, pl.tooLate}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	for _, c := range calls {
		args = append(args, c.slot.At, c.edge, c.slot.Cost, c.count, c.slot.StateID)
	}
	ctx, cancel := p.within(context.Background(), within)
	defer cancel()
	if slices.ContainsFunc(calls, func(c lateCall) bool { return c.slot.Flow.Kept }) {
		if err := p.moveBeside(ctx, calls); err != nil {
			return nil, err
		}
	}
	v, err := lateScript.Run(ctx, p.client, keys, args...).BoolSlice()
	if err == nil && len(v) != len(calls) {
		err = fmt.Errorf("late.lua answered %d values for %d calls: is another version of the program using this Redis?", len(v), len(calls))
	}
	return v, err
}

// announcement is one message to Redis about calls that are about to be written later than Redis counts them.
type announcement struct {
	plan   *plan
	slots  []job.Slot
	before <-chan struct{} // closed when the announcement before it is over; nil for the first
	over   chan struct{}   // closed when heard is known
	heard  map[int64]bool  // by slot number
}

// stallPart is the part of the time in which a call may be written late after which an announcement that has no
// answer holds up others no longer.
const stallPart = 8

// announce tells Redis that the slot's call is about to be written late, and reports whether Redis has
// confirmed it. Calls that come while an announcement is under way share the next one, which is sent when that
// one is answered, or stalls: then the calls that share it would be too late.
func (p *Pacer) announce(s job.Slot) bool {
	a, first := p.late.join(p.plan.Load(), s)
	if !first {
		<-a.over
		return a.heard[s.Number]
	}
	if a.before != nil {
		select {
		case <-a.before:
		case <-p.clock.After(time.Duration(a.plan.tooLate/stallPart) * time.Microsecond):
		}
	}
	p.late.leave(a)
	a.heard = p.announceAll(a)
	close(a.over)
	return a.heard[s.Number]
}

// announceAll has Redis count the calls at the last moment at which they can be written, and returns those that
// Redis found; it does not count the others later. Written reports the moment at which they were written.
func (p *Pacer) announceAll(a *announcement) (heard map[int64]bool) {
	now := p.clock.Now()
	if !slices.ContainsFunc(a.slots, func(s job.Slot) bool { return !p.Passed(s, now) }) {
		return nil
	}
	calls := make([]lateCall, len(a.slots))
	for i, s := range a.slots {
		calls[i] = p.moved(a.plan, s, s.At+a.plan.tooLate)
	}
	within := time.Duration(a.plan.tooLate+p.unknown(now)) * time.Microsecond // after that their slots have passed
	counted, err := p.reportOnce(calls, within)
	if err != nil {
		return nil
	}
	heard = map[int64]bool{}
	for i, c := range calls {
		if counted[i] {
			p.late.note(c.slot, c.count)
			heard[c.slot.Number] = true
		}
	}
	return heard
}

// unknown is how uncertain Redis's clock is, in µs: at most a round trip, and more when the last one was long
// ago.
func (p *Pacer) unknown(now time.Time) int64 {
	at := p.local(now)
	return p.bounds.notAfter(at) - p.bounds.earliest(at)
}

// join adds a slot to the next announcement. first is true for the slot that joins first: its caller sends the
// announcement.
func (l *lateCalls) join(pl *plan, s job.Slot) (a *announcement, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.next == nil || l.next.plan != pl || len(l.next.slots) == lateAtOnce; first {
		l.next = &announcement{plan: pl, before: l.sending, over: make(chan struct{})}
		l.sending = l.next.over
	}
	if !slices.ContainsFunc(l.next.slots, func(other job.Slot) bool { return other.Number == s.Number }) { // asked on a second connection, as the first one broke
		l.next.slots = append(l.next.slots, s)
	}
	return l.next, first
}

// leave closes the announcement to further slots.
func (l *lateCalls) leave(a *announcement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == a {
		l.next = nil
	}
}

// note records that Redis counts the slot's call at this moment.
func (l *lateCalls) note(s job.Slot, edge int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.edges[s.Number] = edge
	maps.DeleteFunc(l.edges, func(_, old int64) bool { return old < edge-lateWithin.Microseconds() }) // released before the answer came
}
