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

// Request is an act that a second person has to approve: part of "approval list -o json".
type Request struct {
	ID      string `json:"id"`
	Gateway string `json:"gateway"`
	What    string `json:"what"`   // as the trail has it: replay, discard, brake lift 2h
	Filter  string `json:"filter"` // the flags that chose the jobs, and that said how
	// Totals is the jobs that it would take. Of brakes that are lifted there are none.
	job.Totals
	By     string    `json:"asked_by"`
	Person string    `json:"person,omitempty"` // whose token By is, where the configuration says so
	Via    string    `json:"via"`              // how it is known who asked, as in the trail
	Why    string    `json:"why,omitempty"`
	Asked  time.Time `json:"asked_at"`
	Until  time.Time `json:"until"` // it may be approved
	State  string    `json:"state"` // asked; approved, while it is done; rejected or done
	// Decided is when DecidedBy approved or rejected it; nil if nobody did.
	Decided    *time.Time `json:"decided_at"`
	DecidedBy  string     `json:"decided_by,omitempty"`
	DecidedWhy string     `json:"decided_why,omitempty"`

	at    *Gateway
	of    ledger.Request
	order order
}

// order is what is to be done, as it is kept.
type order struct {
	What   string `json:"what"`
	Filter string `json:"filter"`
	job.Totals
	// Action is the name of an Action; empty: brakes are lifted.
	Action       string     `json:"action,omitempty"`
	Which        url.Values `json:"which,omitempty"`
	Rate         string     `json:"rate,omitempty"`
	Share        string     `json:"share,omitempty"`
	Canary       int        `json:"canary,omitempty"`
	ExpiredKeys  bool       `json:"expired_keys,omitempty"`
	MayBeCharged bool       `json:"may_be_charged,omitempty"`
	Reference    string     `json:"reference,omitempty"`
	Priority     string     `json:"priority,omitempty"`
	// Shown is a digest of the jobs as they were shown to who asked.
	Shown string        `json:"shown,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	Lost  bool          `json:"lost,omitempty"`
}

// Awaits is that an act was not done: it is asked for, and somebody else has to approve it. It has the code invalid.
type Awaits struct{ Request Request }

// Error implements error.
func (a *Awaits) Error() string { return a.Unwrap().Error() }

// Unwrap returns it as an error with a code and a hint.
func (a *Awaits) Unwrap() error {
	r := a.Request
	return &job.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("%s awaits the approval of a second person: request %s, until %s", r.Text(), r.ID, job.Moment(r.Until)),
		Hint: fmt.Sprintf("somebody else with the role approver runs \"dispatcher approval approve %s --why … --server …\", or looks at the console under Approvals", r.ID)}
}

// Text is what is asked for, for people: "replay of 60 jobs (EUR 120.00) at stripe".
func (r Request) Text() string {
	if r.Jobs == 0 {
		return r.What + " at " + r.Gateway
	}
	return fmt.Sprintf("%s of %s at %s", r.What, r.Totals, r.Gateway)
}

// Asker is who asked for it, for people and for the trail.
func (r Request) Asker() string { return cmp.Or(r.By, "nobody known") + " (" + r.Via + ")" }

// Open says that it may be approved or rejected.
func (r Request) Open() bool { return r.State == string(ledger.RequestAsked) }

// noted is an act that was approved, or an act upon the request, as the trail has it. Nothing had to be approved where r is nil.
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
		return r, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("what request %s at %s is about can't be read: somebody has written into Redis", of.ID, g.Name), Hint: "reject it, and have it asked for again"}
	}
	r.What, r.Filter, r.Totals = r.order.What, r.order.Filter, r.order.Totals
	return r, nil
}

// needsSecond says that a second person has to approve the action for so many jobs. What is decided here is decided for the commands, the console and the API.
func (g *Gateway) needsSecond(a Action, jobs int64) bool {
	switch {
	case jobs == 0:
		return false
	case a.Final: // discard, and resolve --done, which makes an end as well
		return g.Approval.Discard
	case a.readmit:
		return g.Approval.ReplayOver != nil && jobs > *g.Approval.ReplayOver
	}
	return false
}

// ask asks for the action where a second person has to approve it; asked says that it has. The error is an Awaits then, or says why it could not be asked for.
func (b *Bulk) ask(ctx context.Context, by By) (asked bool, err error) {
	if b.granted != nil || b.vouched || b.seen == nil {
		return false, nil
	}
	counted := b
	if b.met.Seen == nil { // it was shown by somebody else: nobody has counted here
		f, err := b.Store.UpToNow(ctx, b.filter)
		if err != nil {
			return false, err
		}
		b.met.Until = f.Until // what is parked from now on is not done either
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

// tooMany is the error that there was no time to count all jobs.
func tooMany() error {
	return usage("narrow the filter, or use dispatcher dlq, which has all the time it needs", "there are more jobs than can be counted in time, and a second person has to approve so many")
}

// alone is the jobs of the gateway that a filter means.
func (g *Gateway) alone(f deadletter.Filter) *Selection {
	return &Selection{Desk: &Desk{Gateways: []*Gateway{g}}, Filter: f}
}

// order is the action as it was counted.
func (b *Bulk) order() order {
	f := b.filter
	f.Until = b.met.Until
	if f.Limit > 0 {
		f.Limit = int(b.Meant.Jobs)
	}
	return order{What: b.Action.trail, Filter: strings.TrimSpace(FilterText(f) + b.Options.text()), Totals: b.Would, Action: b.Action.Name, Which: FilterValues(f), Rate: b.Options.rate, Share: b.Options.share,
		Canary: b.Canary, ExpiredKeys: b.ExpiredKeys, MayBeCharged: b.MayBeCharged, Reference: b.Reference, Priority: b.Options.Priority, Shown: b.digest()}
}

// digest stands for the jobs that were met, and for what would be done to each.
func (b *Bulk) digest() string { return hex.EncodeToString(b.seen.Sum(nil)[:16]) }

// ask writes down what somebody asks for. The error is an Awaits, or says why it could not be.
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

// Requests returns what awaits an approval, or was approved and is being done, by gateway, and of one that which was asked for first before the others.
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

// Request returns the request of an id. An error with the code not_found says that no gateway of the desk has one.
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

// AwaitingBatch is a batch that awaits an approval at one gateway.
type AwaitingBatch struct {
	Batch   string    `json:"batch"`
	Gateway string    `json:"gateway"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
	job.Totals
}

// AwaitingBatches returns the batches that await an approval, by gateway, and of one those that wait longest first.
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

// filter reads which jobs are meant.
func (o order) filter() (deadletter.Filter, error) {
	f, err := ParseFilter(o.Which, time.Time{}, func(field string) string { return field })
	if text := o.Which.Get("limit"); text != "" && err == nil {
		f.Limit, err = strconv.Atoi(text)
	}
	return f, err
}

// options reads how it is to be done.
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

// Known says that it is known who somebody is: anything else could be typed.
func (b By) Known() bool { return (b.Via == roles.ByToken || b.Via == roles.ByLogin) && b.Who != "" }
