package bucket

import (
	"time"

	"spillway/internal/job"
)

const (
	firstLead = 3 * time.Millisecond
	leastLead = time.Millisecond
)

// Due returns the local moment before which the slot's call must not be written, by the latest that Redis's clock may
// be behind. Ask again after a long wait: the bounds get better, and Redis's clock may be seen to go too fast. If Redis's clock has been set since the slot was given out, there is
// nothing to wait for: it is too late for it already.
func (p *Pacer) Due(s job.Slot) time.Time {
	if !p.bounds.current(s.Era) {
		return p.clock.Now()
	}
	now := p.local(p.clock.Now())
	unseen := max(p.bounds.seen(0, now)-s.Seen, 0) // the clock was too fast, and nobody knew, when the slot was given out
	at := p.bounds.notBefore(s.At+unseen, now)
	return p.began.Add(time.Duration(at-p.slept.Load()) * time.Microsecond)
}

// TooLate reports whether the slot has passed by a quarter of the shortest window, at most a second (or by 250 ms, if that is
// less and a long window is kept in parts), lies inside a hold known here, or is on Redis's clock as it was before it was set: release
// it and take another. A call that comes more than 2 ms (less for windows shorter than 400 ms) after the moment at which Redis counts it takes a round trip:
// Redis is told that it comes late before it is written, or others could be given its permit too soon. If Redis does not answer, it is too late. Ask just before the write.
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
		now = p.clock.Now() // the answer may have taken until the slot had passed
	}
	return true
}

// Behind returns how far a slot lies back at most, by Redis's clock and with the time for which this machine was suspended; negative for one that is to come.
// ok is false if Redis's clock has been set since it was given out.
func (p *Pacer) Behind(s job.Slot, now time.Time) (d time.Duration, ok bool) {
	return time.Duration(p.bounds.notAfter(p.local(now))-s.At) * time.Microsecond, p.bounds.current(s.Era)
}

// Passed reports, as TooLate does, whether the slot is of no use any more, for one whose call is not about to be written yet.
func (p *Pacer) Passed(s job.Slot, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed(s, now, p.plan.Load().tooLate)
}

// Written reports the moment just after the slot's call was written; every call must be reported. Where Redis counts it at another moment it is told in the
// background: a call that was later, as by a process that stood still since it asked TooLate, keeps its permit for longer; one that was earlier gives it back sooner.
func (p *Pacer) Written(s job.Slot, at time.Time) {
	pl := p.plan.Load()
	p.congestion.inTime(s)
	pl.audit.add(p.local(at), s.Cost, func(window string, most int64) { p.meters.fullest.WithLabelValues(window).Set(float64(most)) })
	if !p.bounds.current(s.Era) {
		p.late.forget(s)
		return // how late it was is not known, and its permit has another moment by now
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

// readiness learns how long something takes: the way from handing out a slot until its job's handler is ready to write, and from the slot until its call is
// written. It keeps the mean and the mean deviation, as TCP does for round trips. µs.
type readiness struct{ mean, deviation float64 }

func newReadiness() readiness { return readiness{mean: float64(firstLead.Microseconds())} }

func (r *readiness) add(took float64) {
	off := took - r.mean
	r.mean += off / 8
	r.deviation += (max(off, -off) - r.deviation) / 4
}

// usual is how long it takes, most of the time.
func (r *readiness) usual() int64 { return int64(r.mean + r.deviation) }

// most is how long it takes, nearly always.
func (r *readiness) most() int64 { return int64(r.mean + 4*r.deviation) }

// Ready reports the moment at which the handler of the slot's job was ready to write, for Lead to learn from.
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

// soonest returns how far off a slot must be at least when it is reserved, in µs. It is less than the lead by what a call
// may be late without anybody minding: a job that finds its gateway idle should not wait for a margin that it seldom needs.
func (p *Pacer) soonest() int64 {
	pl := p.plan.Load()
	p.mu.Lock()
	need := p.pace.usual()
	p.mu.Unlock()
	return min(max(need-pl.epsilon, takeLead.Microseconds()/2), pl.horizon/2)
}

// Lead returns how long before its slot a dequeue must start: learned from Ready, at least 1 ms, at most the horizon.
func (p *Pacer) Lead() time.Duration {
	most := time.Duration(p.plan.Load().horizon) * time.Microsecond
	return min(max(time.Duration(p.preparation())*time.Microsecond, leastLead), most)
}

// preparation is how long a job takes from its pull until it is ready to be called, nearly always, in µs.
func (p *Pacer) preparation() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.most()
}
