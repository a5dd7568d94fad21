package client

import (
	"context"
	"net/url"
	"time"
)

// BatchApproval is what an approver sees of a batch, and the result of the approval.
type BatchApproval struct {
	Batch string `json:"batch"`
	Done  bool   `json:"done"`
	// Token identifies what is shown. ApproveBatch needs it.
	Token    string                   `json:"token,omitempty"`
	Gateways []BatchApprovalAtGateway `json:"gateways"`
	Problem  *PartProblem             `json:"problem,omitempty"`
}

// BatchApprovalAtGateway is a batch that awaits an approval at one gateway.
type BatchApprovalAtGateway struct {
	Gateway string `json:"gateway"`
	BatchAwaits
	Sum                  // the whole batch
	Waiting Sum          `json:"waiting"` // what an approval releases
	Called  Sum          `json:"called"`  // called before it was too large, or over otherwise
	Largest []LargeJob   `json:"largest"` // the jobs with the most money
	Repeats *RepeatBatch `json:"repeats,omitempty"`
	// JobsLookedAt is how many jobs were examined for Largest and the repeat.
	JobsLookedAt int64 `json:"jobs_looked_at"`
	Released     Sum   `json:"released"` // what the approval has released
}

// LargeJob is a job with much money, in minor units.
type LargeJob struct {
	ID       string `json:"id"`
	Minor    string `json:"minor"`
	Currency string `json:"currency"`
}

// RepeatBatch is the earlier batch that is most similar. Of is payees_and_amounts, or amounts.
type RepeatBatch struct {
	Batch   string `json:"batch"`
	Percent int64  `json:"percent"`
	Of      string `json:"of"`
}

type approveBatch struct {
	batchAct
	Token string `json:"token,omitempty"`
}

// ShowBatchApproval returns what an approver has to know about a batch that awaits an approval, and the token.
func (c *Client) ShowBatchApproval(ctx context.Context, name string, by Act, gateways ...string) (BatchApproval, error) {
	return long[BatchApproval](ctx, c, approveBatch{batchAct: batchAct{Gateways: gateways, DryRun: true, actor: actor(by)}}, "v1", "batches", name, "approve")
}

// ApproveBatch approves a batch if it is still as it was shown. It needs a token with a name and the role approver, and other people must have enqueued the batch.
func (c *Client) ApproveBatch(ctx context.Context, name, token string, by Act, gateways ...string) (BatchApproval, error) {
	return long[BatchApproval](ctx, c, approveBatch{batchAct{Gateways: gateways, actor: actor(by)}, token}, "v1", "batches", name, "approve")
}

// RejectBatch rejects a batch that awaits an approval: none of its remaining jobs is sent.
func (c *Client) RejectBatch(ctx context.Context, name string, by Act, gateways ...string) (BatchAct, error) {
	return c.batchAct(ctx, "reject", name, by, gateways)
}

// Approvals lists what awaits the approval of a second person.
type Approvals struct {
	Batches  []AwaitingBatch `json:"batches"`
	Requests []Request       `json:"requests"` // also those that were approved and are being done
}

// AwaitingBatch is a batch that awaits an approval at one gateway, with the jobs that wait.
type AwaitingBatch struct {
	Batch   string    `json:"batch"`
	Gateway string    `json:"gateway"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
	Sum
}

// Request is an act that a second person has to approve.
type Request struct {
	ID         string     `json:"id"`
	Gateway    string     `json:"gateway"`
	What       string     `json:"what"`   // as the trail has it: replay, discard, brake lift 2h
	Filter     string     `json:"filter"` // the flags that chose the jobs
	Sum                   // the jobs that it would take; none if it lifts brakes
	AskedBy    string     `json:"asked_by"`
	Person     string     `json:"person,omitempty"` // whose token that is, where the dispatcher's configuration says so
	Via        string     `json:"via"`
	Why        string     `json:"why,omitempty"`
	AskedAt    time.Time  `json:"asked_at"`
	Until      time.Time  `json:"until"`      // the last moment for an approval
	State      string     `json:"state"`      // asked; approved, while it is done; rejected or done
	DecidedAt  *time.Time `json:"decided_at"` // nil: nobody has approved or rejected it
	DecidedBy  string     `json:"decided_by,omitempty"`
	DecidedWhy string     `json:"decided_why,omitempty"`
}

// Decided is the result of an approved request.
type Decided struct {
	Request Request      `json:"request"`
	Part    *ClearedPart `json:"part,omitempty"` // what was done to jobs; nil if it is about none
	Problem *PartProblem `json:"problem,omitempty"`
}

type decide struct {
	Gateways []string `json:"gateways,omitempty"`
	actor
}

// Approvals returns what awaits an approval at the named gateways, or at all.
func (c *Client) Approvals(ctx context.Context, gateways ...string) (Approvals, error) {
	return get[Approvals](ctx, c, url.Values{"gateway": gateways}, "v1", "approvals")
}

// ApproveRequest does what somebody else has asked for, if it still means the same jobs. It needs a token with a name and the role approver.
func (c *Client) ApproveRequest(ctx context.Context, id string, by Act) (Decided, error) {
	return long[Decided](ctx, c, decide{actor: actor(by)}, "v1", "approvals", id, "approve")
}

// RejectRequest ends a request: nothing is done.
func (c *Client) RejectRequest(ctx context.Context, id string, by Act) (Request, error) {
	return act[Request](ctx, c, decide{actor: actor(by)}, "v1", "approvals", id, "reject")
}
