package desk

import (
	"context"
	"strings"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
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
