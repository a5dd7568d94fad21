package client

import "context"

// LaneSettings is what holds for one lane of a gateway.
type LaneSettings struct {
	Gateway string   `json:"gateway"`
	Lane    string   `json:"lane"`   // empty: the jobs that have none
	Limits  []string `json:"limits"` // in force, such as 5/s; none: it has the gateway's alone
	Weight  int64    `json:"weight"` // its share beside other lanes with jobs, 1 to 1000
	Paused  bool     `json:"paused"`
	SetLive bool     `json:"set_live"` // limits or weight are its own
	// File and FileWeight are those of all lanes, as the configuration has them.
	File       []string `json:"file"`
	FileWeight int64    `json:"file_weight"`
}

type laneAct struct {
	Lane string `json:"lane"`
	actor
}

type setLane struct {
	Lane   string   `json:"lane"`
	Limits []string `json:"limits,omitempty"`
	Weight int64    `json:"weight,omitempty"`
	actor
}

// SetLane gives a lane limits and a weight of its own, until ResetLane. No limits, and a weight of zero, stay as they are; it is an error to name neither.
func (c *Client) SetLane(ctx context.Context, gateway, lane string, limits []string, weight int64, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, setLane{lane, limits, weight, actor(by)}, "v1", "gateways", gateway, "lanes", "set")
}

// ResetLane has a lane have the limits and the weight of all lanes again. A pause goes on.
func (c *Client) ResetLane(ctx context.Context, gateway, lane string, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, laneAct{lane, actor(by)}, "v1", "gateways", gateway, "lanes", "reset")
}

// PauseLane has the jobs of a lane wait until ResumeLane.
func (c *Client) PauseLane(ctx context.Context, gateway, lane string, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, laneAct{lane, actor(by)}, "v1", "gateways", gateway, "lanes", "pause")
}

// ResumeLane lets the jobs of a paused lane be called again.
func (c *Client) ResumeLane(ctx context.Context, gateway, lane string, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, laneAct{lane, actor(by)}, "v1", "gateways", gateway, "lanes", "resume")
}

// SteeredRoute is a route that was paused or resumed.
type SteeredRoute struct {
	Gateway string `json:"gateway"`
	Route   string `json:"route"`
	Done    string `json:"done"` // paused or resumed
}

type routeAct struct {
	Route string `json:"route"`
	actor
}

// PauseRoute has the jobs of a route wait until ResumeRoute. It takes a gateway with lanes, or with a route that has limits.
func (c *Client) PauseRoute(ctx context.Context, gateway, route string, by Act) (SteeredRoute, error) {
	return act[SteeredRoute](ctx, c, routeAct{route, actor(by)}, "v1", "gateways", gateway, "routes", "pause")
}

// ResumeRoute lets the jobs of a paused route be called again.
func (c *Client) ResumeRoute(ctx context.Context, gateway, route string, by Act) (SteeredRoute, error) {
	return act[SteeredRoute](ctx, c, routeAct{route, actor(by)}, "v1", "gateways", gateway, "routes", "resume")
}
