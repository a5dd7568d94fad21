package desk

import (
	"context"
	"strings"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// Pause stops new calls to the gateway until Resume. shown is the reason that people see.
func (g *Gateway) Pause(ctx context.Context, by By, shown string) error {
	return g.withPacer(ctx, by, "pause", func(ctx context.Context, p *bucket.Pacer) error { return p.Pause(ctx, shown) })
}

// Resume ends a pause.
func (g *Gateway) Resume(ctx context.Context, by By) error {
	return g.withPacer(ctx, by, "resume", func(ctx context.Context, p *bucket.Pacer) error { return p.Resume(ctx) })
}

func (g *Gateway) withPacer(ctx context.Context, by By, what string, act func(context.Context, *bucket.Pacer) error) error {
	p, err := dispatch.Pacer(g.redis, g.Gateway, bucket.NewMetrics(nil))
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	return g.steer(ctx, by, what, func(ctx context.Context) error { return act(ctx, p) })
}

// steer changes the gateway, and writes into its audit trail who did what and why.
func (g *Gateway) steer(ctx context.Context, by By, what string, do func(context.Context) error) error {
	return g.Store.Steer(ctx, by.act(deadletter.Act{What: what}), do)
}

// SetLimits replaces the gateway's limits, in every process within a second. An empty list restores the
// configured ones. An error with code usage says that they are not supported.
func (g *Gateway) SetLimits(ctx context.Context, by By, to []job.Limit) error {
	if err := g.CheckLimits(to); err != nil {
		return err
	}
	what := "limit reset"
	if len(to) > 0 {
		what = "limit set " + LimitsText(to)
	}
	return g.steer(ctx, by, what, func(ctx context.Context) error { return dispatch.SetLimits(ctx, g.redis, g.Gateway, to) })
}

// Charge is what losses of Redis's memory have charged to one limit.
type Charge struct {
	Limit string `json:"limit"`
	Units int64  `json:"units"`
	// Until is when the last of it stops counting; nil if it was forgiven.
	Until *time.Time `json:"until,omitempty"`
}

// Forgiven is what "limit forgive" removed.
type Forgiven struct {
	Gateway  string   `json:"gateway"`
	Forgiven []Charge `json:"forgiven"`
}

// Forgive removes what losses have charged to the gateway's limits.
func (g *Gateway) Forgive(ctx context.Context, by By) (Forgiven, error) {
	var lifted []bucket.Charge
	err := g.steer(ctx, by, "limit forgive", func(ctx context.Context) (err error) {
		lifted, err = dispatch.Forgive(ctx, g.redis, g.Gateway)
		return err
	})
	return Forgiven{g.Name, charges(lifted)}, err
}

func charges(from []bucket.Charge) []Charge {
	all := make([]Charge, len(from))
	for i, c := range from {
		all[i] = Charge{Limit: c.Limit.String(), Units: c.Units}
		if !c.Until.IsZero() {
			all[i].Until = &from[i].Until
		}
	}
	return all
}

// CheckLimits returns why these limits are not supported, or nil.
func (g *Gateway) CheckLimits(to []job.Limit) error {
	return dispatch.CheckLimits(g.redis, g.Gateway, to)
}

// LimitsText returns limits as configured, separated by blanks.
func LimitsText(limits []job.Limit) string { return strings.Join(limitTexts(limits), " ") }

func limitTexts(limits []job.Limit) []string {
	all := make([]string, len(limits))
	for i, l := range limits {
		all[i] = l.String()
	}
	return all
}

// Limits are the limits in force at a gateway: "limit show -o json".
type Limits struct {
	Gateway string   `json:"gateway"`
	Limits  []string `json:"limits"`
	SetLive bool     `json:"set_live"`
	File    []string `json:"file"`
	// Admission are those at admission. Bottleneck says which of the two determine the throughput in the long
	// run.
	Admission  []string `json:"admission"`
	Bottleneck string   `json:"bottleneck"`
	// Charged is what losses have charged to the limits, as far as it still counts.
	Charged []Charge `json:"charged,omitempty"`
}

// Limits returns the limits in force.
func (g *Gateway) Limits(ctx context.Context) (Limits, error) {
	now, err := dispatch.CurrentLimits(ctx, g.redis, g.Gateway)
	if err != nil {
		return Limits{}, err
	}
	charged, err := dispatch.Charged(ctx, g.redis, g.Gateway)
	v := g.limits(now)
	v.Charged = charges(charged)
	return v, err
}

func (g *Gateway) limits(now dispatch.Limits) Limits {
	in := dispatch.AdmissionAt(g.Gateway, now).Limits
	return Limits{Gateway: g.Name, Limits: limitTexts(now.Limits), SetLive: now.Live, File: limitTexts(g.Leak.Limits), Admission: limitTexts(in), Bottleneck: dispatch.Bottleneck(in, now.Limits)}
}

// Text returns the leak's limits, and admission's if they are the bottleneck.
func (l Limits) Text() string { return boundText(l.Limits, l.Admission, l.Bottleneck) }

func boundText(leak, admission []string, bottleneck string) string {
	text := strings.Join(leak, " ")
	if bottleneck == dispatch.BottleneckAdmission {
		text += " (admission " + strings.Join(admission, " ") + ")"
	}
	return text
}

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
