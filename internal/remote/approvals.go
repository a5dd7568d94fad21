package remote

import (
	"context"
	"errors"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// AllApprovals is what awaits the approval of a second person: "approval list -o json".
type AllApprovals struct {
	Batches []desk.AwaitingBatch `json:"batches"`
	// Requests also has those that were approved and are being done.
	Requests []desk.Request `json:"requests"`
}

// Approvals are what awaits an approval.
var Approvals = &Op[At, None, AllApprovals]{About{Name: "listApprovals", Need: roles.View, Method: http.MethodGet, Path: "/v1/approvals", Commands: []string{"approval list", "approval approve", "approval reject"}},
	func(ctx context.Context, h *Here, q At, _ Out[None]) (v AllApprovals, err error) {
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return v, err
		}
		if v.Batches, err = d.AwaitingBatches(ctx); err != nil {
			return v, err
		}
		v.Requests, err = d.Requests(ctx)
		return v, err
	}}

// unknownRequest is the code of the problem that there is no such request.
const unknownRequest = "unknown_request"

// DecideOf names a request that is approved or rejected.
type DecideOf struct {
	ID string `json:"-" path:"id"`
	At
	Actor
}

// Decided is what a request came to that was approved or rejected: "approval approve -o json".
type Decided struct {
	Request desk.Request `json:"request"`
	// Part is what was done to jobs; nil where it is about none.
	Part *ClearedPart `json:"part,omitempty"`
	// Problem is why it was not done to its end; nil if it was, or if Part says so.
	Problem *Fault `json:"problem,omitempty"`
}

func (q DecideOf) request(ctx context.Context, h *Here, verb string) (r desk.Request, by desk.By, err error) {
	if by, err = q.acts(h, verb); err != nil {
		return r, by, err
	}
	d, err := h.At(ctx, q.Gateways)
	if err != nil {
		return r, by, err
	}
	r, err = d.Request(ctx, q.ID)
	return r, by, err
}

// The decisions.
var (
	ApproveRequest = &Op[DecideOf, ClearedPart, Decided]{About{Name: "approveRequest", Need: roles.Approve, Method: http.MethodPost, Path: "/v1/approvals/{id}/approve", Kind: Long, Act: true,
		NotFound: unknownRequest, Commands: []string{"approval approve"}},
		func(ctx context.Context, h *Here, q DecideOf, out Out[ClearedPart]) (v Decided, err error) {
			r, by, err := q.request(ctx, h, "approval approve")
			if err != nil {
				return v, err
			}
			if err = by.NeedsName("an approval"); err != nil {
				return v, err
			}
			was := r.State
			b, err := r.Approve(ctx, by, h.Traces, func(b *desk.Bulk) { _ = out.line(clearedPart(ctx, b, nil)) }) // who no longer listens has ended ctx
			if err != nil && r.State == was {
				return v, err
			}
			v.Request = r
			if b == nil {
				v.Problem = faultOf(ctx, err)
				return v, nil
			}
			part := clearedPart(ctx, b, err)
			v.Part = &part
			return v, nil
		}}
	RejectRequest = &Op[DecideOf, None, desk.Request]{About{Name: "rejectRequest", Need: roles.Approve, Method: http.MethodPost, Path: "/v1/approvals/{id}/reject", Act: true,
		NotFound: unknownRequest, Commands: []string{"approval reject"}},
		func(ctx context.Context, h *Here, q DecideOf, _ Out[None]) (r desk.Request, err error) {
			r, by, err := q.request(ctx, h, "approval reject")
			if err == nil {
				err = r.Reject(ctx, by)
			}
			return r, err
		}}
)

// asked returns what was asked for where an error says that a second person has to approve it; nil if it does not.
func asked(err error) *desk.Request {
	if a, is := errors.AsType[*desk.Awaits](err); is {
		return &a.Request
	}
	return nil
}
