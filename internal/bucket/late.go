package bucket

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	lateWithin   = time.Minute // a report of lateness is tried for so long
	lateRetries  = 20 * time.Millisecond
	lateAtOnce   = 64 // calls in one report
	earlyMost    = 50 * time.Millisecond
	earlyPart    = 20 // calls that were counted too late wait so long for others, or for such a part of the shortest window
	earlyAnswers = time.Second
)

// lateCall is a call that was, or will be, written at another moment than the one at which Redis counts it.
type lateCall struct {
	plan  *plan
	slot  Slot
	edge  int64 // the moment at which Redis counts it, in µs on its clock
	wrote int64 // the latest moment at which it was, or will be, written
	since time.Time
}

// moved is a call that Redis is to count at another moment.
func (p *Pacer) moved(pl *plan, s Slot, wrote int64) lateCall {
	return lateCall{pl, s, p.late.edge(s), wrote, p.clock.Now()}
}

// lateCalls is those that Redis has not heard of. The first waits a moment for others, a hundredth of the shortest window at most, and all go together:
// many calls cost little more than one, and the permit of none is missed, which is wanted again a window later. A report that stalls holds
// up none that come after it.
type lateCalls struct {
	mu       sync.Mutex
	later    []lateCall      // written later than Redis counts them
	earlier  []lateCall      // written earlier
	told     map[int64]int64 // what Redis was told of calls that are not written yet: the moment at which it counts them, by the slot's number
	next     *announcement   // that further calls can join
	flight   chan struct{}   // holds one while an announcement is on its way
	lateness readiness       // how late calls are written after their slots
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
// always. So few of them wait for an announcement.
func (l *lateCalls) allowance(pl *plan) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lateness.usual() <= pl.epsilon {
		return 0
	}
	return min(l.lateness.most(), pl.tooLate)
}

// learn learns how late a call was, in µs.
func (l *lateCalls) learn(late int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lateness.add(float64(max(late, 0)))
}

// tellLater has Redis hear, in the background, of a call that it counts too early.
func (p *Pacer) tellLater(c lateCall) {
	p.tell(&p.late.later, c, 2*c.plan.epsilon, p.reportLate)
}

// tellEarlier has Redis hear, in the background, of a call that it counts too late. That is tried once: its permit only comes back later than it could.
func (p *Pacer) tellEarlier(c lateCall) {
	wait := min(c.plan.windows[0].length/earlyPart, earlyMost.Microseconds())
	p.tell(&p.late.earlier, c, wait, func(calls []lateCall) { _, _ = p.reportOnce(calls, earlyAnswers) })
}

// tell reports a call, and those that come within so many µs.
func (p *Pacer) tell(to *[]lateCall, c lateCall, within int64, report func([]lateCall)) {
	if !p.late.add(to, c) {
		return
	}
	p.background(func() {
		<-time.After(time.Duration(within) * time.Microsecond)
		var all sync.WaitGroup
		for calls := p.late.take(to); len(calls) > 0; calls = p.late.take(to) {
			all.Go(func() { report(calls) })
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
	args := []any{pl.shape, pl.tooLate}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	for _, c := range calls {
		args = append(args, c.slot.At, c.edge, c.slot.Cost, c.wrote, c.slot.books)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return lateScript.Run(ctx, p.client, keys, args...).Int64()
}
