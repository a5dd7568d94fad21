package dispatch

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

//go:embed limits.lua
var limitsLua string

var limitsScript = redisdb.NewSwitchScript(redisdb.NowLua, limitsLua)

// SetLimits replaces a gateway's limits, in every process within a second. An empty list restores the
// configured ones.
func SetLimits(ctx context.Context, c redis.UniversalClient, g config.Gateway, to []job.Limit) error {
	if err := CheckLimits(c, g, to); err != nil {
		return err
	}
	texts := make([]string, len(to))
	for i, l := range to {
		texts[i] = l.String()
	}
	err := limitsScript.Act(ctx, c, limitsKeys(g), 0, 0, strings.Join(texts, " ")).Err()
	if err == nil {
		_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // if it fails, the next pulse finds the change, which takes longer with thousands of gateways
	}
	return err
}

// Charged returns what losses have charged to the gateway's limits in force, as far as it still counts.
func Charged(ctx context.Context, c redis.UniversalClient, g config.Gateway) ([]bucket.Charge, error) {
	return inForce(ctx, c, g, (*bucket.Pacer).Charged)
}

// Forgive removes what losses have charged to the gateway's limits in force, and returns it.
func Forgive(ctx context.Context, c redis.UniversalClient, g config.Gateway) ([]bucket.Charge, error) {
	return inForce(ctx, c, g, (*bucket.Pacer).Forgive)
}

// inForce calls ask with a pacer that has the limits in force.
func inForce(ctx context.Context, c redis.UniversalClient, g config.Gateway, ask func(*bucket.Pacer, context.Context) ([]bucket.Charge, error)) ([]bucket.Charge, error) {
	now, err := CurrentLimits(ctx, c, g)
	if err != nil {
		return nil, err
	}
	p, err := bucket.NewPacer(c, pacing(g, now), unmeasured)
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	return ask(p, ctx)
}

func limitsKeys(g config.Gateway) []string {
	k := redisdb.NewKeys(g.Name)
	return []string{k.LiveLimits(), k.Pace()}
}

// CheckLimits returns why these limits are not supported for a gateway, or nil. An empty list means the
// configured ones, which are.
func CheckLimits(c redis.UniversalClient, g config.Gateway, to []job.Limit) error {
	if len(to) == 0 {
		return nil
	}
	if err := g.Leak.WithLimits(to); err != nil {
		return &job.Error{Code: job.CodeUsage, Message: err.Error(), Hint: "the limits of the file keep the same rules"}
	}
	if _, err := bucket.NewPacer(c, pacing(g, Limits{Limits: to}), unmeasured); err != nil {
		return &job.Error{Code: job.CodeUsage, Message: err.Error(), Hint: "write limits like 100/s or 300/10s"}
	}
	if _, err := newAlgorithm(AdmissionAt(g, Limits{Limits: to, Live: true})); err != nil {
		return &job.Error{Code: job.CodeUsage, Message: "admission follows the limits, and can't keep these: " + err.Error(),
			Hint: "give admission limits of its own in the file, or another burst"}
	}
	return nil
}

// adopt applies the limits in force: those set at run time, or else the configured ones as last read.
func (u *unit) adopt(ctx context.Context) error {
	u.pacing.Lock()
	defer u.pacing.Unlock()
	now, err := u.newest(ctx)
	if err != nil {
		return err
	}
	keep := pacing(u.now().cfg, now)
	if reflect.DeepEqual(keep, u.kept) {
		u.limits.Store(now.Version)
		return nil
	}
	if err := u.pacer.Change(ctx, keep); err != nil {
		return fmt.Errorf("the limits set live can't be kept: %w", err)
	}
	before := u.kept
	u.kept, before.First, before.Classes = keep, keep.First, keep.Classes
	u.limits.Store(now.Version)
	if reflect.DeepEqual(keep, before) { // only the classes changed
		return nil
	}
	u.log.Info("limits changed", "limits", fmt.Sprint(now.Limits), "set_live", now.Live)
	return nil
}

// newest returns the limits in force. If Redis has lost their version, they get one above all that were seen:
// otherwise no process that follows Redis would get a slot.
func (u *unit) newest(ctx context.Context) (Limits, error) {
	g := u.now().cfg
	now, err := CurrentLimits(ctx, u.redis, g)
	stale, _ := u.pacer.Stale()
	if err != nil || now.Version >= u.kept.Version && !stale {
		return now, err
	}
	version, err := limitsScript.Itself(ctx, u.redis, limitsKeys(g), 0, u.kept.Version).Int64()
	if err != nil || version == now.Version {
		return now, err
	}
	u.log.Warn("Redis had lost the version of the limits: those that it knows hold", "limits", fmt.Sprint(now.Limits), "set_live", now.Live,
		"hint", "if others were set live, set them again: dispatcher limit set")
	now.Version = version
	return now, nil
}

// LiftBrakes allows, for a time and in every process at once, calls for which no money limit has room. A time
// of zero ends that.
func LiftBrakes(ctx context.Context, c redis.UniversalClient, g config.Gateway, l ledger.Lift) error {
	if err := Books(c, g).LiftBrakes(ctx, l); err != nil {
		return err
	}
	_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // if it fails, the next pulse finds the change
	return nil
}

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
