package desk

import (
	"fmt"
	"strings"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/dispatch"
	"spillway/internal/job"
)

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
