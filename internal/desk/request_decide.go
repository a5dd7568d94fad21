package desk

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/pan"
	"spillway/internal/roles"
	"spillway/internal/tracing"
)

// Approve carries out the request, if it still means what it meant when it was made and another person approves
// it. It returns the progress on a gateway's jobs; nil if it concerns no jobs. watch is called after each step.
// If it is interrupted, a dispatcher continues it (see GoOn).
func (r *Request) Approve(ctx context.Context, by By, traces *tracing.Tracer, watch func(*Bulk)) (*Bulk, error) {
	if err := by.NeedsName("an approval"); err != nil {
		return nil, err
	}
	var b *Bulk
	if r.Open() { // otherwise the stored request says who has decided it
		var err error
		if b, err = r.planned(ctx); err != nil {
			return nil, err
		}
		if r.order.Action != "" && (b == nil || b.digest() != r.order.Shown) {
			return nil, r.changed(b)
		}
	}
	owner := rand.Text()
	if err := r.at.Books.Decide(ctx, r.ID, ledger.Decision{Approver: by.decider(), Via: string(by.Via), Approve: true, Owner: owner}); err != nil {
		return nil, err
	}
	err := r.carry(ctx, b, by, owner, traces, watch)
	return b, errors.Join(err, r.again(context.WithoutCancel(ctx)))
}

// decider returns who approves or rejects a request, masked like the stored requester, because the two are
// compared.
func (b By) decider() ledger.Approver {
	return ledger.Approver{Who: pan.MaskString(b.Who), Person: pan.MaskString(b.Person), Why: pan.MaskString(b.Why)}
}

// Reject ends it: nothing is done.
func (r *Request) Reject(ctx context.Context, by By) error {
	act := r.noted(by.act(deadletter.Act{What: "reject " + r.What, Filter: r.Filter}))
	return errors.Join(r.at.Store.Steer(ctx, act, func(ctx context.Context) error {
		return r.at.Books.Decide(ctx, r.ID, ledger.Decision{Approver: by.decider(), Via: act.Via})
	}), r.again(ctx))
}

// again reads its current state.
func (r *Request) again(ctx context.Context) error {
	now, err := r.at.kept(ctx, r.ID)
	if err == nil {
		*r = now
	}
	return err
}

func (r *Request) changed(b *Bulk) error {
	is := "no job any more"
	if b != nil {
		is = b.Would.String()
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("what request %s is about has changed since it was shown, and nothing was done: it was %s, and is %s or other jobs", r.ID, r.Totals, is),
		Hint: "reject it, and have it asked for again"}
}

// planned counts what it would do now. It returns nil if there are no jobs left, and for a lift of brakes.
func (r *Request) planned(ctx context.Context) (*Bulk, error) {
	if r.order.Action == "" {
		return nil, nil
	}
	a, known := ActionOf(r.order.Action)
	f, err := r.order.filter()
	o, wrong := r.order.options()
	if err = cmp.Or(err, wrong); err != nil || !known {
		return nil, &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("what request %s is about can't be read", r.ID), Hint: "reject it, and have it asked for again", Err: err}
	}
	plan, err := r.at.counting().alone(f).Plan(ctx, a, o)
	switch {
	case job.CodeOf(err) == job.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case plan.Cut:
		return nil, tooMany()
	case len(plan.Parts) == 0:
		return nil, nil
	}
	b := plan.Parts[0]
	b.granted = r
	return b, nil
}

// counting returns the gateway with an approval rule, so that the jobs are counted as they were for the
// requester: the configuration may have changed since.
func (g *Gateway) counting() *Gateway {
	some := *g
	some.Approval.Discard = true
	return &some
}

// carry carries out the request. The owner renews its lease from time to time, and stops if another one has
// taken the request over.
func (r *Request) carry(ctx context.Context, b *Bulk, by By, owner string, traces *tracing.Tracer, watch func(*Bulk)) error {
	if r.order.Action == "" {
		return r.lift(ctx, by, owner)
	}
	if b == nil { // everything was done
		return r.at.Books.Carried(ctx, r.ID, owner)
	}
	ctx, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for clock.Wait(ctx, ledger.CarryAgain) == nil {
			if mine, err := r.at.Books.Carry(ctx, r.ID, owner); err == nil && !mine {
				stop()
			}
		}
	}()
	err := b.Run(ctx, by, traces, func() { watch(b) })
	stop()
	<-kept
	if code := job.CodeOf(err); err != nil && !Halted(err) && code != job.CodeUsage && code != job.CodeNotFound {
		return err // interrupted: a dispatcher continues
	}
	return errors.Join(err, Bounded(ctx, func(ctx context.Context) error { return r.at.Books.Carried(ctx, r.ID, owner) }))
}

// lift lifts the brakes until the requested time after the approval. The same step completes the request.
func (r *Request) lift(ctx context.Context, by By, owner string) error {
	d := r.order.For
	if !r.of.Decided.IsZero() { // someone else approved it and did not get here
		now, err := r.at.Books.Look(ctx)
		if err != nil {
			return err
		}
		d = max(0, d-now.Now.Sub(r.of.Decided))
	}
	if d == 0 && r.order.For > 0 { // its time has passed
		return r.at.Books.Carried(ctx, r.ID, owner)
	}
	return r.at.lift(ctx, by, ledger.Lift{For: d, Lost: r.order.Lost, Request: r.ID}, r)
}

// goOnTime bounds one check for approved requests, without the acts themselves.
const goOnTime = 10 * time.Second

// GoOn carries out requests at the desk's gateways that were approved but interrupted. It returns those that it
// completed, and the errors of the others.
func (d *Desk) GoOn(ctx context.Context, traces *tracing.Tracer) (done []Request, errs error) {
	for _, g := range d.Gateways {
		if !g.Approval.OfActs() {
			continue
		}
		looking, end := context.WithTimeout(ctx, goOnTime)
		all, err := g.Books.Requests(looking)
		end()
		errs = errors.Join(errs, err)
		for _, of := range all {
			r, err := g.request(of)
			if err != nil || of.State != ledger.RequestApproved {
				continue
			}
			did, err := r.goOn(ctx, traces)
			if errs = errors.Join(errs, err); did {
				done = append(done, r)
			}
		}
	}
	return done, errs
}

// goOn takes it over, unless its owner is still active.
func (r *Request) goOn(ctx context.Context, traces *tracing.Tracer) (mine bool, err error) {
	owner := rand.Text()
	if mine, err = r.at.Books.Carry(ctx, r.ID, owner); err != nil || !mine {
		return false, err
	}
	b, err := r.planned(ctx)
	if err != nil {
		return true, err
	}
	by := By{Who: r.of.By, Why: r.of.ByWhy, Via: roles.Proof(r.of.ByVia)}
	return true, r.carry(ctx, b, by, owner, traces, func(*Bulk) {})
}
