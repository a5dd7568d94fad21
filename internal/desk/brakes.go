package desk

import (
	"context"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// MostLift is the longest time for which brakes are lifted at once.
const MostLift = 7 * job.Day

// Brakes is how a gateway's brakes of money stand: "brake show -o json".
type Brakes struct {
	Gateway string       `json:"gateway"`
	Limits  []BrakeLimit `json:"limits"`
	// Single is the most that one call may take, as the file has it, one for each currency.
	Single []string `json:"single"`
	// RefuseUnknown says that no call is made whose money can't be read, or whose currency no brake names.
	RefuseUnknown bool `json:"refuse_unknown"`
	// WaitsSince is since when a job waits for room, and WaitsUntil when there is room at the latest; nil if none waits. Why names the brake.
	WaitsSince *time.Time `json:"waits_since,omitempty"`
	WaitsUntil *time.Time `json:"waits_until,omitempty"`
	Why        string     `json:"why,omitempty"`
	// LiftedUntil is until when no limit keeps a call back; nil if they are in force. LiftedBy did it at LiftedAt, for LiftedWhy.
	LiftedUntil *time.Time `json:"lifted_until,omitempty"`
	LiftedAt    *time.Time `json:"lifted_at,omitempty"`
	LiftedBy    string     `json:"lifted_by,omitempty"`
	LiftedWhy   string     `json:"lifted_why,omitempty"`
	// Request is a lift that was asked for and that a second person has to approve; nil if none has to.
	Request *Request `json:"request,omitempty"`
}

// BrakeLimit is how one limit of money stands. Amounts are in minor units.
type BrakeLimit struct {
	Limit    string `json:"limit"` // as the file has it
	Currency string `json:"currency"`
	Most     int64  `json:"most"`
	// Called is what counts in the window now. It may be above Most after a lift, or where the file had more.
	Called int64 `json:"called"`
	// UnknownUntil is until when nobody knows what was called, since Redis lost it; nil if that is known.
	UnknownUntil *time.Time `json:"unknown_until,omitempty"`
}

// Brakes returns how the gateway's brakes stand. A gateway without any has no limits and no single.
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

// LiftBrakes lets calls go that no limit of money has room for, for d from now on, at most MostLift; zero has the limits be in force at once. What is called meanwhile counts.
// lost says that somebody has asked the gateway what was called before Redis lost data: limits do not wait for that any more. An error with the code usage says that d or
// the reason is wrong, or that the gateway has no limit of money. Where a second person has to approve it, it is asked for, and the error is an Awaits.
func (g *Gateway) LiftBrakes(ctx context.Context, by By, d time.Duration, lost bool) error {
	if len(g.Gateway.Brakes.Limits) == 0 {
		return usage("brakes with a limit are in the configuration: dispatcher brake show", "the gateway %s has no limit of money", g.Name)
	}
	if d < 0 || d > MostLift {
		return usage("give at most "+job.FormatDuration(MostLift)+", or 0 to have them be in force at once", "brakes can't be lifted for %s", job.FormatDuration(d))
	}
	if g.Approval.BrakeLift && (d > 0 || lost) { // to have them be in force again needs nobody's yes
		return g.ask(ctx, by, order{What: liftText(d, lost), For: d, Lost: lost})
	}
	return g.lift(ctx, by, ledger.Lift{For: d, Lost: lost}, nil)
}

// lift does it. What was approved is noted with it; nil: nothing had to be.
func (g *Gateway) lift(ctx context.Context, by By, l ledger.Lift, approved *Request) error {
	l.Who, l.Why = by.Who, by.Why
	return g.Store.Steer(ctx, approved.noted(by.act(deadletter.Act{What: liftText(l.For, l.Lost)})), func(ctx context.Context) error {
		return dispatch.LiftBrakes(ctx, g.redis, g.Gateway, l)
	})
}

// liftText is a lift as the trail has it.
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
