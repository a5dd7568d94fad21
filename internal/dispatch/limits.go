package dispatch

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
)

// Limits are the limits in force for a gateway.
type Limits struct {
	Limits  []job.Limit
	Live    bool  // set by an operator; they replace the configured ones until they are reset
	Version int64 // grows with each change; zero if there was none
}

//go:embed limits.lua
var limitsLua string

var limitsScript = redisdb.NewSwitchScript(redisdb.NowLua, limitsLua)

const (
	versionField = "version"
	limitsField  = "limits"
)

// CurrentLimits returns the limits in force for a gateway.
func CurrentLimits(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Limits, error) {
	return currentLimits(ctx, c, g.Name, g.Leak.Limits)
}

// currentLimits returns the limits in force for a gateway with these configured limits.
func currentLimits(ctx context.Context, c redis.UniversalClient, gateway string, file []job.Limit) (Limits, error) {
	h, err := c.HGetAll(ctx, redisdb.NewKeys(gateway).LiveLimits()).Result()
	if err != nil {
		return Limits{}, err
	}
	l := Limits{Limits: file}
	l.Version, _ = strconv.ParseInt(h[versionField], 10, 64)
	text := strings.Fields(h[limitsField])
	if len(text) == 0 {
		return l, nil
	}
	l.Live, l.Limits = true, nil
	for _, t := range text {
		one, err := job.ParseLimit(t)
		if err != nil {
			return Limits{}, fmt.Errorf("gateway %s: the limit set live can't be read: %w", gateway, err)
		}
		l.Limits = append(l.Limits, one)
	}
	return l, nil
}

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

// pacing returns the pacer's configuration for a gateway with these limits in force. At most as many calls as
// the smallest of them allows can start together, whatever is configured for the original limits.
func pacing(g config.Gateway, l Limits) bucket.PacerConfig {
	burst := g.Leak.Burst
	for _, one := range l.Limits {
		burst = min(burst, max(one.N, 0))
	}
	return bucket.PacerConfig{Gateway: g.Name, Limits: l.Limits, Version: l.Version, Burst: burst, First: queue.FirstLines(g.Name, g.Priority.List()),
		Classes: g.Priority.List(), Routes: routesOf(g), Lanes: lanesOf(g), Scoped: g.Scoped(), Jitter: g.Leak.Jitter, MaxInFlight: g.Leak.MaxInFlight, CallTimeout: g.Request.Timeout}
}

// lanesOf returns the settings of a gateway's lanes; nil if it has none.
func lanesOf(g config.Gateway) *bucket.Lanes {
	if g.Lanes == nil {
		return nil
	}
	return &bucket.Lanes{Limits: g.Lanes.Limits, Weight: g.Lanes.Weight, MaxInFlight: g.Lanes.MaxInFlight}
}

// routesOf returns the routes of a gateway, with their limits.
func routesOf(g config.Gateway) (all []bucket.Route) {
	for _, r := range g.Routes {
		all = append(all, bucket.Route{Name: r.Name, Limits: r.Limits, MaxInFlight: r.MaxInFlight})
	}
	return all
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

// followEvery is how long the limits set at run time are cached.
const followEvery = time.Second

// Follower knows the limits in force at a gateway's admission. Configured limits for admission apply if there
// are any. Otherwise admission has the leak's limits, including those set at run time. A Follower is safe for
// concurrent use.
type Follower struct {
	c       redis.UniversalClient
	gateway string
	leak    []job.Limit // as configured
	file    config.Admission

	mu    sync.Mutex
	read  time.Time
	holds config.Admission
	check bucket.Algorithm
	err   error // why there is no check: admission's limits are not supported
}

// Follow returns a Follower. It reads nothing before it is asked.
func Follow(c redis.UniversalClient, g config.Gateway) *Follower {
	f := &Follower{c: c, gateway: g.Name, leak: g.Leak.Limits, file: g.Admission, holds: g.Admission}
	if f.check, f.err = newAlgorithm(g.Admission); f.err != nil {
		f.err = fmt.Errorf("admission of gateway %s: %w", g.Name, f.err)
	}
	return f
}

// Admission returns the limits in force at admission, at most a second old. While Redis is unreachable or has
// unsupported limits, the last ones stay.
func (f *Follower) Admission(ctx context.Context) config.Admission {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.holds
}

func (f *Follower) bucket(ctx context.Context) ledger.Bucket {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.follow(ctx)
	return f.check
}

func (f *Follower) follow(ctx context.Context) {
	if !f.file.Follows || !f.read.IsZero() && time.Since(f.read) < followEvery {
		return
	}
	now, err := currentLimits(ctx, f.c, f.gateway, f.leak)
	if err == nil || !f.read.IsZero() { // if they were never read, the next call tries again
		f.read = time.Now()
	}
	if err != nil {
		return
	}
	holds := admissionAt(f.file, now)
	if slices.Equal(holds.Limits, f.holds.Limits) && holds.Burst == f.holds.Burst {
		return
	}
	if check, err := newAlgorithm(holds); err == nil {
		f.holds, f.check = holds, check
	}
}

// AdmissionAt returns the limits in force at a gateway's admission, given the leak's limits.
func AdmissionAt(g config.Gateway, l Limits) config.Admission { return admissionAt(g.Admission, l) }

func admissionAt(file config.Admission, l Limits) config.Admission {
	if !l.Live {
		return file
	}
	return file.Under(l.Limits)
}

func newAlgorithm(a config.Admission) (bucket.Algorithm, error) {
	return bucket.NewAlgorithm(a.Algorithm, a.Limits, a.Burst, a.Precision)
}
