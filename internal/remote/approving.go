package remote

import (
	"context"
	"net/http"
	"sync"

	"spillway/internal/desk"
	"spillway/internal/roles"
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
		var one sync.Mutex
		d.Gateways, err = b.Approve(ctx, by, shown, func(jobs int64) {
			one.Lock()
			defer one.Unlock()
			_ = out.line(BatchStep{jobs}) // if the client has gone, ctx has ended
		})
		return d, err
	}}
