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
	lateWithin  = time.Minute // a report of lateness is tried for so long
	lateRetries = 20 * time.Millisecond
	lateAtOnce  = 64                     // calls in one report
	earlyWait   = 100 * time.Millisecond // a report of calls that are counted too late waits so long for others,
	earlyPart   = 10                     // but for such a part of the shortest window at most
)

// lateCall is a call that was, or will be, written at another moment than the one at which Redis counts it.
type lateCall struct {
	plan  *plan
	slot  job.Slot
	edge  int64 // the moment at which Redis counts it, in µs on its clock
	count int64 // the moment at which it is to count it: it was, or will be, written then, or within epsilon after it
	since time.Time
}

// moved is a call that was, or will be, written at this moment at the latest. Windows allow for epsilon more than that at which it counts.
func (p *Pacer) moved(pl *plan, s job.Slot, wrote int64) lateCall {
	return lateCall{pl, s, p.late.edge(s), max(wrote-pl.epsilon, s.At), p.clock.Now()}
}

// lateCalls is those that Redis has not heard of, and what it was told of others. The first that was later than it is counted waits a moment for others, a hundredth of the
// shortest window at most, and all go together: many calls cost little more than one, and their permits are not wanted again before a window later. A report of these that stalls
// holds up none that come after it.
type lateCalls struct {
	mu       sync.Mutex
	later    []lateCall      // written later than Redis counts them
	earlier  []lateCall      // written earlier
	told     map[int64]int64 // what Redis was told of calls that are not written yet: the moment at which it counts them, by the slot's number
	next     *announcement   // that further calls can join
	flight   chan struct{}   // holds one while an announcement is on its way
	lateness readiness       // how late after their slots calls are about to be written
}

func newLateCalls() lateCalls {
	return lateCalls{told: map[int64]int64{}, flight: make(chan struct{}, 1)}
}

// add notes a call, and says whether it is the first that waits.
func (l *lateCalls) add(to *[]lateCall, c lateCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to = append(*to, c)
	return len(*to) == 1
}

// take takes the oldest calls of one plan that wait, lateAtOnce at most; with none left the next call is the first again.
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

// allowance is how much later than its slot, in µs, Redis counts a call that is reserved now: nothing where calls are hardly late, or else what they are late nearly
// always. So few of them wait for an announcement. Windows in parts allow for all that there can be.
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

// learn learns how late a call was about to be written, in µs, also one that is given back as it is too late: else, where all are, nothing would ever be allowed for.
func (l *lateCalls) learn(late, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lateness.add(float64(min(max(late, 0), most)))
}

// tellLater has Redis hear, in the background, of a call that it counts too early.
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

// tellEarlier has Redis hear, in the background, of a call that exact windows count too late. That is tried once, as the second time it
// could be another call's permit that is found, and not by a pacer that was closed: the permit comes back later than it could, that is all. In a process that is too
// slow for its gateways no call waits for a permit, and the report is work that others wait for.
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

// reportLate tells Redis until it answers; telling it twice of a later moment does no harm. While this process does not reach Redis others may,
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

// reportOnce tells Redis, and returns for each call whether it counts it at its new moment.
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
	ctx, cancel := context.WithTimeout(context.Background(), within)
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
