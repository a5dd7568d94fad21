package desk

import (
	"context"
	"fmt"
	"strings"

	"spillway/internal/dispatch"
	"spillway/internal/job"
)

// LaneSettings are the settings in force for one lane: "lane set -o json".
type LaneSettings struct {
	Gateway string `json:"gateway"`
	// Lane is empty for jobs without a lane.
	Lane   string   `json:"lane"`
	Limits []string `json:"limits"`
	Weight int64    `json:"weight"`
	Paused bool     `json:"paused"`
	// MaxInFlight is the most calls in flight over all processes; zero: any number.
	MaxInFlight int64 `json:"max_in_flight"`
	// SetLive says that limits, weight or cap are the lane's own. Fields that begin with File are the settings
	// of all lanes.
	SetLive         bool     `json:"set_live"`
	File            []string `json:"file"`
	FileWeight      int64    `json:"file_weight"`
	FileMaxInFlight int64    `json:"file_max_in_flight"`
}

// Name returns the lane's name for a person.
func (l LaneSettings) Name() string { return laneText(l.Lane) }

// Text returns the settings for a person.
func (l LaneSettings) Text() string {
	limits := strings.Join(l.Limits, " ")
	if limits == "" {
		limits = "no limits of its own"
	}
	text := fmt.Sprintf("%s, weight %d", limits, l.Weight)
	if l.MaxInFlight > 0 {
		text += fmt.Sprintf(", %d in flight at most", l.MaxInFlight)
	}
	if l.Paused {
		text += ", paused"
	}
	return text
}

// Lane returns the settings in force for a lane.
func (g *Gateway) Lane(ctx context.Context, lane string) (LaneSettings, error) {
	now, live, err := dispatch.LaneNow(ctx, g.redis, g.Gateway, lane)
	if err != nil {
		return LaneSettings{}, err
	}
	return LaneSettings{Gateway: g.Name, Lane: lane, Limits: limitTexts(now.Limits), Weight: now.Weight, Paused: now.Paused, MaxInFlight: *now.MaxInFlight,
		SetLive: len(live.Limits) > 0 || live.Weight > 0 || live.MaxInFlight != nil, File: limitTexts(g.Lanes.Limits), FileWeight: g.Lanes.Weight, FileMaxInFlight: g.Lanes.MaxInFlight}, nil
}

// SetLane gives a lane its own limits, weight and cap on calls in flight, in every process at once. Empty
// limits, a weight of zero, and a nil cap are not changed. An error with code usage says that they are not
// supported.
func (g *Gateway) SetLane(ctx context.Context, by By, lane string, limits []job.Limit, weight int64, most *int64) error {
	to, what := dispatch.LaneChange{}, "lane set "+laneText(lane)
	if len(limits) > 0 {
		to.Limits = &limits
		what += " " + LimitsText(limits)
	}
	if weight != 0 {
		to.Weight = &weight
		what += fmt.Sprintf(" weight %d", weight)
	}
	if most != nil {
		to.MaxInFlight = most
		what += fmt.Sprintf(" in flight %d", *most)
	}
	return g.steerLane(ctx, by, what, lane, to)
}

// ResetLane resets a lane's limits, weight and cap to those of all lanes. A pause continues.
func (g *Gateway) ResetLane(ctx context.Context, by By, lane string) error {
	none, usual, noCap := []job.Limit{}, int64(0), int64(-1)
	return g.steerLane(ctx, by, "lane reset "+laneText(lane), lane, dispatch.LaneChange{Limits: &none, Weight: &usual, MaxInFlight: &noCap})
}

// PauseLane stops the calls of a lane's jobs, or lets them continue.
func (g *Gateway) PauseLane(ctx context.Context, by By, lane string, paused bool) error {
	return g.steerLane(ctx, by, "lane "+pauseVerb(paused)+" "+laneText(lane), lane, dispatch.LaneChange{Paused: &paused})
}

// PauseRoute stops the calls of a route's jobs, or lets them continue.
func (g *Gateway) PauseRoute(ctx context.Context, by By, route string, paused bool) error {
	if err := dispatch.CheckRoute(g.Gateway, route); err != nil {
		return err
	}
	return g.steer(ctx, by, "route "+pauseVerb(paused)+" "+route, func(ctx context.Context) error { return dispatch.PauseRoute(ctx, g.redis, g.Gateway, route, paused) })
}

func (g *Gateway) steerLane(ctx context.Context, by By, what, lane string, to dispatch.LaneChange) error {
	if err := dispatch.CheckLane(g.Gateway, lane, to); err != nil {
		return err
	}
	return g.steer(ctx, by, what, func(ctx context.Context) error { return dispatch.SetLane(ctx, g.redis, g.Gateway, lane, to) })
}

func pauseVerb(paused bool) string {
	if paused {
		return "pause"
	}
	return "resume"
}

// laneText returns a lane as written in the audit trail.
func laneText(lane string) string {
	if lane == "" {
		return `""`
	}
	return lane
}
