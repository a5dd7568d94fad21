package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Act says who acts, and why. The gateway's trail records it.
type Act struct {
	By  string // who; empty is an error
	Why string // optional for a pause; required for acts that move money or remove something
}

// actor is an Act as requests have it.
type actor struct {
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// act does something once, however often its request is sent: a key tells the dispatcher that it is the same act.
func act[T any](ctx context.Context, c *Client, document any, parts ...string) (v T, err error) {
	k, err := actCall(document, asJSON, parts)
	if err != nil {
		return v, err
	}
	err = c.ask(ctx, k, &v)
	return v, err
}

func actCall(document any, accept string, parts []string) (call, error) {
	body, err := plainJSON(document)
	if err != nil {
		return call{}, &Error{Code: InvalidRequest, Detail: err.Error(), Err: err}
	}
	return call{method: http.MethodPost, path: path(parts...), body: body, header: map[string]string{"Accept": accept, "Idempotency-Key": rand.Text()}}, nil
}

// long does something once that may take minutes. The answer comes in lines, which show progress.
func long[T any](ctx context.Context, c *Client, document any, parts ...string) (v T, err error) {
	k, err := actCall(document, asLines, parts)
	if err != nil {
		return v, err
	}
	for b := c.backoff(); ; {
		answer, failed := c.longOnce(ctx, k)
		if failed == nil {
			if err := json.Unmarshal(answer, &v); err != nil {
				return v, &Error{Code: NoAnswer, Detail: "the answer can't be read: " + err.Error(), Err: err}
			}
			return v, nil
		}
		if failed.Code == UnderWay { // the previous request is still being done: that is not a failure
			b.reset()
		}
		if err := b.pause(ctx, failed); err != nil {
			return v, err
		}
	}
}

func (c *Client) longOnce(ctx context.Context, k call) (answer json.RawMessage, failed *Error) {
	var told *Error
	failed = c.eachLine(ctx, k, func(text []byte) error {
		var line struct {
			Answer  json.RawMessage `json:"answer"`
			Problem *problem        `json:"problem"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return err
		}
		if line.Problem != nil {
			told = line.Problem.err("")
		}
		if len(line.Answer) > 0 {
			answer = bytes.Clone(line.Answer)
		}
		return nil
	})
	switch {
	case answer != nil:
		return answer, nil
	case told != nil:
		return nil, told
	case failed == nil:
		return nil, &Error{Code: NoAnswer, Detail: "the answer ended before its last line"}
	}
	return nil, failed
}

// Steered is the result of a pause or a resume of a gateway.
type Steered struct {
	Gateway string `json:"gateway"`
	Done    string `json:"done"`             // paused or resumed
	Remark  string `json:"remark,omitempty"` // what still keeps its calls back
}

// steer pauses or resumes a gateway.
type steer struct {
	actor
	Shown string `json:"shown,omitempty"` // to people as the reason; empty: why
}

// PauseGateway stops the calls to a gateway until it is resumed. Jobs are still accepted.
func (c *Client) PauseGateway(ctx context.Context, gateway string, by Act) (Steered, error) {
	return act[Steered](ctx, c, steer{actor: actor(by)}, "v1", "gateways", gateway, "pause")
}

// ResumeGateway lets a gateway be called again.
func (c *Client) ResumeGateway(ctx context.Context, gateway string, by Act) (Steered, error) {
	return act[Steered](ctx, c, steer{actor: actor(by)}, "v1", "gateways", gateway, "resume")
}

// Limits is the limits of the gateways.
type Limits struct {
	Gateways []GatewayLimits `json:"gateways"`
}

// GatewayLimits is the limits of one gateway, such as 100/s.
type GatewayLimits struct {
	Gateway    string    `json:"gateway"`
	Limits     []string  `json:"limits"` // in force
	File       []string  `json:"file"`   // of the configuration
	SetLive    bool      `json:"set_live"`
	Admission  []string  `json:"admission"`
	Bottleneck string    `json:"bottleneck"` // leak or admission
	Charged    []Charged `json:"charged,omitempty"`
}

// Charged is the charge of a limit for lost slots.
type Charged struct {
	Limit string     `json:"limit"`
	Units int64      `json:"units"`
	Until *time.Time `json:"until,omitempty"`
}

// Limits returns the limits of the named gateways, or of all.
func (c *Client) Limits(ctx context.Context, gateways ...string) (Limits, error) {
	return get[Limits](ctx, c, url.Values{"gateway": gateways}, "v1", "limits")
}

type setLimits struct {
	Limits []string `json:"limits"`
	actor
}

// SetLimits changes a gateway's limits while it runs, until ResetLimits.
func (c *Client) SetLimits(ctx context.Context, gateway string, limits []string, by Act) (GatewayLimits, error) {
	return act[GatewayLimits](ctx, c, setLimits{limits, actor(by)}, "v1", "gateways", gateway, "limits", "set")
}

// ResetLimits puts the limits of the configuration in force again.
func (c *Client) ResetLimits(ctx context.Context, gateway string, by Act) (GatewayLimits, error) {
	return act[GatewayLimits](ctx, c, actor(by), "v1", "gateways", gateway, "limits", "reset")
}

// Forgiven is what was taken back from a gateway's limits.
type Forgiven struct {
	Gateway  string    `json:"gateway"`
	Forgiven []Charged `json:"forgiven"`
}

// ForgiveLimits takes back what a gateway's limits were charged for lost slots.
func (c *Client) ForgiveLimits(ctx context.Context, gateway string, by Act) (Forgiven, error) {
	return act[Forgiven](ctx, c, actor(by), "v1", "gateways", gateway, "limits", "forgive")
}

// BatchAct is what an act upon a batch has done.
type BatchAct struct {
	Batch    string           `json:"batch"`
	What     string           `json:"what"` // pause, resume, cancel or reject
	Done     bool             `json:"done"`
	Gateways []BatchActedUpon `json:"gateways"`
	Problem  *PartProblem     `json:"problem,omitempty"` // why it was not completed; the same act again does the rest
}

// BatchActedUpon is the jobs of a batch at one gateway upon which an act has acted.
type BatchActedUpon struct {
	Gateway string `json:"gateway"`
	Sum
	InAll          *Sum `json:"in_all,omitempty"`          // all jobs of the batch in this state, if another act had changed some of them first
	UnknownOutcome *Sum `json:"unknown_outcome,omitempty"` // parked jobs that may have been charged
	Pending        *Sum `json:"pending,omitempty"`         // jobs that wait for the gateway's answer
}

type batchAct struct {
	Gateways []string `json:"gateways,omitempty"`
	DryRun   bool     `json:"dry_run,omitempty"`
	actor
}

func (c *Client) batchAct(ctx context.Context, what, name string, by Act, gateways []string) (BatchAct, error) {
	return long[BatchAct](ctx, c, batchAct{Gateways: gateways, actor: actor(by)}, "v1", "batches", name, what)
}

// PauseBatch parks the jobs of a batch that were not called, until the batch is resumed. It acts at the named gateways, or at all.
func (c *Client) PauseBatch(ctx context.Context, name string, by Act, gateways ...string) (BatchAct, error) {
	return c.batchAct(ctx, "pause", name, by, gateways)
}

// ResumeBatch queues the jobs of a paused batch again.
func (c *Client) ResumeBatch(ctx context.Context, name string, by Act, gateways ...string) (BatchAct, error) {
	return c.batchAct(ctx, "resume", name, by, gateways)
}

// CancelBatch parks the jobs of a batch that were not called, and those that are enqueued later. Only a replay sends them.
func (c *Client) CancelBatch(ctx context.Context, name string, by Act, gateways ...string) (BatchAct, error) {
	return c.batchAct(ctx, "cancel", name, by, gateways)
}

// ParkedJob is a job that was parked by hand.
type ParkedJob struct {
	ID             string  `json:"id"`
	Gateway        string  `json:"gateway"`
	Was            string  `json:"was"` // its state before
	Reason         Reason  `json:"reason"`
	MayHaveCharged bool    `json:"may_have_charged"`
	Done           bool    `json:"done"`
	Amount         Amounts `json:"amount"`
	WithoutAmount  int64   `json:"without_amount"`
}

// ParkJob parks a waiting job, or one about which the gateway is being asked, so that a person can resolve it.
func (c *Client) ParkJob(ctx context.Context, id string, by Act, gateways ...string) (ParkedJob, error) {
	return act[ParkedJob](ctx, c, batchAct{Gateways: gateways, actor: actor(by)}, "v1", "jobs", id, "park")
}

// Brakes is the state of the brakes of money of gateways.
type Brakes struct {
	Gateways []GatewayBrakes `json:"gateways"`
}

// GatewayBrakes is the state of the brakes of money of one gateway.
type GatewayBrakes struct {
	Gateway       string       `json:"gateway"`
	Limits        []BrakeLimit `json:"limits"`
	Single        []string     `json:"single"`                // the most that one call may take, such as EUR 20000
	RefuseUnknown bool         `json:"refuse_unknown"`        // no call whose money can't be read, or whose currency no brake names
	WaitsSince    *time.Time   `json:"waits_since,omitempty"` // a job waits for room
	WaitsUntil    *time.Time   `json:"waits_until,omitempty"` // at the latest
	Why           string       `json:"why,omitempty"`         // the brake for which it waits
	LiftedUntil   *time.Time   `json:"lifted_until,omitempty"`
	LiftedAt      *time.Time   `json:"lifted_at,omitempty"`
	LiftedBy      string       `json:"lifted_by,omitempty"`
	LiftedWhy     string       `json:"lifted_why,omitempty"`
	Request       *Request     `json:"request,omitempty"` // a requested lift, which a second person has to approve
}

// BrakeLimit is the state of one limit of money. Amounts are in minor units.
type BrakeLimit struct {
	Limit        string     `json:"limit"` // such as EUR 50000/1m
	Currency     string     `json:"currency"`
	Most         int64      `json:"most"`
	Called       int64      `json:"called"`                  // what counts in the window now
	UnknownUntil *time.Time `json:"unknown_until,omitempty"` // nobody knows what was called before Redis lost its data
}

// Brakes returns the state of the brakes of money of the named gateways, or of all.
func (c *Client) Brakes(ctx context.Context, gateways ...string) (Brakes, error) {
	return get[Brakes](ctx, c, url.Values{"gateway": gateways}, "v1", "brakes")
}

// liftBrakes is for how long brakes are lifted.
type liftBrakes struct {
	For  string `json:"for"`
	Lost bool   `json:"lost,omitempty"` // limits do not wait any more for what Redis has lost
	actor
}

// LiftBrakes allows calls for which no limit of money has room. d is for how long, at most 7 days; zero ends a lift at once. Calls count meanwhile. A reason is required.
func (c *Client) LiftBrakes(ctx context.Context, gateway string, d time.Duration, by Act) (GatewayBrakes, error) {
	return act[GatewayBrakes](ctx, c, liftBrakes{For: d.String(), actor: actor(by)}, "v1", "gateways", gateway, "brakes", "lift")
}

// ForgetLostMoney makes a gateway's limits of money stop waiting for calls that Redis has lost. Ask the gateway first what was called. A lift ends. A reason is required.
func (c *Client) ForgetLostMoney(ctx context.Context, gateway string, by Act) (GatewayBrakes, error) {
	return act[GatewayBrakes](ctx, c, liftBrakes{For: "0", Lost: true, actor: actor(by)}, "v1", "gateways", gateway, "brakes", "lift")
}
