package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
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

// Wait is what a job waits for.
type Wait struct {
	// Why describes it for a person.
	Why string
	// In is the approximate remaining wait; negative if unknown. It is known only for jobs in lanes.
	In time.Duration
	// Most says that In is an upper bound: other lanes may skip their turns.
	Most bool
}

// turn is one thing that a job in a lane waits for, and how long.
type turn struct {
	why  string
	in   time.Duration
	most bool
}

// laneWait returns what a queued job in a lane waits for: its lane's limits, its route's, or its turn among the
// lanes, whichever takes longest.
func laneWait(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, v Glance, ahead ledger.Ahead) (w Wait, err error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: v.Limits}), unmeasured)
	if err != nil {
		return w, err
	}
	defer p.Close(ctx)
	lane, err := p.LookAtLane(ctx, r.Job.Lane)
	if err != nil {
		return w, err
	}
	route, err := p.LookAtRoute(ctx, r.Job.Route)
	if err != nil {
		return w, err
	}
	switch {
	case lane.Paused:
		return Wait{fmt.Sprintf("its lane %s is paused: dispatcher lane resume -g %s %s", r.Job.Lane, g.Name, ShellWord(r.Job.Lane)), -1, false}, nil
	case route.Paused:
		return Wait{fmt.Sprintf("its route %s is paused: dispatcher route resume -g %s %[1]s", r.Job.Route, g.Name), -1, false}, nil
	}
	if why, err := whyNoPlace(ctx, c, g, r); err != nil || why != "" {
		return Wait{why + ", " + behind(ahead.Jobs, ahead.AtLeast), -1, false}, err
	}
	room, err := p.Room(ctx, r.Job.Cost)
	if err != nil {
		return w, err
	}
	above := classesAbove(g, r.Job.Priority)
	own := ahead.Jobs
	for _, f := range lane.Flows {
		if above(f.Flow.Class) {
			own += f.Jobs
		}
	}
	var onRoute, higher int64
	for f, n := range v.Parts.Lanes.Flows {
		if f.Route == r.Job.Route && (above(f.Class) || f.Class == r.Job.Priority) {
			onRoute += n
		}
		if above(f.Class) {
			higher += n
		}
	}
	turns := own + (own+1)*max(v.Parts.Lanes.Busy-1, 0) // if all lanes take their turns
	byRoute := max(min(onRoute-1, turns), ahead.Jobs)
	all := []turn{
		{fmt.Sprintf("waiting for its turn: %s, and %s", plural(v.Parts.Lanes.Busy), goBefore(own, "of its lane")), room.In + span(float64(min(v.Parts.Lanes.Jobs-1, turns+higher))/pace(v.Limits)), true},
		{fmt.Sprintf("waiting for its route %s (%s; %s)", r.Job.Route, limitsText(route.Used), goBefore(byRoute, "on it at the most")), free(route, byRoute), true},
		{fmt.Sprintf("waiting for its lane %s (%s; %s)", r.Job.Lane, limitsText(lane.Used), goBefore(own, "of it")), free(lane, own), false},
	}
	if higher > 0 {
		all[0].why += fmt.Sprintf(", and %s of higher classes", job.JobsText(higher))
	}
	longest := slices.MaxFunc(all, func(a, b turn) int { return cmp.Compare(a.in, b.in) })
	w = Wait{longest.why, max(longest.in, 0), longest.most}
	if ahead.AtLeast {
		w.In = -1
		return w, nil
	}
	if w.In >= time.Second {
		w.Why += ", " + map[bool]string{true: "at most "}[w.Most] + "about " + job.FormatDuration(w.In.Round(time.Second))
	}
	return w, nil
}

// free returns how long until a lane or route has a permit after so many more calls.
func free(l bucket.LaneLook, calls int64) (in time.Duration) {
	if len(l.Used) == 0 {
		return 0
	}
	in = l.Ready.Sub(l.Now)
	for _, u := range l.Used {
		in = max(in, span(float64(calls+1-(u.Limit.N-u.Used))/u.Limit.PerSecond()))
	}
	return in
}

// classesAbove returns a function that reports, by a class's name in flows, whether its jobs go before those of
// this class.
func classesAbove(g config.Gateway, class string) func(string) bool {
	var above []string
	for _, c := range g.Priority.List() {
		name := c.Name
		if c.Usual {
			name = ""
		}
		if name == class || c.Name == class {
			break
		}
		above = append(above, name)
	}
	return func(of string) bool { return slices.Contains(above, of) }
}

func limitsText(used []bucket.LimitUse) string {
	all := make([]string, len(used))
	for i, u := range used {
		all[i] = u.Limit.String()
	}
	return strings.Join(all, " ")
}

// goBefore describes how many jobs go before one.
func goBefore(jobs int64, which string) string {
	switch jobs {
	case 0:
		return "no job " + which + " goes before it"
	case 1:
		return "1 job " + which + " goes before it"
	}
	return fmt.Sprintf("%s jobs %s go before it", job.CountText(jobs), which)
}

func plural(lanes int64) string {
	if lanes == 1 {
		return "1 lane has jobs"
	}
	return job.CountText(lanes) + " lanes have jobs"
}
