package client

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// LaneSettings are the settings of one lane of a gateway.
type LaneSettings struct {
	Gateway string   `json:"gateway"`
	Lane    string   `json:"lane"`   // empty: the jobs that have none
	Limits  []string `json:"limits"` // in force, such as 5/s; none: it has the gateway's alone
	Weight  int64    `json:"weight"` // its share beside other lanes with jobs, 1 to 1000
	Paused  bool     `json:"paused"`
	SetLive bool     `json:"set_live"` // limits, weight or cap are its own
	// MaxInFlight is how many calls may be under way, over all processes; zero: any number.
	MaxInFlight int64 `json:"max_in_flight"`
	// The fields that begin with File are the settings of all lanes in the configuration.
	File            []string `json:"file"`
	FileWeight      int64    `json:"file_weight"`
	FileMaxInFlight int64    `json:"file_max_in_flight"`
}

type laneAct struct {
	Lane string `json:"lane"`
	actor
}

type setLane struct {
	Lane   string   `json:"lane"`
	Limits []string `json:"limits,omitempty"`
	Weight int64    `json:"weight,omitempty"`
	Most   *int64   `json:"max_in_flight,omitempty"`
	actor
}

// SetLane gives a lane limits and a weight of its own, until ResetLane. Without limits, or with a weight of zero, that setting stays as it is. It is an error to set neither.
func (c *Client) SetLane(ctx context.Context, gateway, lane string, limits []string, weight int64, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, setLane{lane, limits, weight, nil, actor(by)}, "v1", "gateways", gateway, "lanes", "set")
}

// CapLane sets how many calls of a lane may be under way, over all processes, until ResetLane. Zero means any number, also if the configuration has a cap for all lanes.
func (c *Client) CapLane(ctx context.Context, gateway, lane string, calls int64, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, setLane{lane, nil, 0, &calls, actor(by)}, "v1", "gateways", gateway, "lanes", "set")
}

// ResetLane gives a lane the limits, the weight and the cap of all lanes again. A pause stays.
func (c *Client) ResetLane(ctx context.Context, gateway, lane string, by Act) (LaneSettings, error) {
	return act[LaneSettings](ctx, c, laneAct{lane, actor(by)}, "v1", "gateways", gateway, "lanes", "reset")
}

// PauseLane makes the jobs of a lane wait until ResumeLane.
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

// PauseRoute makes the jobs of a route wait until ResumeRoute. It needs a gateway with lanes, or with a route that has limits.
func (c *Client) PauseRoute(ctx context.Context, gateway, route string, by Act) (SteeredRoute, error) {
	return act[SteeredRoute](ctx, c, routeAct{route, actor(by)}, "v1", "gateways", gateway, "routes", "pause")
}

// ResumeRoute lets the jobs of a paused route be called again.
func (c *Client) ResumeRoute(ctx context.Context, gateway, route string, by Act) (SteeredRoute, error) {
	return act[SteeredRoute](ctx, c, routeAct{route, actor(by)}, "v1", "gateways", gateway, "routes", "resume")
}

// RouteStatus is the state of a route of a gateway.
type RouteStatus struct {
	Route  string   `json:"route"`  // empty: the gateway's own request
	Queued *int64   `json:"queued"` // jobs in the queue that take it; nil: nobody counts them
	Limits []string `json:"limits"` // besides the gateway's
	Paused bool     `json:"paused,omitempty"`
	// HeldUntil is when a hold of this route alone ends. If it is nil and there is a HoldReason, the hold is over, and one call is sent first.
	HeldUntil  *time.Time `json:"held_until,omitempty"`
	HoldReason string     `json:"hold_reason,omitempty"`
}

// ClassStatus is the state of a class of a gateway.
type ClassStatus struct {
	Class        string `json:"class"`
	Queued       int64  `json:"queued"`        // jobs of it in the queue; where the gateway has no lanes, without those that were called before
	FloorPercent int64  `json:"floor_percent"` // of the calls that it has at least; 0: none
}

// LanesStatus is the state of all lanes of a gateway together.
type LanesStatus struct {
	WithJobs  int64    `json:"with_jobs"` // lanes with jobs in the queue
	Throttled int64    `json:"throttled"` // of those: they have no permit before some moment
	Queued    int64    `json:"queued"`    // jobs in lanes
	Unsorted  int64    `json:"unsorted"`  // jobs in the queue that do not stand in lanes yet
	Limits    []string `json:"limits"`    // of each lane
}

// Lanes has the lanes of a gateway with most jobs, the one with most first.
type Lanes struct {
	Gateway string `json:"gateway"`
	LanesStatus
	Exact    bool      `json:"exact"`     // all lanes with jobs were looked at; else there may be larger ones
	LookedAt int64     `json:"looked_at"` // lanes that were looked at
	Lanes    []LaneRow `json:"lanes"`
}

// LaneRow is a lane with jobs in the queue.
type LaneRow struct {
	Lane           string     `json:"lane"` // empty: the jobs that have no lane
	Queued         int64      `json:"queued"`
	InFlight       *int64     `json:"in_flight"`
	ThrottledUntil *time.Time `json:"throttled_until"` // nil: it may be called
	Paused         bool       `json:"paused"`
	HeldUntil      *time.Time `json:"held_until,omitempty"`  // when a hold of it alone ends; nil: it has none
	HoldReason     string     `json:"hold_reason,omitempty"` // why; without HeldUntil the hold is over, and one call goes ahead
	Limits         []string   `json:"limits"`
	Weight         int64      `json:"weight"`
	SharePerSecond *float64   `json:"share_per_second"` // about how many calls it has while all lanes with jobs want as many as they can have; nil: nobody can say
}

// LaneView is everything about one lane.
type LaneView struct {
	Gateway string `json:"gateway"`
	LaneRow
	FreeAt *time.Time `json:"free_at"` // when its own limits have a permit; nil: they have one
	Used   []LaneUse  `json:"used"`
	Flows  []LaneFlow `json:"flows"`
	Why    string     `json:"why"` // what its next job waits for, for a person
}

// LaneUse is what a lane has used of one of its limits.
type LaneUse struct {
	Limit string `json:"limit"`
	Used  int64  `json:"used"` // units that are not free again
}

// LaneFlow counts the jobs of a lane of one class on one route.
type LaneFlow struct {
	Class  string   `json:"class,omitempty"` // empty: the gateway has no classes
	Route  string   `json:"route,omitempty"` // empty: the gateway's own request
	Queued int64    `json:"queued"`
	Next   []string `json:"next"` // jobs that are next, one of them first
}

// LaneQuery says which lanes are listed.
type LaneQuery struct {
	Top       int  // how many, 1 to 1000; 0 is 20
	Throttled bool // leaves out those that may be called
	Glance    bool // examines at most 5,000 lanes, for repeated queries
}

// Lanes returns the lanes of a gateway with most jobs.
func (c *Client) Lanes(ctx context.Context, gateway string, q LaneQuery) (Lanes, error) {
	query := url.Values{}
	if q.Top != 0 {
		query.Set("top", strconv.Itoa(q.Top))
	}
	if q.Throttled {
		query.Set("throttled", "true")
	}
	if q.Glance {
		query.Set("glance", "true")
	}
	return get[Lanes](ctx, c, query, "v1", "gateways", gateway, "lanes")
}

// Lane returns everything about a lane. The empty lane is that of jobs without a lane.
func (c *Client) Lane(ctx context.Context, gateway, lane string) (LaneView, error) {
	return get[LaneView](ctx, c, url.Values{"lane": {lane}}, "v1", "gateways", gateway, "lane")
}
