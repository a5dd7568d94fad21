package bucket

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// SetLive is what was set live for the lanes and routes of a gateway, as one process has seen it last. The zero
// SetLive has seen nothing. It is not safe for concurrent use.
type SetLive struct {
	seen bool
	at   liveAt
	all  map[string]string // text by lane:NAME or route:NAME
	gone map[string]string // what was set before and has been reset
}

// liveAt says which changes of lanes and routes Redis knows: the number version of this epoch, which begins
// when the first one is written. Zero if it knows none.
type liveAt struct{ epoch, version int64 }

// recallChunk is for how many lanes and routes one script restores what was set: that takes Redis a few
// milliseconds.
const recallChunk = 200

// Recall keeps up with what is set live for lanes and routes. If Redis has lost what this process has seen,
// Recall restores it: after FLUSHALL, after a restore of an older snapshot, and if the key was deleted. What
// Redis has of other lanes stays. It returns for how many lanes and routes it restored something.
func (p *Pacer) Recall(ctx context.Context, s *SetLive) (told int, err error) {
	at, n, err := p.liveAt(ctx)
	if err != nil || s.seen && at == s.at && n == int64(len(s.all)) {
		return 0, err
	}
	all, err := p.overrides(ctx) // older than the version: what is set meanwhile is read again
	if err != nil {
		return 0, err
	}
	if missing := s.missing(at, all); len(missing) > 0 {
		if told, err = p.tellAgain(ctx, missing, at, liveAt{cmp.Or(at.epoch, s.at.epoch), max(at.version, s.at.version) + 1}); err != nil {
			return told, err
		}
		if at, _, err = p.liveAt(ctx); err == nil {
			all, err = p.overrides(ctx)
		}
	}
	if err == nil {
		s.learn(at, all)
	}
	return told, err
}

// learn takes in what Redis has.
func (s *SetLive) learn(at liveAt, all map[string]string) {
	if s.gone == nil || at.epoch != s.at.epoch {
		s.gone = map[string]string{}
	}
	maps.Copy(s.gone, s.all)
	maps.DeleteFunc(s.gone, func(of, _ string) bool { _, there := all[of]; return there })
	s.seen, s.at, s.all = true, at, all
}

func (p *Pacer) overrides(ctx context.Context) (map[string]string, error) {
	all, err := p.client.HGetAll(ctx, p.keys.Overrides()).Result()
	if err != nil {
		return nil, fmt.Errorf("what was set live for lanes and routes of %s could not be read: %w", p.gateway, err)
	}
	return all, nil
}

// missing returns what this process has seen set and Redis has lost; all is everything that Redis has now. An
// operator's change since the loss takes precedence over what was seen before it.
func (s *SetLive) missing(now liveAt, all map[string]string) map[string]string {
	if !s.lost(now, len(all)) {
		return nil
	}
	missing := map[string]string{}
	for of, text := range s.all {
		if is, there := all[of]; !there || now.epoch == s.at.epoch && is != text {
			missing[of] = text
		}
	}
	for of, text := range s.gone {
		if now.epoch == s.at.epoch && all[of] == text {
			missing[of] = "" // it was reset, and the loss has brought it back
		}
	}
	return missing
}

// lost reports whether Redis, which has n entries of these changes now, has lost some that this process has
// seen.
func (s *SetLive) lost(now liveAt, n int) bool {
	if n == 0 && now == s.at {
		return true
	}
	return s.at.epoch != 0 && (now.epoch != s.at.epoch || now.version < s.at.version)
}

func (p *Pacer) liveAt(ctx context.Context) (at liveAt, n int64, err error) {
	var known *redis.SliceCmd
	var size *redis.IntCmd
	_, err = p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		known, size = pipe.HMGet(ctx, p.keys.Lanes(), "oe", "ov"), pipe.HLen(ctx, p.keys.Overrides())
		return nil
	})
	if err != nil {
		return at, 0, fmt.Errorf("what was set live for lanes and routes of %s could not be read: %w", p.gateway, err)
	}
	for i, to := range []*int64{&at.epoch, &at.version} {
		if text, is := known.Val()[i].(string); is {
			f, _ := strconv.ParseFloat(text, 64)
			*to = int64(f)
		}
	}
	return at, size.Val(), nil
}

// tellAgain restores in Redis, which is at now, what it has lost; with all of it restored it is at then. If
// something is set meanwhile, the rest is restored the next time.
func (p *Pacer) tellAgain(ctx context.Context, missing map[string]string, now, then liveAt) (told int, err error) {
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(missing)), recallChunk) {
		to := now
		if told+len(chunk) == len(missing) {
			to = then
		}
		args := []any{now.epoch, now.version, to.epoch, to.version, redisdb.Wake, p.gateway}
		for _, of := range chunk {
			args = append(args, of, missing[of])
		}
		done, err := recallScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, args...).Int64()
		if err != nil || done == 0 {
			return told, err
		}
		told += len(chunk)
	}
	return told, nil
}
