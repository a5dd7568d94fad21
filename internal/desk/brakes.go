package desk

import (
	"context"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// MostLift is the longest time for which brakes can be lifted.
const MostLift = 7 * job.Day

// Brakes is the state of a gateway's money brakes: "brake show -o json".
type Brakes struct {
	Gateway string       `json:"gateway"`
	Limits  []BrakeLimit `json:"limits"`
	// Single is the most that one call may move, as configured, one for each currency.
	Single []string `json:"single"`
	// RefuseUnknown says that jobs are not called if their money can't be read or no brake names their
	// currency.
	RefuseUnknown bool `json:"refuse_unknown"`
	// WaitsSince is since when a job waits for room, and WaitsUntil is when there is room at the latest; nil if
	// none waits. Why names the brake.
	WaitsSince *time.Time `json:"waits_since,omitempty"`
	WaitsUntil *time.Time `json:"waits_until,omitempty"`
	Why        string     `json:"why,omitempty"`
	// LiftedUntil is until when no limit stops a call; nil if the limits apply. LiftedBy, LiftedAt and
	// LiftedWhy say who did it, when and why.
	LiftedUntil *time.Time `json:"lifted_until,omitempty"`
	LiftedAt    *time.Time `json:"lifted_at,omitempty"`
	LiftedBy    string     `json:"lifted_by,omitempty"`
	LiftedWhy   string     `json:"lifted_why,omitempty"`
	// Request is a requested lift that needs a second person's approval; nil if none.
	Request *Request `json:"request,omitempty"`
}

// BrakeLimit is the state of one money limit. Amounts are in minor units.
type BrakeLimit struct {
	Limit    string `json:"limit"` // as configured
	Currency string `json:"currency"`
	Most     int64  `json:"most"`
	// Called is what counts in the window now. It may exceed Most after a lift, or after Most was lowered.
	Called int64 `json:"called"`
	// UnknownUntil is until when the money called is unknown, because Redis lost it; nil if it is known.
	UnknownUntil *time.Time `json:"unknown_until,omitempty"`
}

// Brakes returns the state of the gateway's brakes. A gateway without brakes has no limits and no single.
func (g *Gateway) Brakes(ctx context.Context) (Brakes, error) {
	is := g.Gateway.Brakes
	v := Brakes{Gateway: g.Name, Limits: make([]BrakeLimit, len(is.Limits)), Single: make([]string, len(is.Single)), RefuseUnknown: is.RefuseUnknown}
	s, err := g.Books.Brakes(ctx)
	if err != nil {
		return v, err
	}
	for i, w := range s.Windows {
		v.Limits[i] = BrakeLimit{w.Limit.String(), w.Limit.Most.Currency, w.Limit.Most.Minor.Int64(), w.Called, when(w.Unknown)}
	}
	for i, m := range is.Single {
		v.Single[i] = m.Plain()
	}
	v.WaitsSince, v.WaitsUntil, v.Why = when(s.Waits), when(s.WaitsUntil), s.Why
	v.LiftedUntil, v.LiftedAt, v.LiftedBy, v.LiftedWhy = when(s.Lifted), when(s.LiftedAt), s.LiftedBy, s.LiftedWhy
	return v, nil
}

// LiftBrakes allows calls for which no money limit has room, for d from now on, at most MostLift. Zero ends
// that at once. Such calls still count. lost says that someone has asked the gateway what was called before
// Redis lost data, so that limits no longer wait for that. An error with code usage says that d or the reason
// is invalid, or that the gateway has no money limit. If a second person has to approve it, LiftBrakes stores a
// request and returns an Awaits.
func (g *Gateway) LiftBrakes(ctx context.Context, by By, d time.Duration, lost bool) error {
	if len(g.Gateway.Brakes.Limits) == 0 {
		return usage("brakes with a limit are in the configuration: dispatcher brake show", "the gateway %s has no limit of money", g.Name)
	}
	if d < 0 || d > MostLift {
		return usage("give at most "+job.FormatDuration(MostLift)+", or 0 to have them be in force at once", "brakes can't be lifted for %s", job.FormatDuration(d))
	}
	if g.Approval.BrakeLift && (d > 0 || lost) { // ending a lift needs no approval
		return g.ask(ctx, by, order{What: liftText(d, lost), For: d, Lost: lost})
	}
	return g.lift(ctx, by, ledger.Lift{For: d, Lost: lost}, nil)
}

// lift does it. It also completes the approved request; nil: no approval was needed.
func (g *Gateway) lift(ctx context.Context, by By, l ledger.Lift, approved *Request) error {
	l.Who, l.Why = by.Who, by.Why
	return g.Store.Steer(ctx, approved.noted(by.act(deadletter.Act{What: liftText(l.For, l.Lost)})), func(ctx context.Context) error {
		return dispatch.LiftBrakes(ctx, g.redis, g.Gateway, l)
	})
}

// liftText returns a lift as written in the audit trail.
func liftText(d time.Duration, lost bool) string {
	text := "brake lift 0s"
	if d > 0 {
		text = "brake lift " + job.FormatDuration(d)
	}
	if lost {
		text += " lost"
	}
	return text
}
