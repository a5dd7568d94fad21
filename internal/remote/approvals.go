package remote

import (
	"context"
	"errors"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// AllApprovals is what awaits a second person's approval: "approval list -o json".
type AllApprovals struct {
	Batches []desk.AwaitingBatch `json:"batches"`
	// Requests also includes those that are approved and being carried out.
	Requests []desk.Request `json:"requests"`
}

// Approvals lists what awaits approval.
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

// unknownRequest is the problem code for an unknown request.
const unknownRequest = "unknown_request"

// DecideOf names a request to approve or reject.
type DecideOf struct {
	ID string `json:"-" path:"id"`
	At
	Actor
}

// Decided is the result of approving or rejecting a request: "approval approve -o json".
type Decided struct {
	Request desk.Request `json:"request"`
	// Part is what was done to jobs; nil if it concerns none.
	Part *ClearedPart `json:"part,omitempty"`
	// Problem is why it was not completed; nil if it was, or if Part says so.
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
			b, err := r.Approve(ctx, by, h.Traces, func(b *desk.Bulk) { _ = out.line(clearedPart(ctx, b, nil)) }) // if the client has gone, ctx has ended
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

// asked returns the request if an error says that approval is needed; nil if not.
func asked(err error) *desk.Request {
	if a, is := errors.AsType[*desk.Awaits](err); is {
		return &a.Request
	}
	return nil
}
