package desk

import (
	"context"
	"fmt"
	"strings"
	"time"

	"spillway/internal/bucket"
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

// RouteStatus is the state of a gateway's route.
type RouteStatus struct {
	Route string `json:"route"` // empty: the gateway's own request
	// Queued is how many of its jobs are in the queue; nil if not counted.
	Queued *int64   `json:"queued"`
	Limits []string `json:"limits"` // besides the gateway's
	Paused bool     `json:"paused,omitempty"`
	// HeldUntil is when its own hold ends. If it is nil and HoldReason is set, the hold is over and a probe
	// goes first.
	HeldUntil  *time.Time `json:"held_until,omitempty"`
	HoldReason string     `json:"hold_reason,omitempty"`
}

// ClassStatus is the state of a gateway's class.
type ClassStatus struct {
	Class string `json:"class"`
	// Queued is how many of its jobs are in the queue. Without lanes, it omits jobs that were called before.
	Queued int64 `json:"queued"`
	Floor  int64 `json:"floor_percent"` // least share of the calls; 0: none
}

// LanesStatus is the state of a gateway's lanes together.
type LanesStatus struct {
	Busy      int64    `json:"with_jobs"` // with jobs in the queue
	Throttled int64    `json:"throttled"` // those of them without a permit now
	Queued    int64    `json:"queued"`    // jobs in lanes
	Unsorted  int64    `json:"unsorted"`  // jobs in the queue that are not in lanes yet
	Limits    []string `json:"limits"`    // of each lane
}

// parts sets how the queue is divided.
func (s *Status) parts(p dispatch.Parts, ofLanes []job.Limit) {
	for _, r := range p.Routes {
		one := RouteStatus{Route: r.Name, Limits: limitTexts(r.Limits), Paused: r.Paused}
		one.HeldUntil, one.HoldReason = heldAlone(r.Hold, s.Glance.Now)
		if r.Queued >= 0 {
			one.Queued = new(r.Queued)
		}
		s.Routes = append(s.Routes, one)
	}
	for _, c := range p.Classes {
		s.Classes = append(s.Classes, ClassStatus{c.Name, c.Queued, c.Floor})
	}
	if t := p.Lanes; t != nil {
		s.Lanes = &LanesStatus{t.Busy, t.Throttled, t.Jobs, p.Unsorted, limitTexts(ofLanes)}
	}
}

// heldAlone returns until when a route or lane is held on its own, and why. A reason without an end means that
// the hold is over and a probe goes first.
func heldAlone(h bucket.Standing, now time.Time) (until *time.Time, why string) {
	switch {
	case h.HeldUntil.After(now):
		return when(h.HeldUntil), h.Reason
	case h.Probing:
		return nil, h.Reason
	}
	return nil, ""
}

// aloneText says for a person what holds back a route or lane alone; empty if nothing does.
func aloneText(paused bool, until *time.Time, why string) string {
	switch {
	case paused:
		return "paused"
	case until != nil:
		return "held until " + job.Moment(*until) + ": " + why
	case why != "":
		return "hold over, one call goes ahead: " + why
	}
	return ""
}

// PartsText says for a person how the queue is divided; empty if it is not.
func (s Status) PartsText() string {
	var parts []string
	if l := s.Lanes; l != nil && (len(l.Limits) > 0 || l.Busy > 1) {
		text := fmt.Sprintf("lanes with jobs: %s, throttled: %s", job.CountText(l.Busy), job.CountText(l.Throttled))
		if len(l.Limits) > 0 {
			text += fmt.Sprintf(" (%s each)", strings.Join(l.Limits, " "))
		}
		parts = append(parts, text)
	}
	if len(s.Routes) > 0 {
		parts = append(parts, "routes: "+s.routesText())
	}
	if len(s.Classes) > 0 {
		all := make([]string, len(s.Classes))
		for i, c := range s.Classes {
			all[i] = c.Class + " " + job.CountText(c.Queued)
		}
		parts = append(parts, "classes: "+strings.Join(all, ", "))
	}
	if l := s.Lanes; l != nil && l.Unsorted > 0 {
		parts = append(parts, job.JobsText(l.Unsorted)+" in no lane yet")
	}
	return strings.Join(parts, "; ")
}

func (s Status) routesText() string {
	all := make([]string, len(s.Routes))
	for i, r := range s.Routes {
		all[i] = r.Name()
		if r.Queued != nil {
			all[i] += " " + job.CountText(*r.Queued)
		}
		if len(r.Limits) > 0 {
			all[i] += " (" + strings.Join(r.Limits, " ") + ")"
		}
		if text := r.HoldText(); text != "" {
			all[i] += " " + text
		}
	}
	return strings.Join(all, ", ")
}

// Name returns the route's name for a person.
func (r RouteStatus) Name() string {
	if r.Route == "" {
		return "(none)"
	}
	return r.Route
}

// HoldText says for a person what holds back this route alone; empty if nothing does. Its limits may.
func (r RouteStatus) HoldText() string { return aloneText(r.Paused, r.HeldUntil, r.HoldReason) }
