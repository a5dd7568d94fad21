package dispatch

import (
	"cmp"
	"context"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
)

// pacer is a bucket.Pacer as the worker and the queue's gate see it.
type pacer struct {
	*bucket.Pacer
	circuit job.Circuit
	machine *ownMachine
}

func (p pacer) Take(ctx context.Context, cost int64) (job.Slot, error) {
	if p.machine.unfit() != nil {
		return job.Slot{}, errUnfit
	}
	return p.Pacer.Take(ctx, cost)
}

func (p pacer) Retake(ctx context.Context, cost int64) (job.Slot, error) {
	if p.machine.unfit() != nil {
		return job.Slot{}, errUnfit
	}
	return p.Pacer.Retake(ctx, cost)
}

func (p pacer) Failed(ctx context.Context, f job.Failure) (job.Fallout, error) {
	return p.Pacer.Failed(ctx, p.circuit, f)
}

// gate is the pacer as the queue sees it. While the data is not what was seen of it, or this machine can't call, nothing is pulled.
type gate struct {
	*bucket.Pacer
	data    *incarnation.Watch
	machine *ownMachine
}

func (g gate) free() bool { return g.data.Free() && g.machine.unfit() == nil }

func (g gate) Next(ctx context.Context) (job.Slot, error) {
	for {
		if err := cmp.Or(g.data.Wait(ctx), g.machine.wait(ctx)); err != nil {
			return job.Slot{}, err
		}
		s, err := g.Pacer.Next(ctx)
		if err != nil || g.free() {
			return s, err
		}
		g.Empty(ctx, s)
	}
}

func (g gate) More(most int) []job.Slot {
	if !g.free() {
		return nil
	}
	return g.Pacer.More(most)
}

func (g gate) Passed(s job.Slot) bool {
	return g.Pacer.Passed(s, time.Now()) || g.machine.unfit() != nil
}

// sender is the gateway client as the worker sees it.
type sender struct {
	c       *gateway.Client
	machine *ownMachine
}

func (s sender) Send(ctx context.Context, r job.Request) job.Result {
	res := s.c.Send(ctx, r)
	s.machine.called(res.Err)
	return res
}
