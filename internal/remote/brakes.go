package remote

import (
	"context"
	"fmt"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// AllBrakes is the state of gateways' money brakes.
type AllBrakes struct {
	Gateways []desk.Brakes `json:"gateways"`
}

// Brakes returns the state of the money brakes.
var Brakes = &Op[At, None, AllBrakes]{About{Name: "listBrakes", Need: roles.View, Method: http.MethodGet, Path: "/v1/brakes", Commands: []string{"brake show"}},
	func(ctx context.Context, h *Here, q At, _ Out[None]) (v AllBrakes, err error) {
		d, err := h.At(ctx, q.Gateways)
		if err != nil {
			return v, err
		}
		v.Gateways = make([]desk.Brakes, len(d.Gateways))
		for i, g := range d.Gateways {
			if v.Gateways[i], err = g.Brakes(ctx); err != nil {
				return v, err
			}
		}
		return v, nil
	}}

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
