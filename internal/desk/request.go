package desk

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/pan"
	"spillway/internal/roles"
)

// Request is an act that needs a second person's approval: part of "approval list -o json".
type Request struct {
	ID      string `json:"id"`
	Gateway string `json:"gateway"`
	What    string `json:"what"`   // as in the audit trail: replay, discard, brake lift 2h
	Filter  string `json:"filter"` // the flags that selected the jobs and the mode
	// Totals is the jobs that it would take; none for a lift of brakes.
	job.Totals
	By     string    `json:"asked_by"`
	Person string    `json:"person,omitempty"` // the owner of By's token, if configured
	Via    string    `json:"via"`              // how the user was identified, as in the audit trail
	Why    string    `json:"why,omitempty"`
	Asked  time.Time `json:"asked_at"`
	Until  time.Time `json:"until"` // until when it may be approved
	State  string    `json:"state"` // asked; approved, while it is carried out; rejected or done
	// Decided is when DecidedBy approved or rejected it; nil if undecided.
	Decided    *time.Time `json:"decided_at"`
	DecidedBy  string     `json:"decided_by,omitempty"`
	DecidedWhy string     `json:"decided_why,omitempty"`

	at    *Gateway
	of    ledger.Request
	order order
}

// order is the act, as it is stored.
type order struct {
	What   string `json:"what"`
	Filter string `json:"filter"`
	job.Totals
	// Action is the name of an Action; empty: a lift of brakes.
	Action       string     `json:"action,omitempty"`
	Which        url.Values `json:"which,omitempty"`
	Rate         string     `json:"rate,omitempty"`
	Share        string     `json:"share,omitempty"`
	Canary       int        `json:"canary,omitempty"`
	ExpiredKeys  bool       `json:"expired_keys,omitempty"`
	MayBeCharged bool       `json:"may_be_charged,omitempty"`
	Reference    string     `json:"reference,omitempty"`
	Priority     string     `json:"priority,omitempty"`
	// Shown is a digest of the jobs as shown to the requester.
	Shown string        `json:"shown,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	Lost  bool          `json:"lost,omitempty"`
}

// Awaits is the error of an act that was not done: a request was stored, and another person has to approve it.
// It has the code invalid.
type Awaits struct{ Request Request }

// Error implements error.
func (a *Awaits) Error() string { return a.Unwrap().Error() }

// Unwrap returns an error with a code and a hint.
func (a *Awaits) Unwrap() error {
	r := a.Request
	return &job.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("%s awaits the approval of a second person: request %s, until %s", r.Text(), r.ID, job.Moment(r.Until)),
		Hint: fmt.Sprintf("somebody else with the role approver runs \"dispatcher approval approve %s --why … --server …\", or looks at the console under Approvals", r.ID)}
}

// Text describes the request for people: "replay of 60 jobs (EUR 120.00) at stripe".
func (r Request) Text() string {
	if r.Jobs == 0 {
		return r.What + " at " + r.Gateway
	}
	return fmt.Sprintf("%s of %s at %s", r.What, r.Totals, r.Gateway)
}

// Asker names the requester, for people and for the audit trail.
func (r Request) Asker() string { return cmp.Or(r.By, "nobody known") + " (" + r.Via + ")" }

// Open reports whether it may be approved or rejected.
func (r Request) Open() bool { return r.State == string(ledger.RequestAsked) }

// noted returns an audit entry for an approved act, or for an act on the request. If r is nil, no approval was
// needed.
func (r *Request) noted(a deadletter.Act) deadletter.Act {
	if r != nil {
		a.Asked, a.Request = r.Asker(), r.ID
	}
	return a
}

func (g *Gateway) request(of ledger.Request) (Request, error) {
	r := Request{ID: of.ID, Gateway: g.Name, By: of.Who, Person: of.Person, Via: of.Via, Why: of.Why, Asked: of.Asked, Until: of.Until, State: string(of.State), Decided: when(of.Decided),
		DecidedBy: of.By, DecidedWhy: of.ByWhy, at: g, of: of}
	if err := json.Unmarshal(of.What, &r.order); err != nil {
		return r, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("what request %s at %s is about can't be read: another program has written to Redis", of.ID, g.Name), Hint: "reject it, and have it asked for again"}
	}
	r.What, r.Filter, r.Totals = r.order.What, r.order.Filter, r.order.Totals
	return r, nil
}

// needsSecond reports whether the action on so many jobs needs a second person's approval. The commands, the
// console and the API all rely on it.
func (g *Gateway) needsSecond(a Action, jobs int64) bool {
	switch {
	case jobs == 0:
		return false
	case a.Final: // discard, and resolve --done, which is as final
		return g.Approval.Discard
	case a.readmit:
		return g.Approval.ReplayOver != nil && jobs > *g.Approval.ReplayOver
	}
	return false
}

// NeedsSecond reports whether the action upon the jobs that were counted needs a second person's approval.
func (b *Bulk) NeedsSecond() bool {
	return b.granted == nil && !b.vouched && b.seen != nil && b.needsSecond(b.Action, b.Would.Jobs)
}

// ask stores a request if the action needs a second person's approval; asked reports whether it does. The error
// is then an Awaits, or why the request could not be stored.
func (b *Bulk) ask(ctx context.Context, by By) (asked bool, err error) {
	if b.granted != nil || b.vouched {
		return false, nil
	}
	counted := b
	if b.met.Seen == nil { // the plan was shown by another process: nothing was counted here
		f, err := b.Store.UpToNow(ctx, b.filter)
		if err != nil {
			return false, err
		}
		b.met.Until = f.Until // jobs parked from now on are excluded as well
		plan, err := b.alone(f).Plan(ctx, b.Action, b.Options)
		if job.CodeOf(err) == job.CodeNotFound || err == nil && len(plan.Parts) == 0 {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if plan.Cut {
			return false, tooMany()
		}
		counted = plan.Parts[0]
	}
	if !b.needsSecond(b.Action, counted.Would.Jobs) {
		return false, nil
	}
	return true, b.Gateway.ask(ctx, by, counted.order())
}

// tooMany returns the error for a plan that could not count all jobs in time.
func tooMany() error {
	return usage("narrow the filter, or use dispatcher dlq, which has all the time it needs", "there are more jobs than can be counted in time, and a second person has to approve so many")
}

// alone returns the selection of the gateway's jobs by a filter.
func (g *Gateway) alone(f deadletter.Filter) *Selection {
	return &Selection{Desk: &Desk{Gateways: []*Gateway{g}}, Filter: f}
}

// order returns the action as it was counted.
func (b *Bulk) order() order {
	f := b.filter
	f.Until = b.met.Until
	if f.Limit > 0 {
		f.Limit = int(b.Meant.Jobs)
	}
	return order{What: b.Action.trail, Filter: strings.TrimSpace(FilterText(f) + b.Options.text()), Totals: b.Would, Action: b.Action.Name, Which: FilterValues(f), Rate: b.Options.rate, Share: b.Options.share,
		Canary: b.Canary, ExpiredKeys: b.ExpiredKeys, MayBeCharged: b.MayBeCharged, Reference: b.Reference, Priority: b.Options.Priority, Shown: b.digest()}
}

// digest returns a digest of the jobs found, and of what would be done to each.
func (b *Bulk) digest() string { return hex.EncodeToString(b.seen.Sum(nil)[:16]) }

// ask stores a request. The error is an Awaits, or why it could not be stored.
func (g *Gateway) ask(ctx context.Context, by By, o order) error {
	what, err := json.Marshal(o)
	if err != nil {
		return err
	}
	id := strings.ToLower(rand.Text()[:10])
	act := by.act(deadletter.Act{What: "ask for " + o.What, Filter: o.Filter, Request: id}).Clean()
	asked := ledger.Request{ID: id, What: what, Who: act.Who, Person: pan.MaskString(by.Person), Via: act.Via, Why: act.Why}
	if err := g.Store.Steer(ctx, act, func(ctx context.Context) error { return g.Books.Ask(ctx, asked) }); err != nil {
		return err
	}
	r, err := g.kept(ctx, id)
	if err != nil {
		return err
	}
	return &Awaits{r}
}

// kept reads a request again.
func (g *Gateway) kept(ctx context.Context, id string) (Request, error) {
	of, ok, err := g.Books.Request(ctx, id)
	if err == nil && !ok {
		err = ledger.NoRequest(id)
	}
	if err != nil {
		return Request{}, err
	}
	return g.request(of)
}

// Requests returns the requests that await approval, or are approved and being carried out, by gateway, oldest
// first within a gateway.
func (d *Desk) Requests(ctx context.Context) ([]Request, error) {
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) ([]ledger.Request, error) { return g.Books.Requests(ctx) })
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	all := []Request{}
	for i, of := range found {
		for _, one := range of {
			r, err := d.Gateways[i].request(one)
			if err != nil {
				r.What = "damaged"
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// Request returns the request with an id. An error with code not_found says that no gateway of the desk has it.
func (d *Desk) Request(ctx context.Context, id string) (Request, error) {
	type one struct {
		of ledger.Request
		ok bool
	}
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (o one, err error) {
		o.of, o.ok, err = g.Books.Request(ctx, id)
		return o, err
	})
	if err := cmp.Or(errs...); err != nil {
		return Request{}, err
	}
	for i, o := range found {
		if o.ok {
			return d.Gateways[i].request(o.of)
		}
	}
	return Request{}, ledger.NoRequest(id)
}

// AwaitingBatch is a batch that awaits approval at one gateway.
type AwaitingBatch struct {
	Batch   string    `json:"batch"`
	Gateway string    `json:"gateway"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
	job.Totals
}

// AwaitingBatches returns the batches that await approval, by gateway, longest waiting first within a gateway.
func (d *Desk) AwaitingBatches(ctx context.Context) ([]AwaitingBatch, error) {
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (all []AwaitingBatch, err error) {
		names, err := g.Books.Awaiting(ctx)
		for _, name := range names {
			b, ok, err := g.Books.Batch(ctx, name)
			if err != nil {
				return all, err
			}
			if ok && !b.Awaits.Since.IsZero() {
				all = append(all, AwaitingBatch{Batch: name, Gateway: g.Name, Since: b.Awaits.Since, Why: b.Awaits.Why, Totals: b.Uncalled()})
			}
		}
		return all, err
	})
	all := []AwaitingBatch{}
	for _, of := range found {
		all = append(all, of...)
	}
	return all, cmp.Or(errs...)
}

// filter parses the stored filter.
func (o order) filter() (deadletter.Filter, error) {
	f, err := ParseFilter(o.Which, time.Time{}, func(field string) string { return field })
	if text := o.Which.Get("limit"); text != "" && err == nil {
		f.Limit, err = strconv.Atoi(text)
	}
	return f, err
}

// options parses the stored options.
func (o order) options() (opt Options, err error) {
	opt = Options{ExpiredKeys: o.ExpiredKeys, MayBeCharged: o.MayBeCharged, Reference: o.Reference, Priority: o.Priority}
	if opt.Canary = o.Canary; o.Rate != "" {
		err = opt.SetRate(o.Rate, "rate")
	}
	if o.Share != "" && err == nil {
		err = opt.SetShare(o.Share, "share")
	}
	return opt, err
}

// Known reports whether the user is identified: any other name could be typed.
func (b By) Known() bool { return (b.Via == roles.ByToken || b.Via == roles.ByLogin) && b.Who != "" }
