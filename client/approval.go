package client

import (
	"context"
	"net/url"
	"strconv"
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

// Sum is how many jobs there are, and their money.
type Sum struct {
	Jobs          int64   `json:"jobs"`
	Amount        Amounts `json:"amount"`
	WithoutAmount int64   `json:"without_amount"` // jobs whose amount can't be read
}

// StateSum is the jobs of a batch in one state.
type StateSum struct {
	State  State  `json:"state"`
	Reason Reason `json:"reason,omitempty"` // with Parked alone
	Sum
}

// Batch is the state of a batch.
type Batch struct {
	Batch string `json:"batch"`
	Sum
	// Unlisted has its parts at gateways that the configuration does not have.
	Unlisted []UnlistedBatch `json:"unlisted,omitempty"`
	// States has the states with jobs.
	States     []StateSum `json:"states"`
	ETASeconds *float64   `json:"eta_seconds"` // nil: nobody can say
	By         *time.Time `json:"by,omitempty"`
	MakesIt    *bool      `json:"makes_it,omitempty"`
	// LateSeconds is how much too late it will be.
	LateSeconds float64          `json:"late_seconds,omitempty"`
	Gateways    []BatchAtGateway `json:"gateways"`
}

// UnlistedBatch is the part of a batch at a gateway that the configuration does not have.
type UnlistedBatch struct {
	Gateway string `json:"gateway"`
	Sum
}

// Stopped says who paused or cancelled a batch, and why.
type Stopped struct {
	PausedAt    *time.Time `json:"paused_at"`
	PauseWhy    string     `json:"pause_why,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	CancelledAt *time.Time `json:"cancelled_at"`
	CancelWhy   string     `json:"cancel_why,omitempty"`
	CancelledBy string     `json:"cancelled_by,omitempty"`
}

// BatchAtGateway is the state of a batch at one gateway.
type BatchAtGateway struct {
	Gateway    string     `json:"gateway"`
	Jobs       int64      `json:"jobs"`
	States     []StateSum `json:"states"`
	ETASeconds *float64   `json:"eta_seconds"` // nil: nobody can say
	ETAWhy     string     `json:"eta_why,omitempty"`
	Stopped
	StoppedItself bool          `json:"stopped_itself,omitempty"`
	GoOn          string        `json:"go_on,omitempty"` // for people: how to make it continue
	Pending       *BatchPending `json:"pending,omitempty"`
	Canary        *Canary       `json:"canary,omitempty"`
	Approval      *BatchAwaits  `json:"approval,omitempty"` // nil: none was needed
}

// BatchPending counts the jobs about whose calls the gateway is being asked.
type BatchPending struct {
	Jobs         int64      `json:"jobs"`
	NextLookupAt *time.Time `json:"next_lookup_at"`
}

// Canary is about the first jobs of a batch, which are called before the rest.
type Canary struct {
	First int64 `json:"first"`
	Done  int64 `json:"done"`
	Waits bool  `json:"waits"` // the rest still waits
}

// Batch returns the state of a batch at the named gateways, or at all. For an unknown batch the error is UnknownBatch.
func (c *Client) Batch(ctx context.Context, name string, gateways ...string) (Batch, error) {
	return get[Batch](ctx, c, url.Values{"gateway": gateways}, "v1", "batches", name)
}

// BatchQuery says which batches are listed.
type BatchQuery struct {
	Gateways []string // none: all of the configuration
	Limit    int      // of a page, up to 1,000; 0: 100
	After    string   // the Next of the previous page
	Active   bool     // only those with jobs that are not over
}

// Batches is a page of batches, newest first.
type Batches struct {
	Batches []BatchRow `json:"batches"`
	Next    *string    `json:"next"` // nil: that was all
}

// BatchRow is one batch of a list.
type BatchRow struct {
	Batch      string    `json:"batch"`
	State      string    `json:"state"` // active, paused, cancelled or over
	FirstJobAt time.Time `json:"first_job_at"`
	Gateways   []string  `json:"gateways"`
	Sum
	Done        Sum        `json:"done"`
	Waiting     Sum        `json:"waiting"`      // jobs that continue without a person
	NeedsPerson Sum        `json:"needs_person"` // parked as UnknownOutcome, Refused or Exhausted
	Other       Sum        `json:"other"`
	States      []StateSum `json:"states"`
	ETASeconds  *float64   `json:"eta_seconds"` // nil: nobody can say
	ETAWhy      string     `json:"eta_why,omitempty"`
	StoppedAt   []string   `json:"stopped_at,omitempty"` // the gateways at which it is paused or cancelled
	Stopped
	Cursor string `json:"cursor"`
}

// Batches returns a page of batches.
func (c *Client) Batches(ctx context.Context, q BatchQuery) (Batches, error) {
	query := url.Values{"gateway": q.Gateways}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	put(query, "after", q.After)
	if q.Active {
		query.Set("active", "true")
	}
	return get[Batches](ctx, c, query, "v1", "batches")
}

// BatchAwaits is the state of the approvals of a batch at one gateway.
type BatchAwaits struct {
	AwaitingSince *time.Time  `json:"awaiting_since"` // nil: it awaits none
	AwaitingWhy   string      `json:"awaiting_why,omitempty"`
	BroughtInBy   []BroughtIn `json:"brought_in_by,omitempty"`
	ApprovedAt    *time.Time  `json:"approved_at"` // the last time; nil: never
	ApprovedBy    string      `json:"approved_by,omitempty"`
	ApprovalWhy   string      `json:"approval_why,omitempty"`
}

// BroughtIn is how many jobs of a batch somebody enqueued. Via is how that person was identified, as in the trail.
type BroughtIn struct {
	Name   string `json:"name"`
	Person string `json:"person,omitempty"` // the owner of the token, if the dispatcher's configuration names one
	Via    string `json:"via"`
	Jobs   int64  `json:"jobs"`
}
