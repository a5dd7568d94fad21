package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Part is the jobs of one route or class of a gateway.
type Part struct {
	// Name is empty for the gateway's own request.
	Name string
	// Queued is how many of its jobs are in the queue; negative if not counted.
	Queued int64
	// Limits are those of a route, besides the gateway's.
	Limits []job.Limit
	// Floor is the least share of calls of a class, in percent.
	Floor int64
	// Hold is the route's own hold. Paused says that an operator paused it.
	Hold   bucket.Standing
	Paused bool
}

// Parts is a gateway's queue by route, class and lane.
type Parts struct {
	// Routes and Classes are in configured order; empty if the gateway has none.
	Routes, Classes []Part
	// Lanes is the totals of its lanes; nil if it has neither lanes nor route limits.
	Lanes *bucket.LaneTotals
	// Unsorted is how many jobs are not in lanes yet: they move there with the next call. They are not counted
	// in Routes.
	Unsorted int64
}

// Laned reports whether a gateway's waiting jobs are kept in lanes: it has lanes, or routes with limits, caps
// or holds of their own.
func Laned(g config.Gateway) bool {
	return bucket.PacerConfig{Lanes: lanesOf(g), Routes: routesOf(g), Scoped: g.Scoped()}.Laned()
}

// lookAtParts reads the parts of a gateway's queue. queued is the number of its jobs.
func lookAtParts(ctx context.Context, c redis.UniversalClient, g config.Gateway, queued int64) (p Parts, err error) {
	if Laned(g) {
		totals, err := bucket.LookAtLanes(ctx, c, g.Name)
		if err != nil {
			return p, err
		}
		p.Lanes, p.Unsorted = &totals, max(queued-totals.Jobs, 0)
	}
	if !g.Routed && len(g.Routes) > 0 {
		p.Routes = append(p.Routes, Part{Queued: p.on("")})
	}
	for _, r := range g.Routes {
		p.Routes = append(p.Routes, Part{Name: r.Name, Queued: p.on(r.Name), Limits: r.Limits})
	}
	if err := p.keptBack(ctx, c, g); err != nil {
		return p, err
	}
	classes := g.Priority.List()
	if len(classes) == 0 {
		return p, nil
	}
	named := make([]string, 0, len(classes))
	for _, class := range classes {
		if !class.Usual {
			named = append(named, class.Name)
		}
	}
	lines, err := Books(c, g).Unsorted(ctx, named)
	for _, class := range classes {
		name := class.Name
		if class.Usual {
			name = ""
		}
		n := lines[name]
		if p.Lanes != nil {
			n += p.Lanes.Of(name)
		}
		p.Classes = append(p.Classes, Part{Name: class.Name, Queued: n, Floor: class.Floor})
	}
	return p, err
}

// keptBack sets which routes are held or paused on their own.
func (p *Parts) keptBack(ctx context.Context, c redis.UniversalClient, g config.Gateway) error {
	if p.Lanes == nil || len(p.Routes) == 0 {
		return nil
	}
	names := make([]string, len(p.Routes))
	for i, r := range p.Routes {
		names[i] = r.Name
	}
	own, err := bucket.AllOverridden(ctx, c, g.Name, redisdb.OfRoute, names)
	if err != nil {
		return err
	}
	held := slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(p.Lanes.Held, name) })
	holds, err := bucket.HoldsOfRoutes(ctx, c, g.Name, held)
	for i := range p.Routes {
		p.Routes[i].Paused = own[i].Paused
		if at := slices.Index(held, p.Routes[i].Name); at >= 0 && err == nil {
			p.Routes[i].Hold = holds[at]
		}
	}
	return err
}

func (p Parts) on(route string) int64 {
	if p.Lanes == nil {
		return -1
	}
	return p.Lanes.On(route)
}

// lanesLooked is how many lanes are searched for the largest, which takes Redis a few milliseconds.
const lanesLooked = 2000

// besideWait returns the least time that the last waiting job waits for limits of its route and lane. least
// says that some lanes were not read: it may wait longer.
func besideWait(ctx context.Context, c redis.UniversalClient, g config.Gateway, p Parts) (left time.Duration, least bool, err error) {
	if p.Lanes == nil {
		return 0, false, nil
	}
	for _, r := range p.Routes {
		left = max(left, atLeast(r.Limits, r.Queued))
	}
	if g.Lanes == nil || len(g.Lanes.Limits) == 0 || p.Lanes.Busy == 0 {
		return left, false, nil
	}
	l, err := bucket.Largest(ctx, c, g.Name, 1, lanesLooked, nil)
	if err != nil || len(l.Lanes) == 0 {
		return left, !l.All, err
	}
	now, _, err := LaneNow(ctx, c, g, l.Lanes[0].Lane)
	return max(left, atLeast(now.Limits, l.Lanes[0].Jobs)), !l.All || now.Paused, err
}

// atLeast returns the least time that so many calls take if all permits are available at the start.
func atLeast(limits []job.Limit, calls int64) (left time.Duration) {
	for _, l := range limits {
		left = max(left, span(float64(calls-l.N)/l.PerSecond()))
	}
	return left
}

// LookAtLane returns the state of a lane of a gateway, given the gateway's snapshot.
func LookAtLane(ctx context.Context, c redis.UniversalClient, g config.Gateway, v Glance, lane string) (l bucket.LaneLook, err error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), unmeasured)
	if err != nil {
		return l, err
	}
	defer p.Close(ctx)
	return p.LookAtLane(ctx, lane)
}
