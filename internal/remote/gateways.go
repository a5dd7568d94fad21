package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// GatewayAct is an act on a gateway.
type GatewayAct struct {
	Gateway string `json:"-" path:"gateway"`
	Actor
}

// SteerOf names a gateway to pause or resume.
type SteerOf struct {
	GatewayAct
	// Shown is the reason of a pause as people see it. Empty: why, or else "by an operator".
	Shown string `json:"shown,omitempty"`
}

// Steered is the result of pausing or resuming a gateway.
type Steered struct {
	Gateway string `json:"gateway"`
	Done    string `json:"done"` // paused or resumed
	// Remark says what holds a gateway's calls back all the same; empty if nothing does.
	Remark string `json:"remark,omitempty"`
}

// Steering pauses or resumes a gateway.
type Steering = Op[SteerOf, None, Steered]

// Paused and Resumed are the values of Steered.Done.
const (
	Paused  = "paused"
	Resumed = "resumed"
)

// The acts.
var (
	Pause = &Steering{About{Name: "pauseGateway", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/pause", Act: true, Commands: []string{"pause"}},
		func(ctx context.Context, h *Here, q SteerOf, _ Out[None]) (v Steered, err error) {
			g, by, err := q.at(ctx, h, "")
			if err != nil {
				return v, err
			}
			return Steered{Gateway: g.Name, Done: Paused}, g.Pause(ctx, by, cmp.Or(q.Shown, by.Why, "by an operator"))
		}}
	Resume = &Steering{About{Name: "resumeGateway", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/resume", Act: true, Commands: []string{"resume"}},
		func(ctx context.Context, h *Here, q SteerOf, _ Out[None]) (v Steered, err error) {
			g, by, err := q.at(ctx, h, "")
			if err == nil {
				err = g.Resume(ctx, by)
			}
			if err != nil {
				return v, err
			}
			return Steered{Gateway: g.Name, Done: Resumed, Remark: stillHeld(ctx, g)}, nil
		}}
)

// stillHeld says what holds a resumed gateway's calls back all the same.
func stillHeld(ctx context.Context, g *desk.Gateway) string {
	v, err := g.Status(ctx)
	switch h := v.Glance.Hold; {
	case err != nil: // it is resumed all the same
	case h.Paused:
		return fmt.Sprintf("%s is not called all the same: %s", g.Name, h.PauseWhy)
	case v.HeldUntil != nil:
		return fmt.Sprintf("%s is held until %s: %s; a hold ends by itself", g.Name, job.Moment(*v.HeldUntil), h.Reason)
	}
	return ""
}

// at returns the gateway, and who acts on it. verb is the act that requires a reason; empty: none is required.
func (q GatewayAct) at(ctx context.Context, h *Here, verb string) (*desk.Gateway, desk.By, error) {
	by, err := q.acts(h, verb)
	if err != nil {
		return nil, by, err
	}
	g, err := h.one(ctx, q.Gateway)
	return g, by, err
}

// Names are configured gateways.
type Names struct {
	Gateways []string `json:"gateways"`
	// Told are those of them with an outcome feed.
	Told []string `json:"outcomes,omitempty"`
}

// Named returns the names of gateways in configured order, each once.
var Named = &Op[At, None, Names]{About{Name: "nameGateways", Need: roles.Read, Method: http.MethodGet, Path: "/v1/names", Commands: []string{"pause", "resume", "limit set", "limit reset", "limit forgive", "brake lift", "lane set", "lane reset", "lane pause", "lane resume", "route pause", "route resume", "outcomes"}},
	at(func(ctx context.Context, d *desk.Desk, q At, _ Out[None]) (v Names, err error) {
		for _, g := range d.Gateways {
			v.Gateways = append(v.Gateways, g.Name)
			if g.Gateway.Outcomes != nil {
				v.Told = append(v.Told, g.Name)
			}
		}
		return v, nil
	})}

// AllUnlisted lists gateways that are not configured.
type AllUnlisted struct {
	Gateways []desk.Unlisted `json:"gateways"`
}

// Unlisted lists the gateways with jobs that are not configured.
var Unlisted = &Op[None, None, AllUnlisted]{About{Name: "listUnlisted", Need: roles.View, Method: http.MethodGet, Path: "/v1/unlisted", Commands: []string{"batch list", "find", "export", "dlq list", "dlq stats", "dlq replay", "dlq discard", "dlq resolve", "dlq export"}},
	func(ctx context.Context, h *Here, _ None, _ Out[None]) (v AllUnlisted, err error) {
		d, err := h.At(ctx, nil)
		if err != nil {
			return v, err
		}
		v.Gateways, err = d.Unlisted(ctx)
		return v, err
	}}

// AllLimits is the limits of gateways.
type AllLimits struct {
	Gateways []desk.Limits `json:"gateways"`
}

// Limits returns the limits in force.
var Limits = &Op[At, None, AllLimits]{About{Name: "listLimits", Need: roles.View, Method: http.MethodGet, Path: "/v1/limits", Commands: []string{"limit show"}},
	at(func(ctx context.Context, d *desk.Desk, q At, _ Out[None]) (v AllLimits, err error) {
		for _, g := range d.Gateways {
			l, err := g.Limits(ctx)
			if err != nil {
				return v, err
			}
			v.Gateways = append(v.Gateways, l)
		}
		return v, nil
	})}

// LimitsTo says what to set a gateway's limits to.
type LimitsTo struct {
	GatewayAct
	Limits []string `json:"limits"`
}

// The acts on limits.
var (
	SetLimits = &Op[LimitsTo, None, desk.Limits]{About{Name: "setLimits", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/limits/set", Act: true, Commands: []string{"limit set"}},
		func(ctx context.Context, h *Here, q LimitsTo, _ Out[None]) (v desk.Limits, err error) {
			to := make([]job.Limit, len(q.Limits))
			for i, text := range q.Limits {
				if to[i], err = job.ParseLimit(text); err != nil {
					return v, usage(`write them like ["100/s", "5000/m"]`, err.Error())
				}
			}
			if len(to) == 0 {
				return v, usage(`write them like ["100/s", "5000/m"]`, "no limit is named")
			}
			return q.set(ctx, h, to)
		}}
	ResetLimits = &Op[GatewayAct, None, desk.Limits]{About{Name: "resetLimits", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/limits/reset", Act: true, Commands: []string{"limit reset"}},
		func(ctx context.Context, h *Here, q GatewayAct, _ Out[None]) (desk.Limits, error) {
			return q.set(ctx, h, nil)
		}}
	ForgiveLimits = &Op[GatewayAct, None, desk.Forgiven]{About{Name: "forgiveLimits", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/limits/forgive", Act: true, Commands: []string{"limit forgive"}},
		func(ctx context.Context, h *Here, q GatewayAct, _ Out[None]) (v desk.Forgiven, err error) {
			g, by, err := q.at(ctx, h, "limit forgive")
			if err != nil {
				return v, err
			}
			return g.Forgive(ctx, by)
		}}
)

func (q GatewayAct) set(ctx context.Context, h *Here, to []job.Limit) (v desk.Limits, err error) {
	g, by, err := q.at(ctx, h, "")
	if err == nil {
		err = g.SetLimits(ctx, by, to)
	}
	if err != nil {
		return v, err
	}
	return g.Limits(ctx)
}

// MoveOf names a gateway, no longer configured, to rename or forget.
type MoveOf struct {
	GatewayAct
	// To is the new name; empty: forget it.
	To string `json:"to,omitempty"`
	// DryRun only returns what would be done.
	DryRun bool `json:"dry_run,omitempty"`
}

// MoveStep is how many keys one step has changed.
type MoveStep struct {
	Keys int64 `json:"keys"`
}

// Moved is what a renamed or forgotten gateway had, or would have: "gateway rename -o json".
type Moved struct {
	desk.Departure
	// What is "rename up to stripe-eu" or "forget up", and Text adds the jobs and their money.
	What string `json:"what"`
	Text string `json:"text"`
}

// Move renames or forgets a gateway.
type Move = Op[MoveOf, MoveStep, Moved]

// The acts.
var (
	Rename = &Move{About{Name: "renameGateway", Need: roles.Administer, Whole: true, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/rename", Kind: Long, Act: true, NotFound: "unknown_gateway", Commands: []string{"gateway rename"}},
		func(ctx context.Context, h *Here, q MoveOf, out Out[MoveStep]) (v Moved, err error) {
			if q.To == "" {
				return v, usage("name it in to", "the new name is missing")
			}
			return q.move(ctx, h, "rename", out)
		}}
	Forget = &Move{About{Name: "forgetGateway", Need: roles.Administer, Whole: true, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/forget", Kind: Long, Act: true, NotFound: "unknown_gateway", Commands: []string{"gateway forget"}},
		func(ctx context.Context, h *Here, q MoveOf, out Out[MoveStep]) (v Moved, err error) {
			if q.To != "" {
				return v, usage("leave to out", "a gateway that is forgotten gets no name")
			}
			return q.move(ctx, h, "forget", out)
		}}
)

func (q MoveOf) move(ctx context.Context, h *Here, verb string, out Out[MoveStep]) (v Moved, err error) {
	by, err := q.acts(h, verb)
	if err != nil {
		return v, err
	}
	var to config.Gateway
	if q.To != "" {
		var known bool
		if to, known = h.Config.Gateway(q.To); !known {
			return v, dispatch.NoGateway(h.Config, q.To)
		}
	}
	at, err := h.At(ctx, nil)
	if err != nil {
		return v, err
	}
	d, err := at.Depart(ctx, q.Gateway, to)
	if err == nil {
		err = d.HeldBack()
	}
	if err != nil {
		return v, err
	}
	if !q.DryRun {
		err = d.Do(ctx, by, func(keys int64) { _ = out.line(MoveStep{keys}) }) // if the client has gone, ctx has ended
	}
	return Moved{*d, d.What(), d.Text()}, err
}

// AllBrakes is the state of gateways' money brakes.
type AllBrakes struct {
	Gateways []desk.Brakes `json:"gateways"`
}

// Brakes returns the state of the money brakes.
var Brakes = &Op[At, None, AllBrakes]{About{Name: "listBrakes", Need: roles.View, Method: http.MethodGet, Path: "/v1/brakes", Commands: []string{"brake show"}},
	at(func(ctx context.Context, d *desk.Desk, q At, _ Out[None]) (v AllBrakes, err error) {
		v.Gateways = make([]desk.Brakes, len(d.Gateways))
		for i, g := range d.Gateways {
			if v.Gateways[i], err = g.Brakes(ctx); err != nil {
				return v, err
			}
		}
		return v, nil
	})}

// LiftOf says for how long to lift a gateway's brakes.
type LiftOf struct {
	GatewayAct
	// For is the duration: 2h. 0: end the lift.
	For string `json:"for"`
	// Lost says that someone has asked the gateway what was called before Redis lost data, so that limits no longer
	// wait for that.
	Lost bool `json:"lost,omitempty"`
}

// LiftBrakes allows, for a time, calls for which no money limit has room.
var LiftBrakes = &Op[LiftOf, None, desk.Brakes]{About{Name: "liftBrakes", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/brakes/lift", Act: true, Commands: []string{"brake lift"}},
	func(ctx context.Context, h *Here, q LiftOf, _ Out[None]) (v desk.Brakes, err error) {
		d, wrong := job.ReadDuration(q.For)
		if wrong != "" {
			return v, usage("write 2h or 30m; 0 has them be in force at once", fmt.Sprintf("brakes are lifted for a time, and %.40q is none", q.For))
		}
		g, by, err := q.at(ctx, h, "brake lift")
		if err == nil {
			err = g.LiftBrakes(ctx, by, d, q.Lost)
		}
		waits := asked(err)
		if err != nil && waits == nil {
			return v, err
		}
		v, err = g.Brakes(ctx)
		v.Request = waits
		return v, err
	}}
