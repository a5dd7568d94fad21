package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// LaneChange changes the settings of one lane. Nil keeps a setting. Empty limits, a weight of zero, or a
// negative cap on calls in flight reset it to the setting for all lanes.
type LaneChange = bucket.OverrideChange

// CheckLane returns why a lane of the gateway can't have these settings, or nil.
func CheckLane(g config.Gateway, lane string, c LaneChange) error {
	if g.Lanes == nil {
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("the gateway %s has no lanes", g.Name), Hint: "write lanes: {key: payload.account} into the file, say; limits of a whole gateway: dispatcher limit set"}
	}
	if lane != "" {
		if err := job.CheckLane(lane); err != nil {
			return &job.Error{Code: job.CodeUsage, Message: err.Error(), Hint: "name it as its jobs have it"}
		}
	}
	if c.Weight != nil && (*c.Weight < 0 || *c.Weight > config.MaxWeight) {
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("a lane can't have a weight of %d", *c.Weight), Hint: fmt.Sprintf("give one from 1 to %d", config.MaxWeight)}
	}
	if c.MaxInFlight != nil && *c.MaxInFlight > job.MaxCount {
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("a lane can't have a cap of %d calls in flight", *c.MaxInFlight), Hint: fmt.Sprintf("give one up to %d, or 0 for any number", job.MaxCount)}
	}
	if c.Limits == nil {
		return nil
	}
	for i, l := range *c.Limits {
		if slices.ContainsFunc((*c.Limits)[:i], func(other job.Limit) bool { return other.Window == l.Window }) {
			return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("there are two limits of one window: %s", l), Hint: "keep the lower one"}
		}
	}
	if err := pacing(g, Limits{Limits: g.Leak.Limits}).CheckOwn(*c.Limits); err != nil {
		return &job.Error{Code: job.CodeUsage, Message: err.Error(), Hint: "the limits of lanes in the file keep the same rules"}
	}
	return nil
}

// SetLane changes the settings of a lane, in every process at once.
func SetLane(ctx context.Context, c redis.UniversalClient, g config.Gateway, lane string, to LaneChange) error {
	if err := CheckLane(g, lane, to); err != nil {
		return err
	}
	return withPacer(ctx, c, g, func(p *bucket.Pacer) error { return p.OverrideLane(ctx, lane, to) })
}

// LaneNow returns the settings in force for a lane, and those of them that were set at run time.
func LaneNow(ctx context.Context, c redis.UniversalClient, g config.Gateway, lane string) (now, live bucket.Override, err error) {
	if err := CheckLane(g, lane, LaneChange{}); err != nil {
		return now, live, err
	}
	live, err = bucket.Overridden(ctx, c, g.Name, redisdb.OfLane, lane)
	now = live
	if len(live.Limits) == 0 {
		now.Limits = g.Lanes.Limits
	}
	if live.Weight == 0 {
		now.Weight = g.Lanes.Weight
	}
	if live.MaxInFlight == nil {
		now.MaxInFlight = &g.Lanes.MaxInFlight
	}
	return now, live, err
}

// CheckRoute returns why a route of the gateway can't be paused, or nil.
func CheckRoute(g config.Gateway, route string) error {
	if !slices.Contains(g.RouteNames(), route) {
		hint := "it has no routes"
		if names := g.RouteNames(); len(names) > 0 {
			hint = "its routes are " + strings.Join(names, ", ")
		}
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("the gateway %s has no route %q", g.Name, route), Hint: hint}
	}
	if !pacing(g, Limits{Limits: g.Leak.Limits}).Laned() {
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("the jobs of all routes of %s stand in one line, so none can be paused alone", g.Name),
			Hint: "give a route limits in the file, or the gateway lanes; or: dispatcher pause -g " + g.Name}
	}
	return nil
}

// PauseRoute stops the calls of a route's jobs, or lets them continue, in every process at once.
func PauseRoute(ctx context.Context, c redis.UniversalClient, g config.Gateway, route string, paused bool) error {
	if err := CheckRoute(g, route); err != nil {
		return err
	}
	return withPacer(ctx, c, g, func(p *bucket.Pacer) error { return p.PauseRoute(ctx, route, paused) })
}

func withPacer(ctx context.Context, c redis.UniversalClient, g config.Gateway, do func(*bucket.Pacer) error) error {
	p, err := Pacer(c, g, unmeasured)
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	return do(p)
}
