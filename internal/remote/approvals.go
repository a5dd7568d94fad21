package remote

import (
	"context"
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
	at(func(ctx context.Context, d *desk.Desk, q At, _ Out[None]) (v AllApprovals, err error) {
		if v.Batches, err = d.AwaitingBatches(ctx); err != nil {
			return v, err
		}
		v.Requests, err = d.Requests(ctx)
		return v, err
	})}

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

// ApproveOf names a batch to approve.
type ApproveOf struct {
	Name string `json:"-" path:"name"`
	At
	Actor
	// DryRun shows what would be approved, and returns its token.
	DryRun bool `json:"dry_run,omitempty"`
	// Token is the token of what was shown: nothing else is approved.
	Token string `json:"token,omitempty"`
}

// BatchApproved is the actual or planned result of approving a batch: "batch approve -o json".
type BatchApproved struct {
	Batch string `json:"batch"`
	Done  bool   `json:"done"`
	// Token identifies what is shown.
	Token    string               `json:"token,omitempty"`
	Gateways []desk.BatchApproval `json:"gateways"`
	// Problem is why it was not completed; nil if it was.
	Problem *Fault `json:"problem,omitempty"`
}

// Unfinished reports that it stopped early: a dispatcher continues what was approved.
func (d BatchApproved) Unfinished() bool { return d.Problem != nil }

// ApproveBatch releases a batch that awaits approval.
var ApproveBatch = &Op[ApproveOf, BatchStep, BatchApproved]{About{Name: "approveBatch", Need: roles.Approve, Method: http.MethodPost, Path: "/v1/batches/{name}/approve", Kind: Long, Act: true,
	NotFound: unknownBatch, Commands: []string{"batch approve"}},
	func(ctx context.Context, h *Here, q ApproveOf, out Out[BatchStep]) (d BatchApproved, err error) {
		by, err := q.acts(h, "batch approve")
		if err == nil {
			err = by.NeedsName("an approval")
		}
		if err != nil {
			return d, err
		}
		at, err := h.At(ctx, q.Gateways)
		if err != nil {
			return d, err
		}
		b, err := at.Batch(ctx, q.Name)
		if err != nil {
			return d, err
		}
		d = BatchApproved{Batch: q.Name, Done: !q.DryRun}
		if q.DryRun {
			if d.Gateways, err = b.Approval(ctx); err == nil {
				d.Token, err = desk.ShownToken(q.Name, d.Gateways)
			}
			return d, err
		}
		shown, err := desk.ShownBy(q.Name, q.Token)
		if err != nil {
			return d, err
		}
		d.Gateways, err = b.Approve(ctx, by, shown, inSteps(out))
		return d, err
	}}
