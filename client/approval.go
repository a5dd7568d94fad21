package client

import "context"

// BatchApproval is what an approver is shown of a batch, and what the approval has done.
type BatchApproval struct {
	Batch string `json:"batch"`
	Done  bool   `json:"done"`
	// Token stands for what is shown: ApproveBatch takes it.
	Token    string                   `json:"token,omitempty"`
	Gateways []BatchApprovalAtGateway `json:"gateways"`
	Problem  *PartProblem             `json:"problem,omitempty"`
}

// BatchApprovalAtGateway is a batch that awaits an approval at one gateway.
type BatchApprovalAtGateway struct {
	Gateway string `json:"gateway"`
	BatchAwaits
	Sum                  // the whole batch
	Waiting Sum          `json:"waiting"` // what an approval lets go
	Called  Sum          `json:"called"`  // called before it was too large, or over otherwise
	Largest []LargeJob   `json:"largest"` // the jobs with the most money
	Repeats *RepeatBatch `json:"repeats,omitempty"`
	// JobsLookedAt is how many jobs were looked at for the two.
	JobsLookedAt int64 `json:"jobs_looked_at"`
	Released     Sum   `json:"released"` // what the approval let go
}

// LargeJob is a job with much money, in minor units.
type LargeJob struct {
	ID       string `json:"id"`
	Minor    string `json:"minor"`
	Currency string `json:"currency"`
}

// RepeatBatch is the batch before it that a batch is most like. Of is payees_and_amounts, or amounts.
type RepeatBatch struct {
	Batch   string `json:"batch"`
	Percent int64  `json:"percent"`
	Of      string `json:"of"`
}

type approveBatch struct {
	batchAct
	Token string `json:"token,omitempty"`
}

// ShowBatchApproval returns what an approver has to know of a batch that awaits an approval, and the token of it.
func (c *Client) ShowBatchApproval(ctx context.Context, name string, by Act, gateways ...string) (BatchApproval, error) {
	return long[BatchApproval](ctx, c, approveBatch{batchAct: batchAct{Gateways: gateways, DryRun: true, actor: actor(by)}}, "v1", "batches", name, "approve")
}

// ApproveBatch lets a batch go on that awaits an approval, if it is still as it was shown. It needs a token with a name and the role approver, and the batch must be brought in by others.
func (c *Client) ApproveBatch(ctx context.Context, name, token string, by Act, gateways ...string) (BatchApproval, error) {
	return long[BatchApproval](ctx, c, approveBatch{batchAct{Gateways: gateways, actor: actor(by)}, token}, "v1", "batches", name, "approve")
}

// RejectBatch gives up a batch that awaits an approval: nothing more of it is sent.
func (c *Client) RejectBatch(ctx context.Context, name string, by Act, gateways ...string) (BatchAct, error) {
	return c.batchAct(ctx, "reject", name, by, gateways)
}
