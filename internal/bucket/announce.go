package bucket

import (
	"maps"
	"slices"
	"time"

	"spillway/internal/job"
)

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
	l.told[s.Number] = edge
	maps.DeleteFunc(l.told, func(_, old int64) bool { return old < edge-lateWithin.Microseconds() }) // released before the answer came
}

// edge is the moment at which Redis counts the slot's call, in µs on its clock.
func (l *lateCalls) edge(s job.Slot) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(s.At, s.Counted, l.told[s.Number])
}

// forget drops slots whose calls were written, or will not be.
func (l *lateCalls) forget(slots ...job.Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots {
		delete(l.told, s.Number)
	}
}
