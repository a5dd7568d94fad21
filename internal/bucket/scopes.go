package bucket

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Marks of a slot that pick.lua has bound to a job, as in scopes.lua.
const (
	routeMark = 1 << iota // the call is the one sent ahead after the hold of its route
	laneMark              // or of its lane
	placeMark             // it has a place among the calls of its lane or route that are in flight
)

// caps are how many calls of one lane, and of each route, may be in flight.
func (p *plan) caps() (lane int64, routes map[string]int64) {
	for _, r := range p.cfg.Routes {
		if r.MaxInFlight > 0 {
			if routes == nil {
				routes = map[string]int64{}
			}
			routes[r.Name] = r.MaxInFlight
		}
	}
	if p.cfg.Lanes != nil {
		lane = p.cfg.Lanes.MaxInFlight
	}
	return lane, routes
}

// scope is a route (r) or a lane (l) that is held on its own.
type scope struct{ kind, name string }

// scopeOf returns the scope to which a failure is limited, of a call that has permits of its route and lane.
// alone is false if that is the whole gateway.
func (pl *plan) scopeOf(f job.Failure) (s scope, alone bool) {
	switch f.Scope {
	case job.ScopeLane:
		return scope{"l", f.Flow.Lane}, pl.cfg.Lanes != nil
	case job.ScopeRoute:
		return scope{"r", f.Flow.Route}, true
	}
	return scope{}, false
}

// failedIn counts a failure in the hold of a scope. args are those of circuit.lua.
func (p *Pacer) failedIn(ctx context.Context, pl *plan, s scope, args []any) ([]string, error) {
	args = append(args, s.kind, s.name)
	keys := append([]string{p.keys.Pace(), p.keys.Nobodys()}, pl.waiting...)
	return scopedScript.Run(ctx, p.client, keys, args...).StringSlice()
}

// succeededIn says that the call sent ahead in its route or lane succeeded.
func (p *Pacer) succeededIn(ctx context.Context, s job.Slot, first bool) {
	for mark, of := range map[int64]scope{routeMark: {"r", s.Flow.Route}, laneMark: {"l", s.Flow.Lane}} {
		if s.Flow.Marks&mark != 0 {
			_ = scopedOKScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, p.now(), redisdb.Wake, p.gateway, s.At, redisdb.Flag(first), of.kind, of.name).Err() // or the next one reports it again
		}
	}
}

// endIn frees the places of a call in its route and its lane.
func (p *Pacer) endIn(ctx context.Context, s job.Slot) error {
	return overScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, s.At, s.Flow.Route, s.Flow.Lane, s.Lease, s.Flow.Marks, redisdb.Wake, p.gateway).Err()
}

// FlyingIn returns how many calls of one route, and of one lane, are in flight, where their number has a cap.
func FlyingIn(ctx context.Context, c redis.UniversalClient, gateway string, of job.Flow) (route, lane int64, err error) {
	k := redisdb.NewKeys(gateway)
	now, err := c.Time(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	pipe, from := c.Pipeline(), "("+strconv.FormatInt(now.UnixMicro(), 10)
	ofRoute, ofLane := pipe.ZCount(ctx, k.FlightOfRoute(of.Route), from, "+inf"), pipe.ZCount(ctx, k.FlightOfLane(of.Lane), from, "+inf")
	_, err = pipe.Exec(ctx)
	return ofRoute.Val(), ofLane.Val(), err
}

// HoldsOfRoutes returns what holds back only the calls of each of some routes, in their order; the zero
// Standing where nothing does.
func HoldsOfRoutes(ctx context.Context, c redis.UniversalClient, gateway string, routes []string) ([]Standing, error) {
	return holdsOf(ctx, c, gateway, routes, redisdb.NewKeys(gateway).HoldOfRoute)
}

// HoldsOfLanes is like HoldsOfRoutes, for lanes.
func HoldsOfLanes(ctx context.Context, c redis.UniversalClient, gateway string, lanes []string) ([]Standing, error) {
	return holdsOf(ctx, c, gateway, lanes, redisdb.NewKeys(gateway).HoldOfLane)
}

func holdsOf(ctx context.Context, c redis.UniversalClient, gateway string, names []string, hold func(string) string) ([]Standing, error) {
	if len(names) == 0 {
		return nil, nil
	}
	k := redisdb.NewKeys(gateway)
	var answers []*redis.Cmd
	err := lookScript.Pipelined(ctx, c, func(run redisdb.Runner) {
		answers = answers[:0]
		for _, name := range names {
			answers = append(answers, run([]string{hold(name), k.Pace(), k.LiveLimits()}, 0))
		}
	})
	all := make([]Standing, len(names))
	for i, answer := range answers {
		if err == nil {
			all[i], err = standingOf(gateway, answer)
		}
	}
	return all, err
}

// LookIn returns what holds back the calls of one route, and of one lane; the zero Standing where nothing does.
// It needs no pacer of the gateway.
func LookIn(ctx context.Context, c redis.Scripter, gateway string, of job.Flow) (route, lane Standing, err error) {
	k := redisdb.NewKeys(gateway)
	for _, one := range []struct {
		hold string
		at   *Standing
	}{{k.HoldOfRoute(of.Route), &route}, {k.HoldOfLane(of.Lane), &lane}} {
		if *one.at, err = lookAt(ctx, c, gateway, one.hold, 0); err != nil {
			return Standing{}, Standing{}, err
		}
	}
	return route, lane, nil
}
