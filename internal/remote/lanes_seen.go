package remote

import (
	"context"
	"fmt"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// LanesOf says which lanes of a gateway are listed.
type LanesOf struct {
	Gateway string `json:"-" path:"gateway"`
	// Top is how many: those with most jobs, 1 to 1,000. 0: 20.
	Top int `json:"top,omitempty"`
	// Throttled leaves out those that may be called.
	Throttled bool `json:"throttled,omitempty"`
	// Glance looks at 5,000 lanes at most, for what is drawn again and again.
	Glance bool `json:"glance,omitempty"`
}

// Lanes lists the lanes of a gateway with most jobs.
var Lanes = &Op[LanesOf, None, desk.Lanes]{About{Name: "listLanes", Need: roles.View, Method: http.MethodGet, Path: "/v1/gateways/{gateway}/lanes", Commands: []string{"lane list"}},
	func(ctx context.Context, h *Here, q LanesOf, _ Out[None]) (v desk.Lanes, err error) {
		if q.Top < 0 || q.Top > desk.LanesMost {
			return v, usage("", fmt.Sprintf("top is not a number from 1 to %d", desk.LanesMost))
		}
		g, err := h.one(ctx, q.Gateway)
		if err != nil {
			return v, err
		}
		return g.LargestLanes(ctx, desk.LaneQuery{Top: q.Top, Throttled: q.Throttled, Glance: q.Glance})
	}}

// OneLane names a lane of a gateway. It is empty for the jobs that have none.
type OneLane struct {
	Gateway string `json:"-" path:"gateway"`
	Lane    string `json:"lane,omitempty"`
}

// Lane is all that is known of one lane.
var Lane = &Op[OneLane, None, desk.LaneShown]{About{Name: "getLane", Need: roles.View, Method: http.MethodGet, Path: "/v1/gateways/{gateway}/lane", Commands: []string{"lane show"}},
	func(ctx context.Context, h *Here, q OneLane, _ Out[None]) (v desk.LaneShown, err error) {
		g, err := h.one(ctx, q.Gateway)
		if err != nil {
			return v, err
		}
		return g.LookAtLane(ctx, q.Lane)
	}}
