package bucket

import (
	"slices"
	"time"
)

const announceTries = 3

// announcement tells Redis of calls that are about to be written late.
type announcement struct {
	plan  *plan
	slots []Slot
	over  chan struct{} // closes when heard is known
	heard bool
}

// told is what Redis was told of one slot's call before it is written. All moments are µs on Redis's clock; zero means none.
type told struct {
	edge  int64         // Redis counts the call as written at this moment
	tried int64         // Redis was told of this moment when the slot was reserved, and has not answered: it counts the call then, or at the slot's own
	over  chan struct{} // closes when the answer is there, or nobody waits for it any more; nil where Redis is not being told
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

// announceAll allows for the time that an answer takes nearly always, and for what a write may be late without anybody minding; for four times as long, where one
// of the calls had been announced before and the answer was too slow.
func (p *Pacer) announceAll(a *announcement) bool {
	now := p.clock.Now()
	if !slices.ContainsFunc(a.slots, func(s Slot) bool { return !p.Passed(s, now) }) {
		return false
	}
	away := p.distance(now)
	within := time.Duration(a.plan.tooLate+away) * time.Microsecond // after that its slots have passed
	allowed := max(2*away, p.late.answerTime())
	if slices.ContainsFunc(a.slots, func(s Slot) bool { return p.late.edge(s) > s.At }) {
		allowed = min(4*allowed, within.Microseconds())
	}
	until := p.bounds.notAfter(p.local(now)) + allowed + a.plan.epsilon
	calls := make([]lateCall, len(a.slots))
	for i, s := range a.slots {
		at := s.At
		s.At = p.late.edge(s)
		calls[i] = lateCall{a.plan, s, max(s.At, min(until, at+a.plan.tooLate+a.plan.epsilon)), now} // no call goes out after its slot has passed
	}
	lost, err := p.reportOnce(calls, within)
	p.late.answered(p.clock.Now().Sub(now))
	if err != nil || lost > 0 {
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
	need, lead, usual := p.preparation(), p.Lead().Microseconds(), p.usualPreparation()
	for _, s := range slots {
		wrote := func(ready int64) int64 { return max(s.At+away, p.bounds.notAfter(local)+ready, s.At-lead+ready+away) }
		if wrote(usual) <= s.At+pl.epsilon {
			continue // it will hardly be late
		}
		if edge := min(wrote(need), s.At+pl.tooLate) + pl.epsilon; edge > s.At+2*pl.epsilon {
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

// answered learns how long Redis took to hear of an announcement.
func (l *lateCalls) answered(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers.add(float64(took.Microseconds()))
}

// answerTime is how long Redis takes to hear of an announcement, nearly always, in µs; 0 as long as nobody knows.
func (l *lateCalls) answerTime() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers.most()
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
	l.told[s.nth] = &told{edge: until}
}

// begin notes that Redis is to be told of slots ahead of their calls.
func (l *lateCalls) begin(calls []lateCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		l.told[c.slot.nth] = &told{tried: c.wrote, over: make(chan struct{})}
	}
}

// end notes what came of telling Redis of slots ahead of their calls, but for those that are forgotten by now.
func (l *lateCalls) end(calls []lateCall, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		t := l.told[c.slot.nth]
		if t == nil || t.over == nil {
			continue
		}
		if heard {
			t.edge, t.tried = c.wrote, 0
		}
		close(t.over)
		t.over = nil
	}
}

// settle waits, for as long as Redis's answer is waited for, while Redis is being told of these slots: until then nobody knows at which moment it counts their calls. It
// reports whether it had to.
func (l *lateCalls) settle(slots ...Slot) (waited bool) {
	for _, s := range slots {
		if over := l.of(s).over; over != nil {
			<-over
			waited = true
		}
	}
	return waited
}

// of returns what Redis was told of the slot's call.
func (l *lateCalls) of(s Slot) told {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.told[s.nth]; t != nil {
		return *t
	}
	return told{}
}

// edge is the moment up to which Redis counts the slot's call as written, where that is known.
func (l *lateCalls) edge(s Slot) int64 { return max(s.At, l.of(s).edge) }

// doubtful reports that nobody knows at which moment Redis counts the slot's call.
func (l *lateCalls) doubtful(s Slot) bool { return l.of(s).tried != 0 }

// edges returns the moments up to which Redis may count the slot's call as written: two, where that is doubtful.
func (l *lateCalls) edges(s Slot) []int64 {
	t := l.of(s)
	if t.tried != 0 {
		return []int64{s.At, t.tried}
	}
	return []int64{max(s.At, t.edge)}
}

// forget is for slots whose calls were written, or will not be.
func (l *lateCalls) forget(slots ...Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots {
		if t := l.told[s.nth]; t != nil && t.over != nil {
			close(t.over)
		}
		delete(l.told, s.nth)
	}
}
