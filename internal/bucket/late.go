package bucket

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	lateWithin    = time.Minute // a report of lateness is tried for so long
	lateRetries   = 20 * time.Millisecond
	lateAtOnce    = 64 // calls in one report
	announceTries = 3
)

// lateCall is a call that was written late after its slot.
type lateCall struct {
	plan  *plan
	slot  Slot  // At is the moment that Redis knows of: the slot's own, or the one that was announced
	wrote int64 // the latest moment, in µs on Redis's clock
	since time.Time
}

// lateCalls is those that Redis has not heard of. The first waits a moment for others, a hundredth of the shortest window at most, and all go together:
// many calls cost little more than one, and the permit of none is missed, which is wanted again a window later. A report that stalls holds
// up none that come after it.
type lateCalls struct {
	mu        sync.Mutex
	waiting   []lateCall
	announced map[int64]int64         // until when, by the slot's number, in µs on Redis's clock, a call that is not written yet may be
	asking    map[int64]chan struct{} // closes when Redis has been told of a slot ahead of its call, or nobody asks any more, by the slot's number
	tried     map[int64]int64         // the moment it was told of then
	next      *announcement           // that further calls can join
	flight    chan struct{}           // holds one while an announcement is on its way
}

// announcement tells Redis of calls that are about to be written late.
type announcement struct {
	plan  *plan
	slots []Slot
	over  chan struct{} // closes when heard is known
	heard bool
}

// add notes a call, and says whether it is the first that waits.
func (l *lateCalls) add(c lateCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, c)
	return len(l.waiting) == 1
}

// take takes the oldest calls of one plan that wait, lateAtOnce at most; with none left the next call is the first again.
func (l *lateCalls) take() []lateCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.waiting) && n < lateAtOnce && l.waiting[n].plan == l.waiting[0].plan {
		n++
	}
	next := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return next
}

// tellLate has Redis hear of a call in the background.
func (p *Pacer) tellLate(c lateCall) {
	if !p.late.add(c) {
		return
	}
	p.background(func() {
		<-time.After(time.Duration(2*c.plan.epsilon) * time.Microsecond)
		var all sync.WaitGroup
		for calls := p.late.take(); len(calls) > 0; calls = p.late.take() {
			all.Go(func() { p.reportLate(calls) })
		}
		all.Wait()
	})
}

// reportLate tells Redis until it answers; telling it twice does no harm. While this process does not reach Redis others may,
// and would give the permits out too soon: so it goes on trying. All calls are of one plan.
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
		lost, err := p.reportOnce(calls, answerWithin)
		if err == nil {
			p.meters.lost.Add(float64(lost))
			return
		}
		<-time.After(wait)
	}
}

func (p *Pacer) reportOnce(calls []lateCall, within time.Duration) (lost int64, err error) {
	pl := calls[0].plan
	keys := append([]string{p.keys.Pace()}, p.lists(len(pl.windows))...)
	args := []any{pl.shape}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	for _, c := range calls {
		args = append(args, c.slot.At, c.slot.Cost, c.wrote)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return lateScript.Run(ctx, p.client, keys, args...).Int64()
}

// announce tells Redis that the slot's call is about to be written late, and reports whether Redis has heard it. One announcement is on its way at a time;
// calls that come meanwhile share the next one.
func (p *Pacer) announce(s Slot) bool {
	a, first := p.late.join(p.plan.Load(), s)
	if !first {
		<-a.over
		return a.heard
	}
	p.late.flight <- struct{}{}
	p.late.leave(a)
	a.heard = p.announceAll(a)
	<-p.late.flight
	close(a.over)
	return a.heard
}

// announceAll allows for the way of the answer, and for what a write may be late without anybody minding; for as long as an answer is waited for, where one of the
// calls had been announced before and the answer was too slow.
func (p *Pacer) announceAll(a *announcement) bool {
	now := p.clock.Now()
	if !slices.ContainsFunc(a.slots, func(s Slot) bool { return !p.Passed(s, now) }) {
		return false
	}
	away := p.distance(now)
	within := time.Duration(a.plan.tooLate+away) * time.Microsecond // after that its slots have passed
	allowed := 2 * away
	if slices.ContainsFunc(a.slots, func(s Slot) bool { return p.late.edge(s) > s.At }) {
		allowed = within.Microseconds()
	}
	until := p.bounds.notAfter(p.local(now)) + allowed + a.plan.epsilon
	calls := make([]lateCall, len(a.slots))
	for i, s := range a.slots {
		at := s.At
		s.At = p.late.edge(s)
		calls[i] = lateCall{a.plan, s, max(s.At, min(until, at+a.plan.tooLate+a.plan.epsilon)), now} // no call goes out after its slot has passed
	}
	if lost, err := p.reportOnce(calls, within); err != nil || lost > 0 {
		return false // what Redis does not find it counts no later
	}
	for i, s := range a.slots {
		p.late.note(s, calls[i].wrote)
	}
	return true
}

// ahead returns those of some slots just reserved whose calls will be late as far as this process can tell: where Redis is so far away that its clock is not
// known well, or a job is ready long after it was pulled. They are to be announced before anybody has them in hand.
func (p *Pacer) ahead(slots []Slot) (calls []lateCall) {
	pl, now := p.plan.Load(), p.clock.Now()
	away, local := p.distance(now), p.local(now)
	need, lead := p.preparation(), p.Lead().Microseconds()
	for _, s := range slots {
		wrote := max(s.At+away, p.bounds.notAfter(local)+need, s.At-lead+need+away)
		if edge := min(wrote, s.At+pl.tooLate) + pl.epsilon; edge > s.At+2*pl.epsilon {
			calls = append(calls, lateCall{pl, s, edge, now})
		}
	}
	p.late.begin(calls)
	return calls
}

// announceAhead tells Redis of such calls. Then none of them waits for that when it is to be written.
func (p *Pacer) announceAhead(calls []lateCall) {
	if len(calls) > 0 {
		lost, err := p.reportOnce(calls, answerWithin)
		p.late.end(calls, err == nil && lost == 0)
	}
}

// distance is the time that Redis needs for an answer, at the most that it can have been, in µs.
func (p *Pacer) distance(now time.Time) int64 {
	at := p.local(now)
	return p.bounds.notAfter(at) - p.bounds.earliest(at)
}

// join adds a slot to the announcement that is next, and says whether it is the first in it, which sends it.
func (l *lateCalls) join(pl *plan, s Slot) (a *announcement, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.next == nil || l.next.plan != pl || len(l.next.slots) == lateAtOnce; first {
		l.next = &announcement{plan: pl, over: make(chan struct{})}
	}
	l.next.slots = append(l.next.slots, s)
	return l.next, first
}

// leave lets no further slot join.
func (l *lateCalls) leave(a *announcement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == a {
		l.next = nil
	}
}

// note notes that Redis counts the slot's call as written at this moment.
func (l *lateCalls) note(s Slot, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announced[s.nth] = until
}

// unknown stands for the moment of a slot of which Redis was told, and did not answer: it may count the call at either moment.
const unknown = -1

// begin notes that Redis is to be told of slots ahead of their calls.
func (l *lateCalls) begin(calls []lateCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		l.asking[c.slot.nth], l.tried[c.slot.nth] = make(chan struct{}), c.wrote
	}
}

// end notes what came of telling Redis of slots ahead of their calls, but for those that are forgotten by now.
func (l *lateCalls) end(calls []lateCall, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		over, ok := l.asking[c.slot.nth]
		if !ok {
			continue
		}
		if l.announced[c.slot.nth] = unknown; heard {
			l.announced[c.slot.nth] = c.wrote
		}
		delete(l.asking, c.slot.nth)
		close(over)
	}
}

// settle waits, for as long as Redis's answer is waited for, while Redis is being told of these slots: until then nobody knows at which moment it counts their calls. It
// reports whether it had to.
func (l *lateCalls) settle(slots ...Slot) (waited bool) {
	for _, s := range slots {
		l.mu.Lock()
		over, asking := l.asking[s.nth]
		l.mu.Unlock()
		if asking {
			<-over
			waited = true
		}
	}
	return waited
}

// edges returns the moments up to which Redis may count the slot's call as written: two, while it is being told of it, or has not answered.
func (l *lateCalls) edges(s Slot) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, announced := l.announced[s.nth]
	_, asking := l.asking[s.nth]
	switch {
	case asking || at == unknown:
		return []int64{s.At, l.tried[s.nth]}
	case announced:
		return []int64{max(s.At, at)}
	}
	return []int64{s.At}
}

// doubtful reports that nobody knows at which moment Redis counts the slot's call.
func (l *lateCalls) doubtful(s Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.announced[s.nth] == unknown
}

func newLateCalls() lateCalls {
	return lateCalls{announced: map[int64]int64{}, asking: map[int64]chan struct{}{}, tried: map[int64]int64{}, flight: make(chan struct{}, 1)}
}

// edge is the moment up to which Redis counts the slot's call as written.
func (l *lateCalls) edge(s Slot) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(s.At, l.announced[s.nth])
}

// forget is for slots whose calls were written, or will not be.
func (l *lateCalls) forget(slots ...Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots {
		delete(l.announced, s.nth)
		delete(l.tried, s.nth)
		if over, ok := l.asking[s.nth]; ok {
			delete(l.asking, s.nth)
			close(over)
		}
	}
}
