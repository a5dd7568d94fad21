package bucket

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	lateWithin  = time.Minute // a report of lateness is tried for so long
	lateRetries = 20 * time.Millisecond
	lateAtOnce  = 64 // calls in one report
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
	mu      sync.Mutex
	waiting []lateCall
	told    map[int64]*told // what Redis was told of calls that are not written yet, by the slot's number
	next    *announcement   // that further calls can join
	flight  chan struct{}   // holds one while an announcement is on its way
	answers readiness       // how long announcements take to be heard
}

func newLateCalls() lateCalls {
	return lateCalls{told: map[int64]*told{}, flight: make(chan struct{}, 1)}
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
