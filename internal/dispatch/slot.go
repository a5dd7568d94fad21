package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/worker"
)

// slot is a bucket.Slot as the worker sees it.
type slot struct {
	pacer *bucket.Pacer
	s     bucket.Slot
}

func (s slot) At() int64                  { return s.s.At }
func (s slot) Cost() int64                { return s.s.Cost }
func (s slot) Due() time.Time             { return s.pacer.Due(s.s) }
func (s slot) TooLate(now time.Time) bool { return s.pacer.TooLate(s.s, now) }
func (s slot) Ready(at time.Time)         { s.pacer.Ready(s.s, at) }
func (s slot) Written(at time.Time)       { s.pacer.Written(s.s, at) }
func (s slot) End(ctx context.Context)    { s.pacer.End(ctx, s.s) }

// Release gives the slot back. A slot that can't be given back stays charged: that wastes it and breaks no limit.
func (s slot) Release(ctx context.Context) { _ = s.pacer.Release(ctx, s.s) }

// pacer is a bucket.Pacer as the worker and the queue's gate see it.
type pacer struct {
	*bucket.Pacer
	circuit job.Circuit
	machine *ownMachine
}

func (p pacer) Take(ctx context.Context, cost int64) (worker.Slot, error) {
	if p.machine.unfit() != nil {
		return nil, errUnfit
	}
	s, err := p.Pacer.Take(ctx, cost)
	switch {
	case errors.Is(err, bucket.ErrCost):
		return nil, worker.ErrCost
	case err != nil:
		return nil, err
	}
	return slot{p.Pacer, s}, nil
}

func (p pacer) Succeeded(ctx context.Context, s worker.Slot, first bool) bool {
	own, ok := s.(slot)
	return ok && p.Pacer.Succeeded(ctx, own.s, first)
}

func (p pacer) Failed(ctx context.Context, f job.Failure) (job.Fallout, error) {
	return p.Pacer.Failed(ctx, p.circuit, f)
}

// gate is the pacer as the queue sees it. While the data is not what was seen of it, or this machine can't call, nothing is pulled.
type gate struct {
	p       *bucket.Pacer
	data    *incarnation.Watch
	machine *ownMachine
}

func (g gate) free() bool { return g.data.Free() && g.machine.unfit() == nil }

func (g gate) Next(ctx context.Context) (worker.Slot, error) {
	for {
		if err := cmp.Or(g.data.Wait(ctx), g.machine.wait(ctx)); err != nil {
			return nil, err
		}
		s, err := g.p.Next(ctx)
		if err != nil {
			return nil, err
		}
		if g.free() {
			return slot{g.p, s}, nil
		}
		g.p.Empty(ctx, s)
	}
}

func (g gate) More(most int) []worker.Slot {
	if !g.free() {
		return nil
	}
	more := g.p.More(most)
	slots := make([]worker.Slot, len(more))
	for i, s := range more {
		slots[i] = slot{g.p, s}
	}
	return slots
}

func (g gate) Empty(ctx context.Context, slots ...worker.Slot) { g.p.Empty(ctx, own(slots)...) }

func (g gate) Passed(s worker.Slot) bool {
	one, ok := s.(slot)
	return ok && g.p.Passed(one.s, time.Now()) || g.machine.unfit() != nil
}

// Ahead reports that a slot is for the call that is sent ahead after a hold.
func (g gate) Ahead(s worker.Slot) bool {
	one, ok := s.(slot)
	return ok && one.s.Ahead()
}

// Release gives slots back. What can't be given back stays charged: that wastes it and breaks no limit.
func (g gate) Release(ctx context.Context, slots ...worker.Slot) { _ = g.p.Release(ctx, own(slots)...) }

// own returns the pacer's slots among these.
func own(slots []worker.Slot) (all []bucket.Slot) {
	for _, s := range slots {
		if one, ok := s.(slot); ok {
			all = append(all, one.s)
		}
	}
	return all
}

// sender is the gateway client as the worker sees it.
type sender struct {
	c       *gateway.Client
	machine *ownMachine
}

func (s sender) Send(ctx context.Context, c worker.Call) job.Result {
	res := s.c.Send(ctx, gateway.Call(c))
	s.machine.called(res.Err)
	return res
}
