package dispatch

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"spillway/internal/access"
	"spillway/internal/bucket"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
)

// pacer adapts a bucket.Pacer to the worker and the queue's gate.
type pacer struct {
	*bucket.Pacer
	circuit job.Circuit
	machine *ownMachine
	tokens  *access.Keeper
}

// barred returns why no slot can be used now, or nil.
func (p pacer) barred() error {
	switch {
	case p.machine.unfit() != nil:
		return errUnfit
	case !p.tokens.Ready():
		return errNoToken
	}
	return nil
}

func (p pacer) Take(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.barred(); err != nil {
		return job.Slot{}, err
	}
	return p.Pacer.Take(ctx, cost, id)
}

func (p pacer) Retake(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.barred(); err != nil {
		return job.Slot{}, err
	}
	return p.Pacer.Retake(ctx, cost, id)
}

func (p pacer) Failed(ctx context.Context, f job.Failure) (job.Fallout, error) {
	return p.Pacer.Failed(ctx, p.circuit, f)
}

// gate adapts the pacer to the queue. Nothing is pulled while the data is doubtful, this machine can't call,
// there is no access token, or a reader of outcomes is too far behind.
type gate struct {
	*bucket.Pacer
	data    *incarnation.Watch
	machine *ownMachine
	tokens  func() *access.Keeper
	told    *told
}

func (g gate) free() bool {
	return g.data.Free() && g.machine.unfit() == nil && g.tokens().Ready() && !g.told.held()
}

func (g gate) Next(ctx context.Context) (job.Slot, error) {
	for {
		if err := cmp.Or(g.data.Wait(ctx), g.machine.wait(ctx), g.told.wait(ctx)); err != nil {
			return job.Slot{}, err
		}
		s, err := g.Pacer.Next(ctx)
		if err != nil || g.free() {
			return s, err
		}
		g.Empty(ctx, s)
		if g.told.held() {
			continue
		}
		if err := g.tokens().Wait(ctx); err != nil { // only now that there is a job to call: an idle gateway needs no token
			return job.Slot{}, err
		}
	}
}

func (g gate) More(most int) []job.Slot {
	if !g.free() {
		return nil
	}
	return g.Pacer.More(most)
}

func (g gate) Passed(s job.Slot) bool {
	return g.Pacer.Passed(s, time.Now()) || g.machine.unfit() != nil || !g.tokens().Ready() || g.told.held()
}

// sender adapts the gateway client to the worker.
type sender struct {
	c       *gateway.Client
	machine *ownMachine
	tokens  *access.Keeper
	made    *callsMade
}

func (s sender) Send(ctx context.Context, r job.Request) job.Result {
	if s.tokens != nil {
		return s.sendWith(ctx, s.tokens.Current(), r)
	}
	res := s.c.Send(ctx, r)
	s.machine.called(res.Err)
	s.made.add(res)
	return res
}

// sendWith makes a call with an access token, and drops a token that the gateway rejects.
func (s sender) sendWith(ctx context.Context, t *access.Token, r job.Request) job.Result {
	if t == nil {
		return job.Result{Stage: job.NotSent, Err: errNoToken}
	}
	r.Bearer = t.Text
	res := s.c.Send(ctx, r)
	s.machine.called(res.Err)
	s.made.add(res)
	switch {
	case res.Stage != job.Answered:
	case res.Status == http.StatusUnauthorized:
		res.Renewed = s.tokens.Refused(ctx, t)
	default:
		t.Works()
	}
	return res
}
