package bucket

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Route is a route of a gateway, and the limits of its calls besides those of the gateway.
type Route struct {
	Name string
	// Limits all hold, in every rolling window. None means that only the gateway's limits hold.
	Limits []job.Limit
	// MaxInFlight is how many of its calls may be in flight, over all processes; zero means no cap of its own.
	MaxInFlight int64
}

// Lanes is what each lane of a gateway may have.
type Lanes struct {
	// Limits all hold for each lane, in every rolling window. None means that lanes share the gateway's limits,
	// and nothing else bounds a lane.
	Limits []job.Limit
	// Weight is a lane's share of the calls, relative to other lanes that have jobs, 1 to MaxWeight; zero means 1.
	Weight int64
	// MaxInFlight is how many calls of one lane may be in flight, over all processes; zero means no cap.
	MaxInFlight int64
}

const (
	laneExactN  = 128 // a lane's window with up to this many permits is kept exactly
	laneParts   = 64  // a longer one is kept in this many parts
	routeExactN = 512
	mostLimits  = 4 // of a lane, and of a route
	reachBeyond = 10 * time.Millisecond
)

// beside returns the limits that hold besides the gateway's own.
func (c PacerConfig) beside() (all []job.Limit) {
	if c.Lanes != nil {
		all = append(all, c.Lanes.Limits...)
	}
	for _, r := range c.Routes {
		all = append(all, r.Limits...)
	}
	return all
}

// Laned reports whether slots come with their jobs: the gateway has lanes, or routes that have limits or a cap,
// or that are held on their own.
func (c PacerConfig) Laned() bool {
	capped := slices.ContainsFunc(c.Routes, func(r Route) bool { return r.MaxInFlight > 0 })
	return c.Lanes != nil || len(c.beside()) > 0 || capped || c.Scoped && len(c.Routes) > 0
}

// addLanes computes what routes and lanes may have.
func (p *plan) addLanes() {
	p.waiting = p.cfg.WaitingLanes()
	p.lane, p.routes = []window{}, map[string][]window{}
	kept := func(l job.Limit, exact, parts int64) window {
		w := p.window(l, exact, parts)
		p.exact = p.exact || w.width == 0
		return w
	}
	if p.cfg.Lanes != nil {
		p.exact = true // a lane may get limits of its own
		for _, l := range p.cfg.Lanes.Limits {
			p.lane = append(p.lane, kept(l, laneExactN, laneParts))
		}
	}
	for _, r := range p.cfg.Routes {
		for _, l := range r.Limits {
			p.routes[r.Name], p.maxCost = append(p.routes[r.Name], kept(l, routeExactN, subBuckets)), min(p.maxCost, l.N)
		}
	}
}

// WaitingLanes returns the sets of lanes with jobs. There are none if the gateway has neither lanes nor routes
// with limits.
func (c PacerConfig) WaitingLanes() []string {
	if !c.Laned() {
		return nil
	}
	var classes, routes []string
	for _, class := range c.Classes {
		classes = append(classes, class.Name)
	}
	for _, r := range c.Routes {
		routes = append(routes, r.Name)
	}
	return redisdb.NewKeys(c.Gateway).WaitingLanes(classes, routes)
}

// leadOf is the least distance of a slot that is bound to a job, in µs: its answer takes time to arrive.
func (p *Pacer) leadOf(pl *plan) int64 { return min(p.soonest()+p.distance.is(), pl.horizon/2) }

// reachOf is the greatest distance of a slot that is bound to a job, in µs. It is short, so that an urgent job
// that comes meanwhile takes the next slot.
func (p *Pacer) reachOf(pl *plan) int64 {
	return min(max(p.soonest(), p.Lead().Microseconds())+p.distance.is()+reachBeyond.Microseconds(), pl.horizon)
}

// besideArg is the last argument of pick.lua, as beside.lua reads it.
type besideArg struct {
	Reach   int64            `json:"reach"`
	Lane    [][4]int64       `json:"lane"`
	Routes  string           `json:"routes"` // " name=windows" of each, its windows as JSON: a script reads only a few of many routes
	Classes [][2]any         `json:"classes"`
	Usual   string           `json:"usual"`
	Weight  int64            `json:"weight"`
	Own     string           `json:"own,omitempty"` // ownArg as JSON: few lanes have limits of their own
	Take    string           `json:"take,omitempty"`
	Cap     int64            `json:"cap,omitempty"`
	Caps    map[string]int64 `json:"caps,omitempty"`
}

// beside returns what pick.lua must know of routes, lanes and classes. What Redis's clock may have gained
// within a window makes the permits of that window take longer.
func (p *Pacer) beside(pl *plan, w wish) string {
	now := p.local(p.clock.Now())
	arg := p.besideLane(pl, now)
	arg.Reach = p.reachOf(pl)
	for name, windows := range pl.routes {
		arg.Routes += " " + name + "=" + jsonOf(p.besideOf(pl, windows, now))
	}
	arg.Cap, arg.Caps = pl.caps()
	arg.Classes, arg.Usual = classesOf(pl.cfg.Classes)
	if w.cost > 0 {
		arg.Take = p.keys.Job(w.id)
	}
	return jsonOf(arg)
}

func jsonOf(arg any) string {
	text, err := json.Marshal(arg)
	if err != nil {
		panic(err) // numbers and strings
	}
	return string(text)
}

// besideLane returns what a lane may have.
func (p *Pacer) besideLane(pl *plan, now int64) besideArg {
	arg := besideArg{Lane: p.besideOf(pl, pl.lane, now), Weight: pl.cfg.Lanes.weight()}
	if pl.cfg.Lanes != nil {
		arg.Own = jsonOf(p.own(pl, now))
	}
	return arg
}

func (p *Pacer) besideOf(pl *plan, windows []window, now int64) [][4]int64 {
	all := make([][4]int64, len(windows))
	for i, w := range windows {
		all[i] = [4]int64{w.n, w.ready, w.width, p.longer(pl, w, now)}
	}
	return all
}

// longer returns how much longer a permit of a window takes, by what this process has seen of Redis's clock.
func (p *Pacer) longer(pl *plan, w window, now int64) int64 {
	back := w.ready + w.width + w.ready/8
	return p.bounds.gained(back, now) + p.bounds.unwatched(back, now) + p.bounds.coming(pl.horizon, now)
}

// pickedOf returns a slot with the job that pick.lua has bound to it. A task without a message is left to a
// sweep, which looks for such tasks.
func pickedOf(s job.Slot, v []any) job.Slot {
	text := func(i int) string { t, _ := v[i].(string); return t }
	s.Flow = job.Flow{Class: text(2), Route: text(3), Lane: text(4), Kept: true}
	s.Flow.Line, _ = number(v[5])
	s.Flow.Marks, _ = number(v[6])
	if s.Message = text(1); s.Message != "" {
		s.Task = text(0)
	}
	return s
}

// bound returns the slots that have jobs. It gives back the others, whose tasks have no message.
func (p *Pacer) bound(slots []job.Slot) []job.Slot {
	var empty []job.Slot
	with := slices.DeleteFunc(slices.Clone(slots), func(s job.Slot) bool {
		if s.Task == "" {
			empty = append(empty, s)
		}
		return s.Task == ""
	})
	p.giveBack(empty)
	return with
}

// unbind gives back the permits that slots have of routes and lanes, and the jobs that are bound to the slots
// and were not handed on. The latest slot goes first, so that jobs of one flow are in order again.
func (p *Pacer) unbind(slots []job.Slot) error {
	args := []any{p.plan.Load().cfg.Lanes.weight()}
	for _, s := range slices.Backward(slots) {
		if f := s.Flow; f.Kept {
			args = append(args, s.At, p.late.edge(s), s.Cost, f.Class, f.Route, f.Lane, s.Task, f.Line, s.Lease, f.Marks)
		}
	}
	ctx, cancel := p.within(context.Background(), answerWithin)
	defer cancel()
	return unbindScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Active(), p.keys.Lease(), p.keys.Nobodys()}, args...).Err()
}

// moveBeside makes routes and lanes count calls at other moments.
func (p *Pacer) moveBeside(ctx context.Context, calls []lateCall) error {
	args := []any{calls[0].plan.tooLate}
	for _, c := range calls {
		if f := c.slot.Flow; f.Kept {
			args = append(args, c.slot.At, c.edge, c.slot.Cost, c.count, f.Route, f.Lane)
		}
	}
	return movedScript.Run(ctx, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, args...).Err()
}

// classesOf returns for each class its name, empty for the usual one, and the number of units within which it
// is served at least once (0 = it has no floor). It also returns the usual class's name.
func classesOf(classes []job.Class) (all [][2]any, usual string) {
	for _, c := range classes {
		name, every := c.Name, 0.0
		if c.Usual {
			name, usual = "", c.Name
		}
		if c.Floor > 0 {
			every = 100 / float64(c.Floor)
		}
		all = append(all, [2]any{name, every})
	}
	if !slices.ContainsFunc(classes, func(c job.Class) bool { return c.Usual }) {
		all = append(all, [2]any{"", 0})
	}
	return all, usual
}
