package bucket

import (
	"context"
	"errors"
	"slices"
	"time"

	"spillway/internal/job"
)

// Empty says that dequeues found no job: their slots, and every slot still held locally, are given back. Without one, or with
// the zero Slot, it gives back the local ones alone. It waits for Redis's answer or the end of ctx.
func (p *Pacer) Empty(ctx context.Context, unused ...job.Slot) {
	_ = p.Release(ctx, append(p.takeLocal(), unused...)...) // their permits stay taken, which is safe
}

// Release gives unused slots back, with their leases. They must not be used afterwards. On an error their permits may
// stay taken, which costs as many calls of the limits, and never breaks them.
func (p *Pacer) Release(ctx context.Context, slots ...job.Slot) error {
	return p.release(ctx, slices.DeleteFunc(slices.Clone(slots), job.Slot.Zero))
}

// takeLocal empties the FIFO.
func (p *Pacer) takeLocal() []job.Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	slots := p.fifo
	p.fifo = nil
	return slots
}

// dropLocal gives back what is held locally, in the background.
func (p *Pacer) dropLocal() { p.giveBack(p.takeLocal()) }

// giveBack releases slots in the background.
func (p *Pacer) giveBack(slots []job.Slot) {
	if len(slots) > 0 {
		p.unused(slots)
		p.background(func() { _ = p.releaseNow(slots) })
	}
}

// unused notes that slots are given back, and whether they have passed.
func (p *Pacer) unused(slots []job.Slot) {
	now, pl := p.bounds.notAfter(p.local(p.clock.Now())), p.plan.Load()
	p.mu.Lock()
	if slices.ContainsFunc(slots, func(s job.Slot) bool { return s.At == p.latest }) {
		p.latest = 0 // the next slot may be as early as this one
	}
	p.mu.Unlock()
	for _, s := range slots {
		passed := p.bounds.current(s.Era) && now > s.At+pl.tooLate
		if p.congestion.unused(s, passed, pl.inHand); passed {
			p.congestion.all.ready(now-s.At, pl.tooLate)
		}
	}
}

func (p *Pacer) release(ctx context.Context, slots []job.Slot) error {
	if len(slots) == 0 {
		return nil
	}
	p.unused(slots)
	var err error
	over := p.background(func() { err = p.releaseNow(slots) })
	select {
	case <-over:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseNow gives back slots, and the leases alone of those that are of another era: their permits have other moments by now, or none.
func (p *Pacer) releaseNow(slots []job.Slot) error {
	var current, bygone []job.Slot
	for _, s := range slots {
		if p.bounds.current(s.Era) {
			current = append(current, s)
		} else {
			bygone = append(bygone, s)
		}
	}
	return errors.Join(p.unbind(slots), p.releaseOf(p.plan.Load().shape, current), p.releaseOf("", bygone))
}

// releaseOf runs release.lua for slots of this shape. The latest slot goes first, so that the spacing is given back for a whole row.
func (p *Pacer) releaseOf(shape string, slots []job.Slot) error {
	if len(slots) == 0 {
		return nil
	}
	pl := p.plan.Load()
	keys := append([]string{p.keys.Pace(), p.keys.Hold(), p.keys.Flight()}, p.lists(len(pl.windows))...)
	args := []any{pl.spacing, shape, pl.tooLate - pl.epsilon, len(pl.windows)}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	for i := len(slots) - 1; i >= 0; i-- {
		args = append(args, slots[i].At, p.late.edge(slots[i]), slots[i].Cost, slots[i].Lease, slots[i].Books)
	}
	p.late.forget(slots...)
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	freed, err := releaseScript.Run(ctx, p.client, keys, args...).Int64()
	if err != nil {
		p.meters.lost.Add(int64(len(slots)))
		return err
	}
	p.meters.released.Add(int64(freed))
	if shape == "" {
		p.meters.lost.Add(int64(len(slots)))
	}
	return nil
}

// End says that the slot's call ended and gives its place among the calls under way back. Without a cap it costs no
// round trip, unless the call was the one sent ahead after a hold. It waits for Redis's answer or the end of ctx; if
// Redis can't be reached, the lease runs out by itself.
func (p *Pacer) End(ctx context.Context, s job.Slot) {
	p.mu.Lock()
	probe := s.Probe && p.known.probing
	p.mu.Unlock()
	if s.Lease == "" && !probe && s.Flow.Marks == 0 {
		return
	}
	over := p.background(func() {
		within, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		if p.endIn(within, s); s.Lease != "" || probe {
			_ = endScript.Run(within, p.client, []string{p.keys.Flight(), p.keys.Hold()}, s.Lease, s.At).Err()
		}
		p.Wake()
	})
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// passed reports whether the slot is further back than µs allows, inside a hold, or on another clock. The caller holds mu.
func (p *Pacer) passed(s job.Slot, now time.Time, allowed int64) bool {
	return !p.bounds.current(s.Era) || p.bounds.notAfter(p.local(now)) > s.At+allowed || s.At < p.known.held
}
