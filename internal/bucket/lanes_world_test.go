package bucket

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// lanesWorld drives a gateway with lanes in virtual time, beside a model of it without short cuts.
type lanesWorld struct {
	*world
	laneTrial
	processes []*Pacer
	plan      *plan
	events    events
	made      int
	wrong     []string

	queue     map[job.Flow]*flowModel
	account   []use
	ofRoute   map[string][]use
	ofLane    map[string][]use
	last, tat int64
	lost      bool
	granted   int
	misses    int

	scopes scopesModel
	sent   []sentCall
	pairs  map[string]*fair
	floor  map[string]*floorRun
	set    liveSet
	turns  map[job.Flow]*turnRun
	again  map[job.Flow]int // calls that were given back and not made again, of a class and lane
}

type sentCall struct {
	at, cost int64
	flow     job.Flow
	bound    int // it was bound to its slot after so many others
	span     *laneSpan
}

// floorRun is a stretch in which a class had a job that could be called at each binding.
type floorRun struct{ units, got int64 }

type event struct {
	at  int64
	seq int
	do  func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *lanesWorld) at(t int64, do func()) {
	w.made++
	heap.Push(&w.events, &event{t, w.made, do})
}

func (w *lanesWorld) fail(format string, args ...any) {
	if len(w.wrong) < 3 {
		w.wrong = append(w.wrong, fmt.Sprintf("at %d: ", w.now-epoch)+fmt.Sprintf(format, args...))
	}
}

func newLanesWorld(base *world, tr laneTrial) *lanesWorld {
	w := &lanesWorld{world: base, laneTrial: tr, queue: map[job.Flow]*flowModel{}, ofRoute: map[string][]use{}, ofLane: map[string][]use{},
		pairs: map[string]*fair{}, floor: map[string]*floorRun{}, set: newLiveSet(), turns: map[job.Flow]*turnRun{}, again: map[job.Flow]int{}}
	for _, c := range tr.cfg.Classes {
		if c.Usual {
			tr.cfg.First = append(tr.cfg.First, w.keys.Due(), w.keys.Pending())
		} else {
			tr.cfg.First = append(tr.cfg.First, w.keys.First(c.Name))
		}
	}
	for range tr.processes {
		p := w.pacer(tr.cfg)
		if pl := p.plan.Load(); tr.parts && len(pl.lane) > 0 {
			pl.lane[0].width = (pl.lane[0].length + 31) / 32
			pl.lane[0].ready += pl.tooLate
		}
		p.bounds.observe(0, 1, w.now)
		p.bounds.begun = math.MinInt64 / 2 // it has watched Redis's clock for long
		w.processes = append(w.processes, p)
	}
	w.plan = w.processes[0].plan.Load()
	return w
}

// play runs the trial to its end and returns what was wrong.
func (w *lanesWorld) play() []string {
	end := w.now + w.lasts
	gap := (1 + float64(w.costs)) / 2 * float64(w.plan.windows[0].length) / float64(w.plan.windows[0].n) / w.load
	var arrive func()
	arrive = func() {
		n := int64(1)
		if w.rng.IntN(10) == 0 {
			n += w.rng.Int64N(w.together)
		}
		for range n {
			w.arrive(w.newJob())
		}
		if w.now < end {
			w.at(w.now+1+int64(w.rng.ExpFloat64()*gap*float64(n)), arrive)
		}
	}
	w.at(w.now, arrive)
	for _, p := range w.processes {
		w.at(w.now+w.rng.Int64N(5000), func() { w.pick(p, end) })
	}
	if w.losing {
		w.at(w.now+3*w.plan.windows[0].length, func() { w.loseWrites(end) })
	}
	if w.operated {
		w.at(w.now, func() { w.operate(end) })
	}
	for steps := 0; len(w.events) > 0 && len(w.wrong) == 0; steps++ {
		e := heap.Pop(&w.events).(*event)
		w.now = max(w.now, e.at)
		e.do()
		if steps > 40_000 {
			w.fail("it does not end")
		}
	}
	w.checkWindows()
	w.checkCounts()
	w.forget() // KEYS of many trials takes longer than an answer may
	return w.wrong
}

// checkCounts checks the numbers of tasks and lanes that Redis keeps against the lines.
func (w *lanesWorld) checkCounts() {
	ctx, is, busy, prefix := context.Background(), map[string]int64{}, map[string]bool{}, strings.TrimSuffix(w.keys.Lanes(), "lanes")
	for _, key := range w.allKeys() {
		line, of := strings.CutPrefix(key, prefix+"flow:")
		if !of {
			continue
		}
		part := strings.SplitN(line, ":", 4)
		n := w.client.LLen(ctx, key).Val()
		is["tasks"] += n
		is["n"+part[0]+":"+part[1]] += n
		busy[part[3]] = true
	}
	is["busy"] = int64(len(busy))
	for name, said := range w.client.HGetAll(ctx, w.keys.Lanes()).Val() {
		if name == "tasks" || name == "busy" || name[0] == 'n' {
			if n, _ := strconv.ParseInt(said, 10, 64); n != is[name] {
				w.fail("%s are said to be %d, and are %d", name, n, is[name])
			}
			delete(is, name)
		}
	}
	for name, n := range is {
		if n > 0 {
			w.fail("Redis has no number of %s, which are %d", name, n)
		}
	}
}

func (w *lanesWorld) newJob() laneJob {
	w.granted++
	j := laneJob{id: "j" + strconv.Itoa(w.granted), generation: 1, cost: 1}
	lane := w.rng.IntN(w.lanes)
	if w.crowd && w.rng.IntN(10) < 7 {
		lane = 0
	}
	j.flow.Lane = []string{"", "m"}[min(lane, 1)] + []string{"", strconv.Itoa(lane)}[min(lane, 1)]
	if n := len(w.cfg.Routes); n > 0 {
		route := w.rng.IntN(n + 1)
		if w.alike {
			route = lane % (n + 1)
		}
		if route > 0 {
			j.flow.Route = w.cfg.Routes[route-1].Name
		}
	}
	if n := len(w.cfg.Classes); n > 0 {
		if class := w.cfg.Classes[w.rng.IntN(n)]; !class.Usual {
			j.flow.Class = class.Name
		}
	}
	if w.costs > 1 {
		j.cost += w.rng.Int64N(w.costs)
	}
	return j
}

// arrive adds a new job to the queue: to its class's line or, if it was called before, to that of retries or replays.
func (w *lanesWorld) arrive(j laneJob) {
	line, door := 1, w.keys.Pending()
	switch {
	case w.rng.Float64() < w.called:
		line = 2 + w.rng.IntN(2)
		door = []string{w.keys.Retries(), w.keys.Replays()}[line-2]
	case w.rng.IntN(10) == 0 && j.flow.Class == "":
		line, door = 0, w.keys.Due()
	case j.flow.Class != "":
		door = w.keys.First(j.flow.Class)
	}
	w.put(j, line, door, true)
}

func (w *lanesWorld) put(j laneJob, line int, door string, tail bool) {
	ctx, c := context.Background(), w.client
	fields := []any{record.Short("state"), "queued"}
	for name, value := range map[string]string{"priority": j.flow.Class, "route": j.flow.Route, "lane": j.flow.Lane} {
		if value != "" {
			fields = append(fields, record.Short(name), value)
		}
	}
	pipe := c.Pipeline()
	pipe.HSet(ctx, w.keys.Job(j.id), fields...)
	pipe.HSet(ctx, w.keys.Task(j.task()), "msg", j.task(), "state", "pending")
	if j.cost > 1 {
		pipe.HSet(ctx, w.keys.Costs(), j.task(), j.cost)
	}
	pipe.LPush(ctx, door, j.task())
	if _, err := pipe.Exec(ctx); err != nil {
		w.t.Fatal(err)
	}
	f := w.flowOf(j.flow)
	if tail {
		f.lines[line] = append(f.lines[line], j)
	} else {
		f.lines[line] = append([]laneJob{j}, f.lines[line]...)
	}
}

func (w *lanesWorld) flowOf(f job.Flow) *flowModel {
	k := flowKey(f)
	if w.queue[k] == nil {
		w.queue[k] = &flowModel{}
	}
	return w.queue[k]
}

// windowsNow are the windows as a process sees them now: permits take longer as long as it has not watched Redis's clock for long.
type windowsNow struct {
	account, lane []window
	routes        map[string][]window
	own           map[string][]window // of lanes with limits of their own
	reach         int64
}

func (n windowsNow) of(lane string) []window {
	if own := n.own[lane]; own != nil {
		return own
	}
	return n.lane
}

func (w *lanesWorld) windowsOf(p *Pacer) (now windowsNow) {
	pl := p.plan.Load()
	now.routes = map[string][]window{}
	args := p.windowArgs(pl)[4:]
	for i, win := range pl.windows {
		win.ready += args[5*i+3].(int64) + args[5*i+4].(int64)
		now.account = append(now.account, win)
	}
	var arg besideArg
	if err := json.Unmarshal([]byte(p.beside(pl, wish{})), &arg); err != nil {
		w.t.Fatal(err)
	}
	of := func(all [][4]int64, length []window) (out []window) {
		for i, a := range all {
			out = append(out, window{n: a[0], ready: a[1] + a[3], width: a[2], length: length[i].length})
		}
		return out
	}
	now.lane, now.reach, now.own = of(arg.Lane, pl.lane), arg.Reach, w.ownWindows(pl, arg.Own)
	for _, route := range strings.Fields(arg.Routes) {
		name, text, _ := strings.Cut(route, "=")
		var all [][4]int64
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			w.t.Fatal(err)
		}
		now.routes[name] = of(all, pl.routes[name])
	}
	return now
}

// readyAt returns when a flow may be called at a cost, at t at the earliest.
func (w *lanesWorld) readyAt(by windowsNow, f job.Flow, cost, t int64) int64 {
	if w.paused(f) {
		return math.MaxInt64
	}
	t = roomInAll(w.account, by.account, cost, t)
	t = roomInAll(w.ofLane[f.Lane], by.of(f.Lane), cost, t)
	t = roomInAll(w.ofRoute[f.Route], by.routes[f.Route], cost, t)
	return max(w.scopes.laneReady(w, f.Lane, t), w.scopes.routeReady(w, f.Route, t))
}

// earliest returns when the next slot may be, over all flows.
func (w *lanesWorld) earliest(by windowsNow, lead int64) (int64, job.Flow) {
	best, of := int64(math.MaxInt64), job.Flow{}
	for f, lines := range w.queue {
		if lines.empty() {
			continue
		}
		if t := w.readyAt(by, f, 1, max(w.now+lead, w.last, w.tat-w.plan.tolerance)); t < best {
			best, of = t, f
		}
	}
	return best, of
}

func (w *lanesWorld) exact() bool {
	return w.costs == 1 && !w.lost && !w.losing && w.now >= w.set.vague
}

func (w *lanesWorld) pick(p *Pacer, end int64) {
	if w.now > end {
		return
	}
	if w.late > 0 {
		p.late.lateness = readiness{mean: []float64{0, 30_000, 1e6}[w.rng.IntN(3)]}
	}
	by := w.windowsOf(p)
	floors, G := w.floors()
	w.scopes.read(w)
	want, lead := 1+w.rng.Int64N(w.chunk), int64(1000)
	g := w.reserve(p, wish{want: want, lead: lead})
	for i, s := range g.slots {
		w.bound(p, by, s, lead, i == 0, floors, G)
	}
	if int64(len(g.slots)) < want && w.exact() && g.state != stateLost && g.state != stateReshape {
		if t, f := w.earliest(by, lead); t <= w.now+by.reach {
			w.fail("%s with %d of %d, though %v may be called in %d of %d µs", g.state, len(g.slots), want, f, t-w.now, by.reach)
		}
	}
	w.lost = w.lost || g.state == stateLost
	var next int64
	switch {
	case len(g.slots) > 0:
		next = 1 + w.rng.Int64N(by.reach)
	case g.state == stateIdle:
		next = 1 + w.rng.Int64N(20_000)
	default:
		next = max(50, min(g.hint.Microseconds(), 50_000))
		if w.rng.IntN(4) == 0 {
			next = 1 + w.rng.Int64N(next)
		}
	}
	w.at(w.now+next, func() { w.pick(p, end) })
}

// floors returns by when each class must be served, as Redis has it.
func (w *lanesWorld) floors() (by map[string]float64, G float64) {
	h, err := w.client.HGetAll(context.Background(), w.keys.Lanes()).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	by = map[string]float64{}
	for name, value := range h {
		if x, err := strconv.ParseFloat(value, 64); err == nil && name[0] == 'D' {
			by[name[1:]] = x
		} else if name == "G" {
			G = x
		}
	}
	return by, G
}

// costOf is what a job takes: at most the lowest limit that applies to it.
func (w *lanesWorld) costOf(j laneJob) int64 {
	cost := j.cost
	for _, all := range [][]window{w.plan.windows, w.laneWindows(j.flow.Lane), w.plan.routes[j.flow.Route]} {
		for _, win := range all {
			cost = min(cost, win.n)
		}
	}
	return cost
}

func (w *lanesWorld) bound(p *Pacer, by windowsNow, s job.Slot, lead int64, first bool, floors map[string]float64, G float64) {
	f := flowKey(s.Flow)
	lines := w.queue[f]
	if lines == nil || lines.empty() {
		w.fail("%s of %v was bound, which has no jobs", s.Task, f)
		return
	}
	if w.paused(f) {
		w.fail("%s of %v was bound, which is paused", s.Task, f)
	}
	if w.exact() {
		if t, other := w.earliest(by, lead); s.At != t {
			w.fail("the slot is in %d µs of %v, but %v may be called in %d", s.At-w.now, f, other, t-w.now)
		}
		w.checkClass(by, s, first, floors, G)
		w.checkTurns(by, s)
	} else {
		clear(w.turns)
	}
	if !w.lost && !w.losing {
		chosen := s.At
		if w.costs > 1 { // the job was chosen for the first moment at which the account had room for a unit, and its slot may be later
			chosen = roomInAll(w.account, by.account, 1, max(w.now+lead, w.last, w.tat-w.plan.tolerance))
		}
		w.checkShares(by, s, chosen)
		w.set.paid[f] = w.set.weighed[f.Lane]
	}
	j := lines.take(w.scopes.bind(w, s))
	if cost := w.costOf(j); s.Task != j.task() || s.Message != j.task() || s.Cost != cost {
		w.fail("%s (%q) of %v was bound at a cost of %d: the next one is %s, which costs %d", s.Task, s.Message, f, s.Cost, j.task(), cost)
	}
	if s.At < w.last && !w.lost || s.At < w.now+lead || s.At > w.now+by.reach {
		w.fail("a slot in %d µs, %d after the last", s.At-w.now, s.At-w.last)
	}
	w.last, w.tat = s.At, max(w.tat, s.At)+w.spacing*s.Cost
	u := use{s.At, s.Counted, s.Cost}
	w.account, w.ofRoute[f.Route], w.ofLane[f.Lane] = append(w.account, u), append(w.ofRoute[f.Route], u), append(w.ofLane[f.Lane], u)
	w.misses++
	switch x := w.rng.Float64(); {
	case x < w.back:
		w.at(w.now+w.rng.Int64N(max(s.At-w.now+w.plan.tooLate, 1)), func() { w.giveBack(p, s, j) })
	case x < w.back+w.killed: // a sweep puts it back under another generation
		w.at(s.At+1_000_000+w.rng.Int64N(1_000_000), func() {
			j.generation++
			door, line := w.keys.Due(), 0
			if j.flow.Class != "" {
				door = w.keys.First(j.flow.Class)
			}
			w.put(j, line, door, true)
		})
	default:
		w.call(p, s, j)
	}
}

// call writes the job's call, late or not, and reports the moment if Redis counts another one.
func (w *lanesWorld) call(p *Pacer, s job.Slot, j laneJob) {
	pl := p.plan.Load()
	wrote := s.At + w.extreme(pl.epsilon)
	if w.rng.Float64() < w.late {
		wrote = s.At + pl.epsilon + w.rng.Int64N(pl.tooLate-pl.epsilon)
	}
	if w.lasting > 0 {
		w.at(wrote+w.rng.Int64N(w.lasting), func() { w.end(p, s, j) })
	}
	w.sent = append(w.sent, sentCall{wrote + w.extreme(w.cfg.Jitter.Microseconds()), s.Cost, flowKey(s.Flow), w.misses, w.set.now(s.Flow.Lane)})
	if edge := p.late.edge(s); wrote > edge+pl.epsilon || edge > wrote+pl.epsilon {
		w.at(wrote+w.rng.Int64N(3000), func() {
			c := wasLate(p, s, wrote)
			p.reportLate([]lateCall{c})
			for _, uses := range [][]use{w.account, w.ofRoute[s.Flow.Route], w.ofLane[s.Flow.Lane]} {
				w.move(uses, s, c.count)
			}
		})
	}
}

func (w *lanesWorld) find(uses []use, s job.Slot) int {
	return slices.Index(uses, use{s.At, s.Counted, s.Cost})
}

// move makes a use count at another moment. Windows in parts go by the slot: they allow for all the lateness in these trials.
func (w *lanesWorld) move(uses []use, s job.Slot, to int64) {
	if i := w.find(uses, s); i >= 0 {
		uses[i].edge = to
	}
}

func (w *lanesWorld) giveBack(p *Pacer, s job.Slot, j laneJob) {
	if err := p.releaseNow([]job.Slot{s}); err != nil {
		w.t.Fatal(err)
	}
	w.drop(&w.account, s)
	w.scopes.over(s)
	route, lane := w.ofRoute[s.Flow.Route], w.ofLane[s.Flow.Lane]
	w.drop(&route, s)
	w.drop(&lane, s)
	w.ofRoute[s.Flow.Route], w.ofLane[s.Flow.Lane] = route, lane
	if s.At == w.last {
		w.tat -= w.plan.spacing * s.Cost
	}
	line := map[int64]int{1: 0, 2: 1, 4: 2, 8: 3}[s.Flow.Line]
	f := w.flowOf(s.Flow)
	f.lines[line] = append([]laneJob{j}, f.lines[line]...)
	for key := range w.pairs { // what was given back was no service
		delete(w.pairs, key)
	}
	w.again[job.Flow{Class: s.Flow.Class, Lane: s.Flow.Lane}]++
}

func (w *lanesWorld) drop(uses *[]use, s job.Slot) {
	if i := w.find(*uses, s); i >= 0 {
		*uses = slices.Delete(slices.Clone(*uses), i, i+1)
	}
}

// loseWrites makes Redis forget everything about the gateway or, as after a fail-over, what came in the last moments.
func (w *lanesWorld) loseWrites(end int64) {
	if w.now > end {
		return
	}
	first := w.plan.windows[0].length
	w.lost = true
	if w.rng.IntN(3) == 0 {
		w.forget()
		w.queue = map[job.Flow]*flowModel{}
	} else {
		ctx, kept, queue := context.Background(), map[string]string{}, map[job.Flow]*flowModel{}
		for _, key := range w.allKeys() {
			kept[key] = w.client.Dump(ctx, key).Val()
		}
		for f, lines := range w.queue {
			queue[f] = &flowModel{called: lines.called}
			for i, line := range lines.lines {
				queue[f].lines[i] = slices.Clone(line)
			}
		}
		w.at(w.now+w.rng.Int64N(2*first), func() {
			w.forget()
			for key, dump := range kept {
				w.client.RestoreReplace(ctx, key, 0, dump)
			}
			w.client.HSet(ctx, w.keys.Pace(), "r", "another")
			w.queue = queue
		})
	}
	w.at(w.now+4*first+w.rng.Int64N(6*first), func() { w.loseWrites(end) })
}

func (w *lanesWorld) allKeys() []string {
	keys, err := w.client.Keys(context.Background(), "*{"+testkit.GatewayOf(w.keys.Pace())+"}*").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

func (w *lanesWorld) forget() {
	if keys := w.allKeys(); len(keys) > 0 {
		w.client.Del(context.Background(), keys...)
	}
}

// checkClass checks the class of a job against the model's choice, and the floors.
func (w *lanesWorld) checkClass(by windowsNow, s job.Slot, first bool, floors map[string]float64, G float64) {
	able := map[string]bool{}
	for f, lines := range w.queue {
		if !lines.empty() && w.readyAt(by, f, 1, s.At) <= s.At {
			able[f.Class] = true
		}
	}
	all, _ := classesOf(w.cfg.Classes)
	want, owed, highest := "?", math.Inf(1), "?"
	for _, c := range all {
		name, every := c[0].(string), 0.0
		if e, ok := c[1].(float64); ok {
			every = e
		}
		if able[name] && highest == "?" {
			highest = name
		}
		if able[name] && every > 0 && floors[name] <= G && floors[name] < owed {
			want, owed = name, floors[name]
		}
		run := w.floor[name]
		if run == nil || !able[name] {
			run = &floorRun{}
			w.floor[name] = run
		}
		if able[name] && every > 0 {
			run.units++
			if s.Flow.Class == name {
				run.got++
			}
			if due := math.Floor(float64(run.units)/every - 1 - float64(len(all))/every - 1e-9); float64(run.got) < due {
				w.fail("the class %q has %d of %d calls, its floor is one in %.1f", name, run.got, run.units, every)
			}
		}
	}
	if want == "?" {
		want = highest
	}
	if first && s.Flow.Class != want {
		w.fail("a job of the class %q is called, not of %q (%v may be, %v of %v)", s.Flow.Class, want, able, floors, G)
	}
}

// checkShares checks any two lanes of a class on one route against the bound, as long as both have jobs that their limits allow.
func (w *lanesWorld) checkShares(by windowsNow, s job.Slot, chosen int64) {
	if !w.alike || w.now < w.set.vague {
		clear(w.pairs)
		return
	}
	served := flowKey(s.Flow)
	able := map[job.Flow]bool{}
	waits := map[string]bool{} // a lane that keeps its permits for a job that costs more waits as a whole
	for f, lines := range w.queue {
		if lines.empty() || w.paused(f) {
			continue
		}
		able[f] = true
		var dearest int64 // of another line than the next one, too: a job that came in ahead of the one for which permits are kept does not take them
		for _, j := range lines.heads() {
			dearest = max(dearest, w.costOf(j))
		}
		if roomInAll(w.ofLane[f.Lane], by.of(f.Lane), dearest, chosen) > chosen || w.scopes.laneReady(w, f.Lane, chosen) > chosen {
			waits[f.Lane] = true
		}
	}
	for a := range w.queue {
		for b := range w.queue {
			if a.Class != b.Class || a.Route != b.Route || a.Lane >= b.Lane {
				continue
			}
			key := a.Class + ":" + a.Route + ":" + a.Lane + ":" + b.Lane
			if !able[a] || !able[b] || waits[a.Lane] || waits[b.Lane] || w.set.owing(a) || w.set.owing(b) {
				delete(w.pairs, key)
				continue
			}
			if w.pairs[key] == nil {
				w.pairs[key] = &fair{}
			}
			d := 0.0
			switch served {
			case a:
				d = float64(s.Cost) / w.weight(a.Lane)
			case b:
				d = -float64(s.Cost) / w.weight(b.Lane)
			}
			if gap := w.pairs[key].add(d); gap > float64(w.costs)/w.weight(a.Lane)+float64(w.costs)/w.weight(b.Lane)+2.0/1024+1e-9 {
				w.fail("the lanes %q and %q of one route, with weights %g and %g, came %.3f units apart", a.Lane, b.Lane, w.weight(a.Lane), w.weight(b.Lane), gap)
			}
		}
	}
}

// checkWindows counts what the gateway has seen in every rolling window: of the account, of each route and of each lane.
func (w *lanesWorld) checkWindows() {
	check := func(name string, of func(job.Flow) bool, windows []window) {
		var at, cost []int64
		for _, c := range w.sent {
			if of(c.flow) {
				at, cost = append(at, c.at), append(cost, c.cost)
			}
		}
		for _, win := range windows {
			if most := mostInWindow(at, cost, win.length); most > win.n {
				w.fail("%s: %d units in a window of %d µs, the limit is %d", name, most, win.length, win.n)
			}
		}
	}
	check("the account", func(job.Flow) bool { return true }, w.plan.windows)
	for name, windows := range w.plan.routes {
		check("the route "+name, func(f job.Flow) bool { return f.Route == name }, windows)
	}
	if w.operated {
		w.checkSpans()
		return
	}
	for lane := range w.ofLane {
		check("the lane "+lane, func(f job.Flow) bool { return f.Lane == lane }, w.plan.lane)
	}
}
