package dispatch

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
)

// Limits is what holds for a gateway now.
type Limits struct {
	Limits  []job.Limit
	Live    bool  // set by an operator; they replace the file's until they are reset
	Version int64 // grows with each change; zero if there never was one
}

//go:embed limits.lua
var limitsLua string

var limitsScript = redisdb.NewSwitchScript(redisdb.NowLua, limitsLua)

const (
	versionField = "version"
	limitsField  = "limits"
)

// CurrentLimits returns the limits that hold for a gateway now.
func CurrentLimits(ctx context.Context, c redis.UniversalClient, g config.Gateway) (Limits, error) {
	return currentLimits(ctx, c, g.Name, g.Leak.Limits)
}

// currentLimits returns the limits that hold for a gateway now, whose file has these.
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

// SetLimits replaces a gateway's limits, on every process within a second. None means: the file's hold again.
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
		_ = c.Publish(ctx, redisdb.Wake, g.Name).Err() // else the next look at the gateway finds them, which takes longer where there are thousands
	}
	return err
}

// Charged returns what losses have charged the limits with that hold for a gateway now, and still counts.
func Charged(ctx context.Context, c redis.UniversalClient, g config.Gateway) ([]bucket.Charge, error) {
	return inForce(ctx, c, g, (*bucket.Pacer).Charged)
}

// Forgive lifts what losses have charged the limits with that hold for a gateway now, and returns it.
func Forgive(ctx context.Context, c redis.UniversalClient, g config.Gateway) ([]bucket.Charge, error) {
	return inForce(ctx, c, g, (*bucket.Pacer).Forgive)
}

// inForce asks the pacer of the limits that hold now.
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

// CheckLimits returns why these limits can't be kept for a gateway, or nil. None means the file's, which can.
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

// pacing is the pacer's configuration for a gateway whose limits are these now. No more calls than the smallest of them
// allows can start together, whatever the file says of its own limits.
func pacing(g config.Gateway, l Limits) bucket.PacerConfig {
	burst := g.Leak.Burst
	for _, one := range l.Limits {
		burst = min(burst, max(one.N, 0))
	}
	return bucket.PacerConfig{Gateway: g.Name, Limits: l.Limits, Version: l.Version, Burst: burst, First: queue.FirstLines(g.Name, g.Priority.List()),
		Classes: g.Priority.List(), Routes: routesOf(g), Lanes: lanesOf(g), Scoped: g.Scoped(), Jitter: g.Leak.Jitter, MaxInFlight: g.Leak.MaxInFlight, CallTimeout: g.Request.Timeout}
}

// lanesOf is what each lane of a gateway may have; nil where it has none.
func lanesOf(g config.Gateway) *bucket.Lanes {
	if g.Lanes == nil {
		return nil
	}
	return &bucket.Lanes{Limits: g.Lanes.Limits, Weight: g.Lanes.Weight, MaxInFlight: g.Lanes.MaxInFlight}
}

// routesOf are the routes of a gateway, with their limits.
func routesOf(g config.Gateway) (all []bucket.Route) {
	for _, r := range g.Routes {
		all = append(all, bucket.Route{Name: r.Name, Limits: r.Limits, MaxInFlight: r.MaxInFlight})
	}
	return all
}

// adopt takes over the limits that hold now: those set live, else the file's as it was last read.
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
	if reflect.DeepEqual(keep, before) { // the classes changed
		return nil
	}
	u.log.Info("limits changed", "limits", fmt.Sprint(now.Limits), "set_live", now.Live)
	return nil
}

// newest returns the limits that hold now. If Redis has lost their version, those that it knows get one above all that were seen: else nobody
// who follows Redis would be given a slot any more.
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
