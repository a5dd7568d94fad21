package dispatch

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
)

var (
	gaugeRoute      = gauge("route_queued_jobs", "Jobs in the queue by the route that they take, empty for the gateway's own request. Missing where it has neither lanes nor routes with limits.", "route")
	gaugeRouteHeld  = gauge("route_held_seconds", "How long a route is held alone yet. 0 while it is not. Missing where the gateway has neither lanes nor routes with limits.", "route")
	gaugeRoutePause = gauge("route_paused", "1 while an operator keeps a route back alone; 0 else. Missing as spillway_route_held_seconds is.", "route")
	gaugeClass      = gauge("class_queued_jobs", "Jobs in the queue by class. Where the gateway has no lanes, those that were called before are left out.", "class")
	gaugeLanes      = gauge("lanes_with_jobs", "Lanes with jobs in the queue. Missing, as the rest of lanes, where the gateway has neither lanes nor routes with limits.")
	gaugeThrottled  = gauge("lanes_throttled", "Lanes with jobs in the queue that have no permit before some moment.")
	gaugeInLanes    = gauge("lanes_queued_jobs", "Jobs in the queue that stand in lanes.")
	gaugeLane       = gauge("lane_queued_jobs", "Jobs in the queue of each of the ten lanes with most: rank 1 has most. Their names are no labels: dispatcher lane list has them.", "rank")
	gaugeOtherLanes = gauge("lanes_other_queued_jobs", "Jobs in the queue of all lanes but those ten.")
	gaugeLanesHeld  = gauge("lanes_held", "How many of those ten lanes are held alone: dispatcher lane list says which, and why.")
	gaugeStuck      = gauge("lanes_stuck_seconds", "For how long the next job of one of those ten lanes has waited longer than for three turns, of the one for which that is longest, while calls are made and neither the lane's limits, its route's nor a higher class keep it back. 0 where all go on.")
)

const (
	lanesRanked  = 10   // lanes with series of their own
	lanesScraped = 5000 // lanes that one scrape reads; if there are more, the next scrape continues
)

// laneWatches tracks the largest lanes of each gateway from scrape to scrape.
type laneWatches struct {
	mu sync.Mutex
	by map[string]*laneWatch
}

func (w *laneWatches) of(gateway string) *laneWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]*laneWatch{}
	}
	if w.by[gateway] == nil {
		w.by[gateway] = &laneWatch{}
	}
	return w.by[gateway]
}

// laneWatch tracks the largest lanes of a gateway.
type laneWatch struct {
	mu      sync.Mutex
	at      bucket.LaneCursor
	largest []bucket.LaneSize
	since   map[string]time.Time // by lane: since when its next task has been the same, while nothing held it back
}

// look reads the next part of the lanes, and returns the largest lanes with their current sizes.
func (w *laneWatch) look(ctx context.Context, c redis.UniversalClient, gateway string) (largest []bucket.LaneSize, err error) {
	found := slices.Clone(w.largest)
	if w.at, _, err = bucket.LaneSizes(ctx, c, gateway, w.at, lanesScraped, func(s bucket.LaneSize) {
		if found = append(found, s); len(found) > 50*lanesRanked {
			found = bucket.First(found, 2*lanesRanked) // a lane may be listed twice
		}
	}); err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = s.Lane
	}
	slices.Sort(names)
	if largest, err = bucket.LaneSizesOf(ctx, c, gateway, slices.Compact(names)); err != nil {
		return nil, err
	}
	largest = slices.DeleteFunc(largest, func(s bucket.LaneSize) bool { return s.Jobs == 0 })
	w.largest = bucket.First(largest, lanesRanked)
	return w.largest, nil
}

// stuck returns the longest time for which a lane's next task has been the same, beyond the time in which every
// lane gets three turns.
func (w *laneWatch) stuck(v Glance, g config.Gateway) (longest time.Duration) {
	since := map[string]time.Time{}
	turns := span(3 * float64(v.Parts.Lanes.Busy) / max(v.Rate, 1e-9))
	for _, s := range w.largest {
		if kept(v, g, s) {
			continue
		}
		key := s.Next + " " + s.Lane
		if since[key] = w.since[key]; since[key].IsZero() {
			since[key] = v.Now
		}
		longest = max(longest, v.Now.Sub(since[key])-turns)
	}
	w.since = since
	return longest
}

// kept reports whether something holds back a lane's next job.
func kept(v Glance, g config.Gateway, s bucket.LaneSize) bool {
	if v.Hold.Paused || v.Hold.HeldUntil.After(v.Now) || v.Stopped != "" || s.Until.After(v.Now) {
		return true
	}
	if slices.ContainsFunc(v.Parts.Routes, func(r Part) bool {
		return r.Name == s.Route && (len(r.Limits) > 0 || r.Paused || r.Hold.Probing || r.Hold.HeldUntil.After(v.Now))
	}) {
		return true
	}
	above := classesAbove(g, s.Class)
	for f, jobs := range v.Parts.Lanes.Flows {
		if jobs > 0 && above(f.Class) {
			return true
		}
	}
	return false
}

// parts adds the metrics of routes, classes and lanes.
func (r *reading) parts(ctx context.Context, c redis.UniversalClient, g config.Gateway, v Glance, w *laneWatch) error {
	for _, one := range v.Parts.Routes {
		if one.Queued >= 0 {
			r.gauge(gaugeRoute, float64(one.Queued), one.Name)
			r.gauge(gaugeRouteHeld, max(one.Hold.HeldUntil.Sub(v.Now).Seconds(), 0), one.Name)
			r.gauge(gaugeRoutePause, map[bool]float64{true: 1}[one.Paused], one.Name)
		}
	}
	for _, one := range v.Parts.Classes {
		r.gauge(gaugeClass, float64(one.Queued), one.Name)
	}
	t := v.Parts.Lanes
	if t == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	largest, err := w.look(ctx, c, r.gateway)
	if err != nil {
		return err
	}
	others := t.Jobs
	for i, s := range largest {
		r.gauge(gaugeLane, float64(s.Jobs), strconv.Itoa(i+1))
		others -= s.Jobs
	}
	r.gauge(gaugeLanes, float64(t.Busy))
	r.gauge(gaugeThrottled, float64(t.Throttled))
	r.gauge(gaugeInLanes, float64(t.Jobs))
	r.gauge(gaugeOtherLanes, float64(max(others, 0)))
	r.gauge(gaugeStuck, w.stuck(v, g).Seconds())
	held, err := heldLanes(ctx, c, r.gateway, largest, v.Now)
	r.gauge(gaugeLanesHeld, float64(held))
	return err
}

// heldLanes returns how many of these lanes have a hold of their own.
func heldLanes(ctx context.Context, c redis.UniversalClient, gateway string, lanes []bucket.LaneSize, now time.Time) (n int, err error) {
	var names []string
	for _, s := range lanes {
		if s.Until.After(now) { // a held lane may not be called
			names = append(names, s.Lane)
		}
	}
	holds, err := bucket.HoldsOfLanes(ctx, c, gateway, names)
	for _, h := range holds {
		if h.HeldUntil.After(now) {
			n++
		}
	}
	return n, err
}
