package bucket

import (
	"cmp"
	"context"
	_ "embed" // the scripts are files
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed lane_sizes.lua
var laneSizesLua string

//go:embed lane_look.lua
var laneLookLua string

var (
	laneSizesScript = redisdb.NewScript(laneSizesLua)
	laneLookScript  = redisdb.NewScript(redisdb.NowLua, permitsLua, lanesLua, laneLookLua)
)

// LaneTotals is what is known of all lanes of a gateway.
type LaneTotals struct {
	// Busy is how many lanes have jobs in the queue. Throttled is how many of those have no permit and may not
	// be called before some moment.
	Busy, Throttled int64
	// Jobs is how many jobs are in lanes.
	Jobs int64
	// Flows is how many of them each class has on each route; the Lane of its keys is empty.
	Flows map[job.Flow]int64
	// Held are the routes that are held on their own, or were lately, in no order.
	Held []string
}

// On returns how many jobs are in lanes that use a route. Empty is the default route.
func (t LaneTotals) On(route string) (n int64) {
	for f, jobs := range t.Flows {
		if f.Route == route {
			n += jobs
		}
	}
	return n
}

// Of returns how many jobs of a class are in lanes. Empty is the default class.
func (t LaneTotals) Of(class string) (n int64) {
	for f, jobs := range t.Flows {
		if f.Class == class {
			n += jobs
		}
	}
	return n
}

// LookAtLanes returns what is known of all lanes of a gateway.
func LookAtLanes(ctx context.Context, c redis.UniversalClient, gateway string) (t LaneTotals, err error) {
	k := redisdb.NewKeys(gateway)
	var known *redis.MapStringStringCmd
	var throttled *redis.IntCmd
	if _, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		known, throttled = p.HGetAll(ctx, k.Lanes()), p.ZCard(ctx, k.Throttled())
		return nil
	}); err != nil {
		return t, fmt.Errorf("what is known of the lanes of %s could not be read: %w", gateway, err)
	}
	t.Throttled, t.Flows = throttled.Val(), map[job.Flow]int64{}
	for name, text := range known.Val() {
		n, _ := strconv.ParseFloat(text, 64)
		class, route, flow := strings.Cut(strings.TrimPrefix(name, "n"), ":")
		switch {
		case name == "tasks":
			t.Jobs = max(int64(n), 0)
		case name == "busy":
			t.Busy = max(int64(n), t.Throttled)
		case strings.HasPrefix(name, "H"):
			t.Held = append(t.Held, name[1:])
		case flow && name[0] == 'n' && n > 0:
			t.Flows[job.Flow{Class: class, Route: route}] = int64(n)
		}
	}
	return t, nil
}

// LaneSize is a lane with jobs in the queue.
type LaneSize struct {
	// Lane is its name; empty for the jobs that have no lane.
	Lane string
	// Jobs is how many wait in the queue.
	Jobs int64
	// Until is the moment, on Redis's clock, before which the lane is not called, as it has no permit; zero if
	// it may be called.
	Until time.Time
	// Next is a task at the head of one of its lines; Class and Route are those of the task. Only LaneSizesOf
	// sets them.
	Next, Class, Route string
}

// LaneCursor is a position in the lanes of a gateway; the zero LaneCursor is the beginning.
type LaneCursor struct {
	set string
	at  string
}

// laneSizesStep is about how many lanes one script looks at, which takes Redis about a millisecond.
const laneSizesStep = 500

// LaneSizes visits lanes with jobs from a cursor on, until it has looked at most lanes, or a few more. It
// returns the new position, and whether that is the end. A lane with jobs on several routes or of several
// classes is visited several times; one that is throttled, or may be called again, meanwhile may be missed.
func LaneSizes(ctx context.Context, c redis.UniversalClient, gateway string, from LaneCursor, most int, visit func(LaneSize)) (at LaneCursor, end bool, err error) {
	k := redisdb.NewKeys(gateway)
	sets, err := redisdb.LaneSets(ctx, c, k)
	if err != nil {
		return from, false, fmt.Errorf("the lanes of %s could not be read: %w", gateway, err)
	}
	slices.Sort(sets)
	at = from
	for _, set := range sets {
		if set < at.set {
			continue
		}
		if set != at.set || at.at == "" {
			at = LaneCursor{set, "0"}
		}
		for {
			if most <= 0 {
				return at, false, nil
			}
			next, all, err := laneSizes(ctx, c, gateway, set, at.at)
			if err != nil {
				return at, false, err
			}
			for _, one := range all {
				visit(one)
			}
			most -= len(all)
			if at.at = next; next == "0" {
				break
			}
		}
		at = LaneCursor{set + "\x00", ""}
	}
	return LaneCursor{}, true, nil
}

// LaneSizesOf returns the sizes of the named lanes, also of those without jobs.
func LaneSizesOf(ctx context.Context, c redis.UniversalClient, gateway string, names []string) ([]LaneSize, error) {
	if len(names) == 0 {
		return nil, nil
	}
	_, all, err := laneSizes(ctx, c, gateway, redisdb.NewKeys(gateway).Throttled(), "", names...)
	return all, err
}

func laneSizes(ctx context.Context, c redis.UniversalClient, gateway, set, cursor string, names ...string) (next string, all []LaneSize, err error) {
	args := []any{cursor, laneSizesStep}
	for _, name := range names {
		args = append(args, name)
	}
	v, err := laneSizesScript.Run(ctx, c, []string{redisdb.NewKeys(gateway).Lanes(), set}, args...).Slice()
	if err != nil {
		return "", nil, fmt.Errorf("the lanes of %s could not be read: %w", gateway, err)
	}
	if len(v)%5 != 1 {
		return "", nil, redisdb.BadReply("lane_sizes.lua", v)
	}
	next = fmt.Sprint(v[0])
	for i := 1; i < len(v); i += 5 {
		jobs, _ := v[i+1].(int64)
		class, route, _ := strings.Cut(fmt.Sprint(v[i+4]), ":")
		all = append(all, LaneSize{fmt.Sprint(v[i]), jobs, momentOf(v[i+2]), fmt.Sprint(v[i+3]), class, route})
	}
	return next, all, nil
}

// LargestLanes is the lanes of a gateway with the most jobs.
type LargestLanes struct {
	// Lanes begins with the one with the most jobs.
	Lanes []LaneSize
	// Looked is how many lanes were looked at.
	Looked int64
	// All means that these were all lanes with jobs. If it is false, there may be larger ones.
	All bool
}

// Largest looks at up to most lanes, and returns the n with the most jobs for which meant is true; a nil meant
// is true for all.
func Largest(ctx context.Context, c redis.UniversalClient, gateway string, n, most int, meant func(LaneSize) bool) (l LargestLanes, err error) {
	seen := map[string]bool{}
	_, l.All, err = LaneSizes(ctx, c, gateway, LaneCursor{}, most, func(s LaneSize) {
		if s.Jobs > 0 && !seen[s.Lane] {
			if seen[s.Lane] = true; meant == nil || meant(s) {
				l.Lanes = append(l.Lanes, s)
			}
		}
		if len(l.Lanes) >= 2*n+laneSizesStep {
			l.Lanes = First(l.Lanes, n)
		}
	})
	l.Lanes, l.Looked = First(l.Lanes, n), int64(len(seen))
	return l, err
}

// First returns the n lanes with most jobs, in their order.
func First(all []LaneSize, n int) []LaneSize {
	slices.SortFunc(all, func(a, b LaneSize) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Lane, b.Lane)) })
	return all[:min(n, len(all))]
}

// momentOf reads µs of Redis's clock; 0 is no moment.
func momentOf(v any) time.Time {
	if us, err := strconv.ParseInt(fmt.Sprint(v), 10, 64); err == nil && us > 0 {
		return time.UnixMicro(us).UTC()
	}
	return time.Time{}
}

// LimitUse is how much of a limit is used up.
type LimitUse struct {
	Limit job.Limit
	// Used is how many units are not free again.
	Used int64
}

// FlowSize is the jobs of one class on one route.
type FlowSize struct {
	Flow job.Flow
	Jobs int64
	// Next are the tasks at the heads of its lines; the lines take turns.
	Next []string
}

// LaneLook is what is known of one lane, or of one route.
type LaneLook struct {
	Now time.Time // on Redis's clock
	// Until is the moment before which the lane is not called; zero if it may be called. Dear means that this is
	// true only of its next job, which costs more than 1.
	Until time.Time
	Dear  bool
	// Ready is when its limits have a permit. They have one now unless Ready is after Now.
	Ready time.Time
	Used  []LimitUse
	// Paused means that its jobs wait until a person resumes it.
	Paused bool
	// Flows are those with jobs; a route has none.
	Flows []FlowSize
}

// Jobs is how many wait in the queue.
func (l LaneLook) Jobs() (n int64) {
	for _, f := range l.Flows {
		n += f.Jobs
	}
	return n
}

// LookAtLane returns what is known of a lane. A lane with neither jobs nor used permits looks like one that
// never existed.
func (p *Pacer) LookAtLane(ctx context.Context, lane string) (LaneLook, error) {
	pl := p.plan.Load()
	windows, own := pl.lane, Override{}
	var err error
	if own, err = Overridden(ctx, p.client, p.gateway, redisdb.OfLane, lane); err != nil {
		return LaneLook{}, err
	}
	if len(own.Limits) > 0 {
		windows = nil
		for _, l := range own.Limits {
			windows = append(windows, pl.ownWindow(l))
		}
	}
	l, err := p.lookBeside(ctx, redisdb.OfLane, lane, windows)
	l.Paused = own.Paused
	return l, err
}

// LookAtRoute returns how much of its own limits a route has used.
func (p *Pacer) LookAtRoute(ctx context.Context, route string) (LaneLook, error) {
	own, err := Overridden(ctx, p.client, p.gateway, redisdb.OfRoute, route)
	if err != nil {
		return LaneLook{}, err
	}
	l, err := p.lookBeside(ctx, redisdb.OfRoute, route, p.plan.Load().routes[route])
	l.Paused = own.Paused
	return l, err
}

func (p *Pacer) lookBeside(ctx context.Context, kind, name string, windows []window) (l LaneLook, err error) {
	args := make([][4]int64, len(windows))
	for i, w := range windows {
		args[i] = [4]int64{w.n, w.ready, w.width, 0}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return l, err
	}
	v, err := laneLookScript.Run(ctx, p.client, []string{p.keys.Pace()}, p.now(), kind, name, string(text)).Slice()
	if err != nil {
		return l, fmt.Errorf("the %s %q of %s could not be read: %w", kind, name, p.gateway, err)
	}
	if len(v) != 6 {
		return l, redisdb.BadReply("lane_look.lua", v)
	}
	used, _ := v[4].([]any)
	if len(used) != len(windows) {
		return l, redisdb.BadReply("lane_look.lua", v)
	}
	l = LaneLook{Now: momentOf(v[0]), Until: momentOf(v[1]), Dear: v[2] == int64(1), Ready: momentOf(v[3])}
	for i, w := range windows {
		n, _ := used[i].(int64)
		l.Used = append(l.Used, LimitUse{job.Limit{N: w.n, Window: time.Duration(w.length) * time.Microsecond}, n})
	}
	flows, _ := v[5].([]any)
	for _, one := range flows {
		f, ok := one.([]any)
		if !ok || len(f) != 3 {
			return l, redisdb.BadReply("lane_look.lua", v)
		}
		class, route, _ := strings.Cut(fmt.Sprint(f[0]), ":")
		size := FlowSize{Flow: job.Flow{Class: class, Route: route, Lane: name}}
		size.Jobs, _ = f[1].(int64)
		heads, _ := f[2].([]any)
		for _, head := range heads {
			size.Next = append(size.Next, fmt.Sprint(head))
		}
		l.Flows = append(l.Flows, size)
	}
	slices.SortFunc(l.Flows, func(a, b FlowSize) int {
		return cmp.Or(cmp.Compare(a.Flow.Class, b.Flow.Class), cmp.Compare(a.Flow.Route, b.Flow.Route))
	})
	return l, nil
}
