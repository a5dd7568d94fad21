package client

import (
	"context"
	"net/url"
	"time"
)

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
