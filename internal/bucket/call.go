package bucket

import (
	"context"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

const (
	firstLead = 3 * time.Millisecond
	leastLead = time.Millisecond
)

// Due returns the local moment before which the slot's call must not be written, assuming that Redis's clock is
// as far behind as it may be. Ask again after a long wait: the bounds get better, and Redis's clock may turn
// out to be too fast. If Redis's clock has been set since the slot was given out, Due does not wait: the slot
// is too late already.
func (p *Pacer) Due(s job.Slot) time.Time {
	if !p.bounds.current(s.Era) {
		return p.clock.Now()
	}
	now := p.local(p.clock.Now())
	unseen := max(p.bounds.seen(0, now)-s.Seen, 0) // the clock was too fast, unnoticed, when the slot was given out
	at := p.bounds.notBefore(s.At+unseen, now)
	return p.began.Add(time.Duration(at-p.slept.Load()) * time.Microsecond)
}

// TooLate reports whether the slot is of no more use: release it then and take another. That is so if the slot
// has passed by a quarter of the shortest window, at most a second (or by 250 ms, if that is less and a long
// window is kept in parts), lies inside a hold known here, or is on Redis's clock as it was before it was set.
//
// A call that comes more than 2 ms (less for windows shorter than 400 ms) after the moment at which Redis
// counts it takes a round trip: Redis has to know that it comes late before it is written, or its permit could
// be given out too soon. If Redis does not answer, it is too late. Ask just before the write.
func (p *Pacer) TooLate(s job.Slot, now time.Time) bool {
	if p.bounds.current(s.Era) {
		p.late.learn(p.bounds.notAfter(p.local(now))-s.At, p.plan.Load().tooLate)
	}
	for !p.Passed(s, now) {
		if p.bounds.notAfter(p.local(now)) <= p.late.edge(s)+p.plan.Load().epsilon {
			return false
		}
		if !p.announce(s) {
			return true
		}
		now = p.clock.Now() // waiting for the answer may have made it too late
	}
	return true
}

// Behind returns how far a slot lies back at most, by Redis's clock and with the time for which this machine
// was suspended; negative for one that is to come. ok is false if Redis's clock has been set since it was given
// out.
func (p *Pacer) Behind(s job.Slot, now time.Time) (d time.Duration, ok bool) {
	return time.Duration(p.bounds.notAfter(p.local(now))-s.At) * time.Microsecond, p.bounds.current(s.Era)
}

// Passed reports, as TooLate does, whether the slot is of no more use, for a call that is not about to be
// written yet.
func (p *Pacer) Passed(s job.Slot, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed(s, now, p.plan.Load().tooLate)
}

// Written reports the moment just after the slot's call was written; every call must be reported. If Redis
// counts it at another moment, it is corrected in the background: a call that was later, as by a process that
// stood still after TooLate, keeps its permit longer; one that was earlier gives it back sooner.
func (p *Pacer) Written(s job.Slot, at time.Time) {
	pl := p.plan.Load()
	p.congestion.inTime(s)
	pl.audit.add(p.local(at), s.Cost, func(window string, most int64) { p.meters.fullest.WithLabelValues(window).Set(float64(most)) })
	if !p.bounds.current(s.Era) {
		p.late.forget(s)
		return // the delay is not known, and the permit has another moment by now
	}
	wrote := p.bounds.notAfter(p.local(at))
	late := wrote - s.At
	p.meters.lateness().Observe(float64(max(late, 0)) / 1e6)
	if late > pl.epsilon {
		p.meters.late.Inc()
	}
	c := p.moved(pl, s, wrote)
	p.late.forget(s)
	switch {
	case c.count > c.edge:
		p.tellLater(c)
	case c.edge > c.count+pl.epsilon:
		p.tellEarlier(c)
	}
}

// Ready reports the moment at which the handler of the slot's job was ready to write; Lead learns from it.
func (p *Pacer) Ready(s job.Slot, at time.Time) {
	pl, late := p.plan.Load(), p.bounds.notAfter(p.local(at))-s.At
	if late <= pl.epsilon {
		p.congestion.inTime(s)
	}
	p.congestion.all.ready(late, pl.tooLate)
	if s.Asked == 0 {
		return
	}
	took := min(max(p.local(at)-s.Asked, 0), p.plan.Load().horizon+p.plan.Load().tooLate)
	p.mu.Lock()
	p.pace.add(float64(took))
	p.mu.Unlock()
}

// End says that the slot's call ended and frees its place among the calls in flight. Without a cap it costs no
// round trip, unless the call was the one sent ahead after a hold. It waits for Redis's answer or the end of
// ctx; if Redis can't be reached, it is told again until it answers or the lease expires.
func (p *Pacer) End(ctx context.Context, s job.Slot) {
	p.mu.Lock()
	probe := s.Probe && p.known.probing
	p.mu.Unlock()
	if s.Lease == "" && !probe && s.Flow.Marks == 0 {
		return
	}
	over := p.background(func() {
		if err := p.end(s, probe); err != nil {
			p.endLater([]job.Slot{s})
		}
		p.Wake()
	})
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Succeeded says that the call of this slot succeeded: after a hold, the rest may follow. first says that its
// job had never been called before. It costs a round trip only while this process knows of a hold. It reports
// whether this closed the circuit.
func (p *Pacer) Succeeded(ctx context.Context, s job.Slot, first bool) (closed bool) {
	p.mu.Lock()
	probing := p.known.probing
	p.mu.Unlock()
	if s.Flow.Marks&(routeMark|laneMark) != 0 {
		p.succeededIn(ctx, s, first)
	}
	if !probing {
		return false
	}
	free, err := succeededScript.Run(ctx, p.client, []string{p.keys.Hold(), p.keys.Rate()}, p.now(), HoldChannel, p.gateway, s.At, redisdb.Flag(first)).Int64()
	if err != nil || free == 0 {
		return false // the next success reports it again
	}
	p.mu.Lock()
	p.known.probing = false
	p.mu.Unlock()
	p.meters.circuit.set(false)
	p.Wake()
	return free == 2
}

// passed reports whether the slot is more than allowed µs in the past, inside a hold, or on another clock. The
// caller holds mu.
func (p *Pacer) passed(s job.Slot, now time.Time, allowed int64) bool {
	return !p.bounds.current(s.Era) || p.bounds.notAfter(p.local(now)) > s.At+allowed || s.At < p.known.held
}

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
	edges    map[int64]int64 // what Redis was told of calls that are not written yet: the moment at which it counts them, by slot number
	next     *announcement   // that further calls can join
	sending  <-chan struct{} // closed when the latest announcement is over; nil before the first
	latest   int64           // how late the latest call since the last reservation was about to be written, in µs; -1: none was
	lateness readiness       // of latest
}

func newLateCalls() lateCalls {
	return lateCalls{edges: map[int64]int64{}, latest: -1}
}

// edge is the moment at which Redis counts the slot's call, in µs on its clock.
func (l *lateCalls) edge(s job.Slot) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(s.At, s.Counted, l.edges[s.Number])
}

// learn learns how late a call was about to be written, in µs. That includes calls that are given back as too
// late: otherwise, when all are too late, the allowance would never grow.
func (l *lateCalls) learn(late, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = max(l.latest, min(max(late, 0), most))
}

// allowance is how much later than its slot, in µs, Redis counts a call that is reserved now: 0 if calls are
// hardly ever late, else how late they nearly always are. So few of them wait for an announcement. Of the calls
// since the last reservation, the latest is the measure: many have the same slot and are late together, and the
// last of them alone would say nothing of the others. Windows kept in parts allow for the largest lateness there
// can be.
func (l *lateCalls) allowance(pl *plan) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest >= 0 {
		l.lateness.add(float64(l.latest))
		l.latest = -1
	}
	switch {
	case !pl.exact:
		return pl.tooLate
	case l.lateness.usual() <= pl.epsilon:
		return 0
	}
	return min(l.lateness.most(), pl.tooLate)
}

// forget drops slots whose calls were written, or will not be.
func (l *lateCalls) forget(slots ...job.Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slots {
		delete(l.edges, s.Number)
	}
}

// readiness learns how long something takes: from handing out a slot until its job's handler is ready to write,
// and from the slot until its call is written. It keeps the mean and the mean deviation, as TCP does for round
// trips, in µs.
type readiness struct{ mean, deviation float64 }

func newReadiness() readiness { return readiness{mean: float64(firstLead.Microseconds())} }

func (r *readiness) add(took float64) {
	off := took - r.mean
	r.mean += off / 8
	r.deviation += (max(off, -off) - r.deviation) / 4
}

// usual is how long it takes mostly, in µs.
func (r *readiness) usual() int64 { return int64(r.mean + r.deviation) }

// most is how long it takes nearly always, in µs.
func (r *readiness) most() int64 { return int64(r.mean + 4*r.deviation) }

// soonest returns how far in the future a slot must be at least when it is reserved, in µs. It is less than the
// lead by the lateness that is tolerated: a job that finds its gateway idle should not wait for a margin that
// it seldom needs.
func (p *Pacer) soonest() int64 {
	pl := p.plan.Load()
	p.mu.Lock()
	need := p.pace.usual()
	p.mu.Unlock()
	return min(max(need-pl.epsilon, takeLead.Microseconds()/2), pl.horizon/2)
}

// Lead returns how long before its slot a dequeue must start: learned from Ready, at least 1 ms, at most the
// horizon.
func (p *Pacer) Lead() time.Duration {
	most := time.Duration(p.plan.Load().horizon) * time.Microsecond
	return min(max(time.Duration(p.preparation())*time.Microsecond, leastLead), most)
}

// preparation is how long a job nearly always takes from its pull until it is ready to be called, in µs.
func (p *Pacer) preparation() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.most()
}
