package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// alone describes a route or a lane with a hold or a cap on calls in flight of its own.
type alone struct {
	words  string
	hold   bucket.Standing
	flying int64
	most   int64 // most calls in flight; 0 = any number
	at     string
}

// scopesOf returns the route and the lane of a job, if the gateway tracks them individually.
func scopesOf(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) ([]alone, error) {
	p := pacing(g, Limits{Limits: g.Leak.Limits})
	if !p.Laned() {
		return nil, nil
	}
	route, lane := alone{words: "the gateway's own request", at: "routes.max_in_flight"}, alone{words: "the jobs without a lane", at: "lanes.max_in_flight"}
	if r.Job.Route != "" {
		route.words = "the route " + r.Job.Route
	}
	if r.Job.Lane != "" {
		lane.words = "the lane " + r.Job.Lane
	}
	for _, own := range p.Routes {
		if own.Name == r.Job.Route {
			route.most = own.MaxInFlight
		}
	}
	if p.Lanes != nil {
		lane.most = p.Lanes.MaxInFlight
	}
	of := job.Flow{Route: r.Job.Route, Lane: r.Job.Lane}
	own, err := bucket.Overridden(ctx, c, g.Name, redisdb.OfLane, r.Job.Lane)
	if err == nil && own.MaxInFlight != nil && p.Lanes != nil {
		lane.most, lane.at = *own.MaxInFlight, "set live:"
	}
	if route.hold, lane.hold, err = bucket.LookIn(ctx, c, g.Name, of); err != nil {
		return nil, err
	}
	if route.most > 0 || lane.most > 0 {
		route.flying, lane.flying, err = bucket.FlyingIn(ctx, c, g.Name, of)
	}
	return []alone{route, lane}, err
}

// stoppedAlone says why a job's route or lane would not be called even in its turn; empty if it would.
func stoppedAlone(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record, now time.Time) (string, error) {
	all, err := scopesOf(ctx, c, g, r)
	for _, a := range all {
		switch h := a.hold; {
		case h.HeldUntil.After(now):
			return fmt.Sprintf("%s is held until %s: %s; others go on", a.words, job.Moment(h.HeldUntil), h.Reason), err
		case h.Probing:
			return fmt.Sprintf("%s was held, one call of it goes ahead to see whether it is over: %s", a.words, h.Reason), err
		}
	}
	return "", err
}

// whyNoPlace says whose calls in flight a job waits for; empty if none.
func whyNoPlace(ctx context.Context, c redis.UniversalClient, g config.Gateway, r job.Record) (string, error) {
	all, err := scopesOf(ctx, c, g, r)
	for _, a := range all {
		if a.most > 0 && a.flying >= a.most {
			return fmt.Sprintf("the cap on calls in flight of %s is reached (%s %d)", a.words, a.at, a.most), err
		}
	}
	return "", err
}
