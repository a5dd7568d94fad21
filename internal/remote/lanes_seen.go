package remote

import (
	"context"
	"fmt"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/roles"
)

// LanesOf says which lanes of a gateway to list.
type LanesOf struct {
	Gateway string `json:"-" path:"gateway"`
	// Top is how many, those with the most jobs first, 1 to 1,000. 0: 20.
	Top int `json:"top,omitempty"`
	// Throttled leaves out lanes that may be called.
	Throttled bool `json:"throttled,omitempty"`
	// Glance reads at most 5,000 lanes, for displays that are refreshed often.
	Glance bool `json:"glance,omitempty"`
}

// Lanes lists the lanes of a gateway with the most jobs.
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

// OneLane names a lane of a gateway. It is empty for jobs without a lane.
type OneLane struct {
	Gateway string `json:"-" path:"gateway"`
	Lane    string `json:"lane,omitempty"`
}

// Lane returns everything known of one lane.
var Lane = &Op[OneLane, None, desk.LaneShown]{About{Name: "getLane", Need: roles.View, Method: http.MethodGet, Path: "/v1/gateways/{gateway}/lane", Commands: []string{"lane show"}},
	func(ctx context.Context, h *Here, q OneLane, _ Out[None]) (v desk.LaneShown, err error) {
		g, err := h.one(ctx, q.Gateway)
		if err != nil {
			return v, err
		}
		return g.LookAtLane(ctx, q.Lane)
	}}
