package bucket

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/internal/job"
)

const (
	lateWithin  = time.Minute // how long a late report is retried
	lateRetries = 20 * time.Millisecond
	lateAtOnce  = 64                     // calls in one report
	earlyWait   = 100 * time.Millisecond // how long a report of calls that are counted too late waits for others,
	earlyPart   = 10                     // but at most this part of the shortest window
)

// lateCall is a call that was, or will be, written at a moment other than the one at which Redis counts it.
type lateCall struct {
	plan  *plan
	slot  job.Slot
	edge  int64 // the moment at which Redis counts it, in µs on its clock
	count int64 // the moment at which it should count it: the call was, or will be, written then, or within epsilon after it
	since time.Time
}

// moved is a call that was, or will be, written at wrote at the latest. Windows allow for up to epsilon more
// than the moment at which it counts.
func (p *Pacer) moved(pl *plan, s job.Slot, wrote int64) lateCall {
	return lateCall{pl, s, p.late.edge(s), max(wrote-pl.epsilon, s.At), p.clock.Now()}
}

// lateCalls holds the calls that Redis has not been told of, and what it was told of others. The first call
// that was later than counted waits a moment for others, at most a hundredth of the shortest window, and all
// are sent together: many calls cost little more than one, and their permits are not needed again until a
// window later. A report that stalls does not hold up those that come after it.
type lateCalls struct {
	mu       sync.Mutex
	later    []lateCall      // written later than Redis counts them
	earlier  []lateCall      // written earlier
	told     map[int64]int64 // what Redis was told of calls that are not written yet: the moment at which it counts them, by slot number
	next     *announcement   // that further calls can join
	flight   chan struct{}   // holds one while an announcement is being sent
	lateness readiness       // how late after their slots calls are about to be written
}

func newLateCalls() lateCalls {
	return lateCalls{told: map[int64]int64{}, flight: make(chan struct{}, 1)}
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

// allowance is how much later than its slot, in µs, Redis counts a call that is reserved now: 0 if calls are
// hardly ever late, else how late they nearly always are. So few of them wait for an announcement. Windows kept
// in parts allow for the largest lateness there can be.
func (l *lateCalls) allowance(pl *plan) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !pl.exact:
		return pl.tooLate
	case l.lateness.usual() <= pl.epsilon:
		return 0
	}
	return min(l.lateness.most(), pl.tooLate)
}

// learn learns how late a call was about to be written, in µs. That includes calls that are given back as too
// late: otherwise, when all are too late, the allowance would never grow.
func (l *lateCalls) learn(late, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lateness.add(float64(min(max(late, 0), most)))
}

// tellLater tells Redis, in the background, of a call that it counts too early.
func (p *Pacer) tellLater(c lateCall) {
	if !p.late.add(&p.late.later, c) {
		return
	}
	p.background(func() {
		<-time.After(time.Duration(2*c.plan.epsilon) * time.Microsecond)
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
	if _, slow := p.congestion.all.Overloaded(p.clock.Now()); slow || !c.plan.exact || p.over() || !p.late.add(&p.late.earlier, c) {
		return
	}
	p.background(func() {
		<-time.After(min(time.Duration(c.plan.windows[0].length)*time.Microsecond/earlyPart, earlyWait))
		for calls := p.late.take(&p.late.earlier); len(calls) > 0; calls = p.late.take(&p.late.earlier) {
			_, _ = p.reportOnce(calls, answerWithin)
		}
	})
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
		args = append(args, c.slot.At, c.edge, c.slot.Cost, c.count, c.slot.Books)
	}
	ctx, cancel := p.within(context.Background(), within)
	defer cancel()
	if err := p.moveBeside(ctx, calls); err != nil {
		return nil, err
	}
	v, err := lateScript.Run(ctx, p.client, keys, args...).BoolSlice()
	if err == nil && len(v) != len(calls) {
		err = fmt.Errorf("late.lua answered %d values for %d calls: is another version of the program using this Redis?", len(v), len(calls))
	}
	return v, err
}
