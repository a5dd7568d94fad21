package remote

import (
	"context"
	"fmt"
	"net/http"

	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/roles"
)

// LaneOf names a lane of a gateway.
type LaneOf struct {
	GatewayAct
	// Lane is empty for jobs without a lane.
	Lane string `json:"lane"`
}

// LaneTo says what to set for a lane. Missing settings are not changed.
type LaneTo struct {
	LaneOf
	Limits []string `json:"limits,omitempty"`
	// Weight is from 1 to 1000.
	Weight int64 `json:"weight,omitempty"`
	// MaxInFlight is the most of its calls in flight, over all processes; zero: any number.
	MaxInFlight *int64 `json:"max_in_flight,omitempty"`
}

// SteeringLane changes a lane.
type SteeringLane = Op[LaneOf, None, desk.LaneSettings]

// The acts on lanes.
var (
	SetLane = &Op[LaneTo, None, desk.LaneSettings]{About{Name: "setLane", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/lanes/set", Act: true, Commands: []string{"lane set"}},
		func(ctx context.Context, h *Here, q LaneTo, _ Out[None]) (v desk.LaneSettings, err error) {
			to := make([]job.Limit, len(q.Limits))
			for i, text := range q.Limits {
				if to[i], err = job.ParseLimit(text); err != nil {
					return v, usage(`write them like ["100/s", "5000/m"]`, err.Error())
				}
			}
			if len(to) == 0 && q.Weight == 0 && q.MaxInFlight == nil {
				return v, usage(`write them like {"limits": ["50/s"], "weight": 5}`, "neither limits nor a weight are named")
			}
			if q.MaxInFlight != nil && *q.MaxInFlight < 0 { // which would reset it
				return v, usage("give 0 for any number, or reset the lane", "max_in_flight is below 0")
			}
			return q.change(ctx, h, func(g *desk.Gateway, by desk.By) error {
				return g.SetLane(ctx, by, q.Lane, to, q.Weight, q.MaxInFlight)
			})
		}}
	ResetLane = laneAct("reset", (*desk.Gateway).ResetLane)
	PauseLane = laneAct("pause", func(g *desk.Gateway, ctx context.Context, by desk.By, lane string) error {
		return g.PauseLane(ctx, by, lane, true)
	})
	ResumeLane = laneAct("resume", func(g *desk.Gateway, ctx context.Context, by desk.By, lane string) error {
		return g.PauseLane(ctx, by, lane, false)
	})
)

func laneAct(verb string, do func(*desk.Gateway, context.Context, desk.By, string) error) *SteeringLane {
	return &SteeringLane{About{Name: verb + "Lane", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/lanes/" + verb, Act: true, Commands: []string{"lane " + verb}},
		func(ctx context.Context, h *Here, q LaneOf, _ Out[None]) (desk.LaneSettings, error) {
			return q.change(ctx, h, func(g *desk.Gateway, by desk.By) error { return do(g, ctx, by, q.Lane) })
		}}
}

func (q LaneOf) change(ctx context.Context, h *Here, do func(*desk.Gateway, desk.By) error) (v desk.LaneSettings, err error) {
	g, by, err := q.at(ctx, h, "")
	if err == nil {
		err = do(g, by)
	}
	if err != nil {
		return v, err
	}
	return g.Lane(ctx, q.Lane)
}

// RouteOf names a route of a gateway.
type RouteOf struct {
	GatewayAct
	Route string `json:"route"`
}

// SteeredRoute is the result of pausing or resuming a route.
type SteeredRoute struct {
	Gateway string `json:"gateway"`
	Route   string `json:"route"`
	Done    string `json:"done"` // paused or resumed
}

// SteeringRoute pauses or resumes a route.
type SteeringRoute = Op[RouteOf, None, SteeredRoute]

// The acts.
var (
	PauseRoute  = routeAct("pause", true, Paused)
	ResumeRoute = routeAct("resume", false, Resumed)
)

func routeAct(verb string, pause bool, done string) *SteeringRoute {
	return &SteeringRoute{About{Name: verb + "Route", Need: roles.Operate, Method: http.MethodPost, Path: "/v1/gateways/{gateway}/routes/" + verb, Act: true, Commands: []string{"route " + verb}},
		func(ctx context.Context, h *Here, q RouteOf, _ Out[None]) (v SteeredRoute, err error) {
			g, by, err := q.at(ctx, h, "")
			if err == nil {
				err = g.PauseRoute(ctx, by, q.Route, pause)
			}
			if err != nil {
				return v, err
			}
			return SteeredRoute{g.Name, q.Route, done}, nil
		}}
}

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
