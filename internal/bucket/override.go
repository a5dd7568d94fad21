package bucket

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// MaxWeight is the largest weight of a lane.
const MaxWeight = 1000

// shortestOwn is the shortest window of a lane's own limits, unless the file has a shorter one.
const shortestOwn = time.Second

func (l *Lanes) weight() int64 {
	if l == nil {
		return 1
	}
	return max(l.Weight, 1)
}

// ownArg tells pick.lua how to work out a lane's own limits, as permits.own takes it.
type ownArg struct {
	Least  int64      `json:"least"`
	More   int64      `json:"more"`
	Late   int64      `json:"late"`
	Longer [][2]int64 `json:"longer"`
}

// ownSteps are the window lengths for which a process says how much longer permits take. A length in between
// takes as long as the next step.
var ownSteps = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, longestW}

func (p *Pacer) own(pl *plan, now int64) *ownArg {
	o := &ownArg{Least: pl.shortest.Microseconds(), More: pl.cfg.Jitter.Microseconds() + pl.epsilon, Late: pl.tooLate}
	for _, step := range ownSteps {
		w := pl.ownWindow(job.Limit{N: laneExactN + 1, Window: step})
		if by := p.longer(pl, w, now); len(o.Longer) > 0 && o.Longer[len(o.Longer)-1][1] == by {
			o.Longer[len(o.Longer)-1][0] = w.length
		} else {
			o.Longer = append(o.Longer, [2]int64{w.length, by})
		}
	}
	return o
}

// ownWindow is a limit of a lane's own.
func (p *plan) ownWindow(l job.Limit) window {
	l.Window = max(l.Window, p.shortest)
	w := window{n: l.N, length: l.Window.Microseconds()}
	w.ready = w.length + (w.length+9999)/10000 + p.cfg.Jitter.Microseconds() + p.epsilon
	if l.N > laneExactN && l.Window >= exactWindow {
		w.width = (w.length + laneParts - 1) / laneParts
		w.ready += p.tooLate
	}
	return w
}

// Override is what was set live for a lane or a route. The zero Override sets nothing.
type Override struct {
	// Limits are those of a lane; nil means those of all lanes.
	Limits []job.Limit
	// Weight is that of a lane; zero means that of all lanes.
	Weight int64
	// Paused means that its jobs wait.
	Paused bool
	// MaxInFlight is how many calls of a lane may be in flight, zero for any number; nil means as many as for
	// all lanes.
	MaxInFlight *int64
}

// OverrideChange is a change of an Override. Fields that are nil stay unchanged.
type OverrideChange struct {
	Limits *[]job.Limit
	Weight *int64
	Paused *bool
	// MaxInFlight below zero resets it to that of all lanes.
	MaxInFlight *int64
}

const keepsIt = "="

// CheckOwn returns why limits can't be a lane's own at this gateway, or nil.
func (c PacerConfig) CheckOwn(limits []job.Limit) error {
	least := shortestOwn
	for _, l := range append(c.beside(), c.Limits...) {
		least = min(least, l.Window)
	}
	if i := slices.IndexFunc(limits, func(l job.Limit) bool { return l.Window < least }); i >= 0 {
		return fmt.Errorf("the limit %s of a lane has a window that is too short: give one of at least %s", limits[i], job.FormatDuration(least))
	}
	c.Lanes = &Lanes{Limits: limits}
	return c.checkLanes()
}

// OverrideLane changes what is set live for a lane. Once it has returned, every process keeps to it; calls
// bound to slots before, at most 100 ms ahead, are still made.
func (p *Pacer) OverrideLane(ctx context.Context, lane string, c OverrideChange) error {
	return p.override(ctx, redisdb.OfLane, lane, c)
}

// PauseRoute pauses the calls of a route's jobs, or lets them be called again.
func (p *Pacer) PauseRoute(ctx context.Context, route string, paused bool) error {
	return p.override(ctx, redisdb.OfRoute, route, OverrideChange{Paused: &paused})
}

func (p *Pacer) override(ctx context.Context, kind, name string, c OverrideChange) error {
	limits, weight, paused, most := keepsIt, keepsIt, keepsIt, keepsIt
	if c.Limits != nil {
		limits = p.ownText(*c.Limits)
	}
	if c.Weight != nil {
		if weight = ""; *c.Weight != 0 {
			weight = strconv.FormatInt(*c.Weight, 10)
		}
	}
	if c.Paused != nil {
		if paused = ""; *c.Paused {
			paused = "1"
		}
	}
	if c.MaxInFlight != nil {
		if most = ""; *c.MaxInFlight >= 0 {
			most = strconv.FormatInt(*c.MaxInFlight, 10)
		}
	}
	keys := []string{p.keys.Acted(kind, name), p.keys.Pace(), p.keys.Nobodys()}
	if err := overrideScript.Act(ctx, p.client, keys, kind, name, limits, weight, paused, most, redisdb.Wake, p.gateway).Err(); err != nil {
		return fmt.Errorf("what is set for the %s %q of %s could not be written down: %w", kind, name, p.gateway, err)
	}
	return nil
}

// ownText is limits as permits.own reads them.
func (p *Pacer) ownText(limits []job.Limit) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = fmt.Sprintf("%d:%d:%d", l.N, l.Window.Microseconds(), p.plan.Load().ownWindow(l).width)
	}
	return strings.Join(texts, " ")
}

// Overridden returns what is set live for a lane or a route.
func Overridden(ctx context.Context, c redis.UniversalClient, gateway, kind, name string) (Override, error) {
	k := redisdb.NewKeys(gateway)
	text, err := c.HGet(ctx, k.Overrides(), kind+":"+name).Result()
	if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return Override{}, nil
	}
	if err != nil {
		return Override{}, err
	}
	o, err := readOverride(text)
	if err != nil {
		return o, fmt.Errorf("gateway %s: what was set live for the %s %q can't be read: %w", gateway, kind, name, err)
	}
	return o, nil
}

// AllOverridden returns what is set live for the lanes or routes of these names, in their order.
func AllOverridden(ctx context.Context, c redis.UniversalClient, gateway, kind string, names []string) ([]Override, error) {
	all, fields := make([]Override, len(names)), make([]string, len(names))
	if len(names) == 0 {
		return nil, nil
	}
	for i, name := range names {
		fields[i] = kind + ":" + name
	}
	found, err := c.HMGet(ctx, redisdb.NewKeys(gateway).Overrides(), fields...).Result()
	for i, one := range found {
		if text, set := one.(string); set && err == nil {
			if all[i], err = readOverride(text); err != nil {
				err = fmt.Errorf("gateway %s: what was set live for the %s %q can't be read: %w", gateway, kind, names[i], err)
			}
		}
	}
	return all, err
}

// readOverride reads what override.lua writes.
func readOverride(text string) (o Override, err error) {
	parts := strings.Split(text, "|")
	if len(parts) != 4 && len(parts) != 3 {
		return o, fmt.Errorf("it has %d parts, and should have 4", len(parts))
	}
	for _, one := range strings.Fields(parts[0]) {
		var n, length, width int64
		if _, err := fmt.Sscanf(one, "%d:%d:%d", &n, &length, &width); err != nil {
			return o, err
		}
		o.Limits = append(o.Limits, job.Limit{N: n, Window: time.Duration(length) * time.Microsecond})
	}
	if parts[1] != "" {
		o.Weight, err = strconv.ParseInt(parts[1], 10, 64)
	}
	o.Paused = parts[2] == "1"
	if len(parts) == 4 && parts[3] != "" && err == nil {
		var most int64
		most, err = strconv.ParseInt(parts[3], 10, 64)
		o.MaxInFlight = &most
	}
	return o, err
}
