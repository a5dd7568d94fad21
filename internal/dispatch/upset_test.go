package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// upsetTrial is one run of a schedule.
type upsetTrial struct {
	s       upsets
	r       *upsetRedis
	op, eye *wire // an operator's way to Redis, and the judge's
	began   time.Time
	born    int
	file    upsetLimits // the newest
	files   map[upsetLimits]config.Gateway
	over    chan struct{}
	beside  sync.WaitGroup

	mu     sync.Mutex
	all    []*upsetProcess // that live
	ever   []*upsetProcess // and that have lived
	knows  *upsetProcess   // must not come to harm before this moment
	until  time.Duration
	caught time.Duration // for how long all have had the newest file
	judge  upsetJudge
}

func (t *upsetTrial) since() time.Duration { return time.Since(t.began) }

// enough ends the run: something is wrong.
func (t *upsetTrial) enough() {
	select {
	case <-t.over:
	default:
		close(t.over)
	}
}

// gateway returns the gateway of a file with these limits.
func (t *upsetTrial) gateway(limits upsetLimits) config.Gateway {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	if g, ok := t.files[limits]; ok {
		return g
	}
	text := fmt.Sprintf("redis: redis://x\ngateways:\n  %s:\n    request: {url: \"http://gateway.invalid/\", timeout: 5s}\n    leak: {limits: [%s]}\n"+
		"    admission: {limits: [100000/s]}\n", t.r.gateway, strings.ReplaceAll(limits, " ", ", "))
	cfg, err := config.Parse("x.yaml", []byte(text), config.Options{Secrets: true})
	t.r.must(err)
	t.files[limits] = cfg.Gateways[0]
	return cfg.Gateways[0]
}

// called records a call.
func (t *upsetTrial) called(_ int, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge.called(at.Sub(t.began))
}

// listen sets the number of subscribers in Redis. The caller holds mu.
func (t *upsetTrial) listen() {
	n := 0
	for _, p := range t.all {
		if !p.since.IsZero() {
			n++
		}
	}
	t.r.mu.Lock()
	t.r.listen = n
	t.r.mu.Unlock()
}

// spread delivers a published message to all processes that can receive it.
func (t *upsetTrial) spread(channel string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if !p.since.IsZero() && p.w.able() {
			p.heard <- channel
		}
	}
}

// tryUpsets runs a schedule with the program as it is, or a mutant of it, and returns what is wrong.
func tryUpsets(t *testing.T, s upsets, m mutant) (wrong []string) {
	t.Helper()
	testkit.Redis(t)
	name := testkit.Gateway(t)
	bubble(t, func(t *testing.T) {
		u := &upsetTrial{s: s, r: newUpsetRedis(t, name, m), file: s.file, files: map[upsetLimits]config.Gateway{}, over: make(chan struct{})}
		u.judge.t, u.judge.ready = u, -1
		u.r.spread = u.spread
		u.op, u.eye = u.r.wire(time.Millisecond, s.seed), u.r.wire(0, s.seed)
		u.began = time.Now()
		u.judge.changed()
		u.r.fill()
		for range s.processes {
			u.begin()
		}
		u.play()
		u.finish()
		wrong = u.judge.wrong
		if left := u.r.unmade(); len(left) > 0 {
			t.Errorf("no script has the text %q", left)
		}
	})
	return wrong
}

func (t *upsetTrial) begin() {
	p := t.process()
	t.mu.Lock()
	t.all, t.ever = append(t.all, p), append(t.ever, p)
	t.mu.Unlock()
	p.serve()
}

// play runs the schedule to its end, or until something is wrong.
func (t *upsetTrial) play() {
	type act struct {
		at time.Duration
		do func()
	}
	var acts []act
	end := time.Duration(0)
	for i, u := range t.s.all {
		name := fmt.Sprint(i)
		switch u.kind {
		case crashes, failsOver, rollsBack:
			acts = append(acts, act{max(u.at-u.tail, 0), func() { t.save(name) }})
		}
		acts = append(acts, act{u.at, func() { t.happen(u, name) }})
		end = max(end, u.at+u.length)
	}
	for at := lookEvery; at < end+t.s.then; at += lookEvery {
		acts = append(acts, act{at, t.look})
	}
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	for _, a := range acts {
		until(t.began.Add(a.at))
		select {
		case <-t.over:
			return
		default:
			a.do()
		}
	}
}

func (t *upsetTrial) save(name string) {
	t.r.mu.Lock()
	down := t.r.down
	t.r.mu.Unlock()
	if !down {
		t.r.save(name)
	}
}

// look calls the judge, and checks which processes have the newest file.
func (t *upsetTrial) look() {
	t.mu.Lock()
	able, all := false, true
	for _, p := range t.all {
		one := !p.since.IsZero() && p.w.able()
		able, all = able || one, all && one && p.file == t.file
	}
	if t.caught += lookEvery; !all {
		t.caught = 0
	}
	if len(t.judge.old) > 0 && t.caught >= takenOver {
		t.judge.old = nil
		t.judge.changed()
	}
	t.mu.Unlock()
	t.judge.look(able)
}

func (t *upsetTrial) finish() {
	t.r.mu.Lock()
	t.r.down = false
	t.r.mu.Unlock()
	t.mu.Lock()
	all, living := t.ever, t.all
	t.all = nil
	t.mu.Unlock()
	t.enough()
	for _, p := range all {
		p.w.end()
	}
	for _, p := range living {
		p.end(true)
	}
	t.beside.Wait()
	until(time.Now().Add(3 * time.Minute)) // reports of lateness are tried for a minute, and what stands in a buffer comes
}

// later calls do in the background after some time, unless the run is over.
func (t *upsetTrial) later(after time.Duration, do func()) {
	t.beside.Add(1)
	go func() {
		defer t.beside.Done()
		select {
		case <-time.After(after):
			do()
		case <-t.over:
		}
	}()
}

// harmed returns the process to harm; nil if there is none, or if it is the only one that knows what Redis has forgotten.
func (t *upsetTrial) harmed(on int) *upsetProcess {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return nil
	}
	p := t.all[on%len(t.all)]
	if p == t.knows && t.since() < t.until {
		return nil
	}
	return p
}

// happen runs one event.
func (t *upsetTrial) happen(u upset, saved string) {
	switch u.kind {
	case flushes, restarts, crashes, failsOver, rollsBack:
		t.lose(u, saved)
	case leaps:
		t.r.leap(u.tail)
		t.marked("loss", max(u.tail, 0)) // a clock set ahead is charged as if the time had passed
	case slews:
		t.r.run(u.rate)
		t.later(u.length, func() { t.r.run(1) })
		t.marked("slew", 0)
	case sets, resets, stuckSet, pauses, stuckPause:
		t.operate(u)
	case reloads:
		t.reload(u)
	case comes:
		t.begin()
	case allLeave:
		t.allLeave(u)
	default:
		t.harm(u)
	}
}

func (t *upsetTrial) marked(kind string, tail time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge.mark(kind, tail)
}

func (t *upsetTrial) lose(u upset, saved string) {
	t.r.mu.Lock()
	down := t.r.down
	data := t.r.saved[saved]
	t.r.mu.Unlock()
	if down || u.tail > 0 && data == nil {
		return
	}
	if u.kind == flushes {
		if !t.somebodyKnows() {
			return
		}
		t.r.empty()
		t.r.fill()
		t.lost(u)
		return
	}
	t.r.stop()
	t.marked("loss", u.tail)
	if u.tail > 0 {
		t.r.load(saved)
	}
	t.later(u.length, func() {
		uptime, aof := time.Duration(0), u.kind != rollsBack
		if u.kind == failsOver {
			uptime = 10_000 * time.Second
		}
		t.r.start(uptime, aof)
		t.lost(u)
	})
}

// lost records a loss, and which limits and pause Redis knows now.
func (t *upsetTrial) lost(u upset) {
	ctx, keys := context.Background(), redisdb.NewKeys(t.r.gateway)
	limits := t.r.plain.HGet(ctx, keys.LiveLimits(), limitsField).Val()
	paused := t.r.plain.HGet(ctx, keys.Hold(), "paused").Val() == "1"
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.judge.mark("loss", u.tail)
	m.unsure = u.kind == failsOver || u.kind == rollsBack
	if u.kind == flushes {
		m.held = t.judge.bounds(m.at)
	}
	if limits != t.judge.live {
		t.judge.maybe = append(t.judge.maybe, limits)
		t.judge.mark("limits", 0)
		t.judge.changed()
	}
	t.judge.forgot = t.judge.forgot || paused != t.judge.paused
}

// somebodyKnows picks a process that knows all calls, and protects it until it has reported them.
func (t *upsetTrial) somebodyKnows() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if p.knows() {
			t.knows, t.until = p, t.since()+5*time.Second
			return true
		}
	}
	return false
}

// operate runs an act of an operator.
func (t *upsetTrial) operate(u upset) {
	switch u.kind {
	case sets:
		t.later(0, func() { t.setLimits(u.limits) })
	case resets:
		t.later(0, func() { t.setLimits("") })
	case pauses:
		t.later(0, func() { t.pause(true) })
		t.later(u.length, func() { t.pause(false) })
	case stuckSet, stuckPause:
		t.op.mu.Lock()
		t.op.holdsBack = u.length
		t.op.mu.Unlock()
		t.later(0, func() {
			if u.kind == stuckSet {
				t.setLimits(u.limits)
			} else {
				t.pause(true)
			}
			t.op.mu.Lock()
			t.op.holdsBack = 0
			t.op.mu.Unlock()
			until(time.Now().Add(time.Second))
			if u.kind == stuckSet {
				t.setLimits("")
			} else {
				t.pause(false)
			}
		})
	}
}

func (t *upsetTrial) setLimits(limits upsetLimits) {
	err := SetLimits(context.Background(), t.op.db.Client, t.gateway(t.file), upsetParse(limits))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judge.mark("limits", 0)
	if err != nil {
		t.judge.maybe = append(t.judge.maybe, limits)
	} else {
		t.judge.live, t.judge.maybe = limits, nil
	}
	t.judge.changed()
}

func (t *upsetTrial) pause(on bool) {
	p, err := Pacer(t.op.db.Client, t.gateway(t.file), bucket.NewMetrics(nil))
	t.r.must(err)
	defer p.Close(context.Background())
	if on {
		err = p.Pause(context.Background(), "a test")
	} else {
		err = p.Resume(context.Background())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		t.judge.forgot = true // nobody knows
	case on:
		t.judge.paused, t.judge.forgot, t.judge.turned = true, false, t.since()
	default:
		t.judge.paused, t.judge.forgot, t.judge.turned = false, false, t.since()
	}
}

func (t *upsetTrial) reload(u upset) {
	t.mu.Lock()
	t.judge.old = append(t.judge.old, t.file)
	t.file, t.caught = u.limits, 0
	t.judge.mark("limits", 0)
	t.judge.changed()
	all := slices.Clone(t.all)
	t.mu.Unlock()
	t.later(0, func() {
		for _, p := range all {
			select {
			case p.files <- struct{}{}:
			default:
			}
			until(time.Now().Add(u.length))
		}
	})
}

func (t *upsetTrial) allLeave(u upset) {
	t.mu.Lock()
	if t.since() < t.until {
		t.mu.Unlock()
		return
	}
	all := t.all
	t.all = nil
	t.judge.mark("death", 0)
	t.mu.Unlock()
	for _, p := range all {
		p.end(u.on > 0)
	}
	t.later(u.length, func() {
		for range all {
			t.begin()
		}
	})
}

// harm harms one process.
func (t *upsetTrial) harm(u upset) {
	p := t.harmed(u.on)
	if p == nil {
		return
	}
	t.marked("harm", 0)
	now := time.Now()
	switch u.kind {
	case dies, leaves:
		t.mu.Lock()
		t.all = slices.DeleteFunc(t.all, func(q *upsetProcess) bool { return p == q })
		t.mu.Unlock()
		p.end(u.kind == dies)
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	switch u.kind {
	case stands:
		p.w.stands = now.Add(u.length)
	case cuts:
		p.w.cut = now.Add(u.length)
	case freezes:
		p.w.frozen = now.Add(u.length)
	case standsCut:
		p.w.stands, p.w.frozen = now.Add(u.length), now.Add(1500*time.Millisecond)
	}
}

// shrunk removes events that are not needed for the fault.
func shrunk(t *testing.T, s upsets, m mutant) upsets {
	red := func(s upsets) bool { return len(tryUpsets(t, s, m)) > 0 }
	for i := 0; i < len(s.all); {
		less := s
		less.all = slices.Delete(slices.Clone(s.all), i, i+1)
		if red(less) {
			s = less
		} else {
			i++
		}
	}
	for _, simpler := range []func(*upsets){func(s *upsets) { s.late = 0 }, func(s *upsets) { s.processes = 1 }, func(s *upsets) { s.processes = 2 },
		func(s *upsets) { s.far = time.Millisecond }} {
		less := s
		if simpler(&less); less.processes <= s.processes && red(less) {
			s = less
		}
	}
	return s
}

// No window exceeds its limit, and calls never stop without a reason that `job` names, whatever is lost, set, slewed, reloaded, cut, killed and started.
func TestLimitsAndReasonsHoldInAnyUpset(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testkit.Often(8, 1000)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := drawUpsets(seed)
			if wrong := tryUpsets(t, s, nil); len(wrong) > 0 {
				t.Errorf("%s\n%v\nthe least of it: %v", strings.Join(wrong, "\n"), s, shrunk(t, s, nil))
			}
		})
	}
}
