package desk

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

const (
	// LanesShown is the default length of a list of lanes.
	LanesShown = 20
	// LanesMost is the longest list of lanes.
	LanesMost = 1000
	// lanesLooked is how many lanes are read for a list on request: about a second of Redis's time, 500 at
	// once.
	lanesLooked = 200_000
	// lanesGlanced is how many are read for a display that is refreshed every few seconds.
	lanesGlanced = 5_000
)

// LaneQuery says which lanes to list.
type LaneQuery struct {
	// Top is how many, those with the most jobs first. 0: LanesShown.
	Top int
	// Throttled leaves out lanes that may be called.
	Throttled bool
	// Glance reads fewer lanes, for displays that are refreshed often.
	Glance bool
}

// Lanes are the lanes of a gateway with the most jobs: "lane list -o json".
type Lanes struct {
	Gateway string `json:"gateway"`
	LanesStatus
	// Exact says that all lanes with jobs were read. If it is false, there may be larger ones.
	Exact  bool      `json:"exact"`
	Looked int64     `json:"looked_at"`
	Lanes  []LaneRow `json:"lanes"` // most jobs first
}

// LaneRow is a lane with jobs in the queue.
type LaneRow struct {
	Lane     string     `json:"lane"`   // empty: jobs without a lane
	Queued   int64      `json:"queued"` // its jobs in the queue
	InFlight *int64     `json:"in_flight"`
	Until    *time.Time `json:"throttled_until"` // nil: it may be called
	Paused   bool       `json:"paused"`          // until lane resume
	// HeldUntil is when its own hold ends. If it is nil and HoldReason is set, the hold is over and a probe
	// goes first.
	HeldUntil  *time.Time `json:"held_until,omitempty"`
	HoldReason string     `json:"hold_reason,omitempty"`
	Limits     []string   `json:"limits"`
	Weight     int64      `json:"weight"`
	// Share is about how many calls a second it gets while every lane with jobs uses its full share; nil if
	// unknown.
	Share *float64 `json:"share_per_second"`
}

// Name returns the lane's name for a person.
func (l LaneRow) Name() string { return laneText(l.Lane) }

// HoldText says for a person what holds back this lane alone: a pause or a hold; empty if neither does. Its
// limits may.
func (l LaneRow) HoldText() string { return aloneText(l.Paused, l.HeldUntil, l.HoldReason) }

// noLanes returns the error for a gateway without lanes.
func (g *Gateway) noLanes() error {
	return usage("give it lanes in the file, like lanes: {key: payload.account, limits: [5/s]}, or name another gateway", "gateway %s has no lanes", g.Name)
}

// LargestLanes returns the lanes with the most jobs. An error with code usage says that the gateway has none.
func (g *Gateway) LargestLanes(ctx context.Context, q LaneQuery) (v Lanes, err error) {
	if !dispatch.Laned(g.Gateway) {
		return v, g.noLanes()
	}
	s, err := g.Status(ctx)
	if err != nil {
		return v, err
	}
	return g.lanesOf(ctx, s, q)
}

// GlancedLanes returns the lanes with the most jobs among a limited number, for displays that are refreshed
// often. s is the gateway's status. It returns nil if the gateway has no lanes.
func (g *Gateway) GlancedLanes(ctx context.Context, s Status, top int) (*Lanes, error) {
	if s.Lanes == nil || g.Lanes == nil {
		return nil, nil
	}
	v, err := g.lanesOf(ctx, s, LaneQuery{Top: top, Glance: true})
	return &v, err
}

func (g *Gateway) lanesOf(ctx context.Context, s Status, q LaneQuery) (v Lanes, err error) {
	v = Lanes{Gateway: g.Name, LanesStatus: *s.Lanes, Lanes: []LaneRow{}}
	var meant func(bucket.LaneSize) bool
	if q.Throttled {
		meant = func(l bucket.LaneSize) bool { return l.Until.After(s.Glance.Now) }
	}
	most := lanesLooked
	if q.Glance {
		most = lanesGlanced
	}
	largest, err := bucket.Largest(ctx, g.redis, g.Name, cmp.Or(q.Top, LanesShown), most, meant)
	if err != nil {
		return v, err
	}
	v.Exact, v.Looked = largest.All, largest.Looked
	flying, err := g.Books.InFlightByLane(ctx)
	if err != nil {
		return v, err
	}
	if v.Lanes, err = g.rows(ctx, largest.Lanes, s, flying); err != nil {
		return v, err
	}
	return v, g.heldLanes(ctx, v.Lanes, s.Glance.Now)
}

// heldLanes sets which lanes have a hold of their own.
func (g *Gateway) heldLanes(ctx context.Context, rows []LaneRow, now time.Time) error {
	var names []string
	var at []int
	for i, l := range rows {
		if l.Until != nil { // a held lane may not be called
			names, at = append(names, l.Lane), append(at, i)
		}
	}
	holds, err := bucket.HoldsOfLanes(ctx, g.redis, g.Name, names)
	for i, h := range holds {
		rows[at[i]].HeldUntil, rows[at[i]].HoldReason = heldAlone(h, now)
	}
	return err
}

// rows returns lanes with their settings.
func (g *Gateway) rows(ctx context.Context, lanes []bucket.LaneSize, s Status, flying ledger.InFlight) ([]LaneRow, error) {
	names, rows := make([]string, len(lanes)), make([]LaneRow, len(lanes))
	for i, l := range lanes {
		names[i] = l.Lane
	}
	own, err := bucket.AllOverridden(ctx, g.redis, g.Name, redisdb.OfLane, names)
	if err != nil {
		return nil, err
	}
	usual := config.Lanes{Weight: 1}
	if g.Lanes != nil {
		usual = *g.Lanes
	}
	weights := s.Lanes.Busy * usual.Weight
	for i, o := range own {
		if o.Weight > 0 && lanes[i].Jobs > 0 {
			weights += o.Weight - usual.Weight
		}
	}
	for i, l := range lanes {
		limits := usual.Limits
		if len(own[i].Limits) > 0 {
			limits = own[i].Limits
		}
		v := LaneRow{Lane: l.Lane, Queued: l.Jobs, Limits: limitTexts(limits), Weight: cmp.Or(own[i].Weight, usual.Weight), Paused: own[i].Paused}
		if l.Until.After(s.Glance.Now) && !v.Paused {
			v.Until = when(l.Until)
		}
		if flying.All {
			v.InFlight = new(flying.Jobs[l.Lane])
		}
		share := job.PerSecond(s.Glance.Limits) * float64(v.Weight) / float64(max(weights, v.Weight))
		if len(limits) > 0 {
			share = min(share, job.PerSecond(limits))
		}
		if share > 0 {
			v.Share = new(share)
		}
		rows[i] = v
	}
	return rows, nil
}

// LaneUse is how much of a limit is used.
type LaneUse struct {
	Limit string `json:"limit"`
	Used  int64  `json:"used"` // units not available again yet
}

// LaneFlow is the jobs of a lane in one class on one route.
type LaneFlow struct {
	Class  string `json:"class,omitempty"` // empty: the gateway has no classes
	Route  string `json:"route,omitempty"` // empty: the gateway's own request
	Queued int64  `json:"queued"`
	// Next is the candidates for the next call: jobs called before alternate with the others.
	Next []string `json:"next"`
}

// LaneShown is everything known of one lane: "lane show -o json".
type LaneShown struct {
	Gateway string `json:"gateway"`
	LaneRow
	// Free is when its own limits have a permit; nil: now.
	Free  *time.Time `json:"free_at"`
	Used  []LaneUse  `json:"used"`
	Flows []LaneFlow `json:"flows"`
	Why   string     `json:"why"` // what its next job waits for, for a person
}

// LookAtLane returns everything known of a lane. A lane without jobs that has used nothing looks the same as
// one that never existed.
func (g *Gateway) LookAtLane(ctx context.Context, name string) (v LaneShown, err error) {
	if g.Lanes == nil {
		return v, g.noLanes()
	}
	s, err := g.Status(ctx)
	if err != nil {
		return v, err
	}
	look, err := dispatch.LookAtLane(ctx, g.redis, g.Gateway, s.Glance, name)
	if err != nil {
		return v, err
	}
	flying, err := g.Books.InFlightByLane(ctx)
	if err != nil {
		return v, err
	}
	rows, err := g.rows(ctx, []bucket.LaneSize{{Lane: name, Jobs: look.Jobs(), Until: look.Until}}, s, flying)
	if err != nil {
		return v, err
	}
	if err := g.heldLanes(ctx, rows, s.Glance.Now); err != nil {
		return v, err
	}
	v = LaneShown{Gateway: g.Name, LaneRow: rows[0], Used: []LaneUse{}, Flows: []LaneFlow{}}
	if look.Ready.After(look.Now) {
		v.Free = when(look.Ready)
	}
	for _, u := range look.Used {
		v.Used = append(v.Used, LaneUse{u.Limit.String(), u.Used})
	}
	for _, f := range look.Flows {
		one := LaneFlow{Class: f.Flow.Class, Route: f.Flow.Route, Queued: f.Jobs, Next: []string{}}
		for _, c := range g.Priority.List() {
			if c.Usual && one.Class == "" {
				one.Class = c.Name
			}
		}
		for _, task := range f.Next {
			if id, _, ok := job.ParseTaskID(task); ok {
				one.Next = append(one.Next, id)
			}
		}
		v.Flows = append(v.Flows, one)
	}
	v.Why = v.why(s, look)
	return v, nil
}

func (v LaneShown) why(s Status, look bucket.LaneLook) string {
	switch {
	case v.Queued == 0:
		return "it has no jobs in the queue"
	case v.Paused:
		return "it is paused: dispatcher lane resume"
	case s.Why() != "":
		return s.Word() + ", " + s.Why()
	case v.HoldReason != "":
		return v.HoldText()
	case v.Free != nil:
		return "its limits have no permit before " + job.Moment(*v.Free)
	case v.Until != nil && look.Dear:
		return "its next job costs more than it has permits for before " + job.Moment(*v.Until)
	case v.Until != nil:
		return "it may not be called before " + job.Moment(*v.Until)
	}
	return fmt.Sprintf("its turn: %s have jobs", lanesText(s.Lanes.Busy))
}

func lanesText(n int64) string {
	if n == 1 {
		return "1 lane"
	}
	return job.CountText(n) + " lanes"
}

// Text returns " of class urgent on route refund".
func (f LaneFlow) Text() (text string) {
	if f.Class != "" {
		text += " of class " + f.Class
	}
	if f.Route != "" {
		text += " on route " + f.Route
	}
	return text
}
