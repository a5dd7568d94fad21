package bucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// reserveScript reserves slots of a gateway without lanes: reserve.lua and slots.lua, with pool.lua for the windows.
var reserveScript = redisdb.NewSharedScript(redisdb.NowLua, poolLua, aloneLua, reserveLua)

var reserveLua = reserveHeadLua + slotsLua

// aloneLua takes the place of beside.lua for a gateway in which a call takes permits of the gateway's own limits only.
const aloneLua = "\nlocal function lost_beside() end\n"

// answerWithin is how long to wait for a script's answer.
const answerWithin = time.Second

// state is what reserve.lua says; its head comment explains each value.
type state string

const (
	stateOK      state = "ok"
	stateIdle    state = "idle"
	stateHeld    state = "held"
	statePaused  state = "paused"
	stateFull    state = "full"
	stateReshape state = "reshape"
	stateLost    state = "lost"
	stateStale   state = "stale"
	stateWaiting state = "waiting" // see pick.lua
	stateBraked  state = "braked"
)

// wish is one reservation.
type wish struct {
	want  int64  // slots
	short bool   // more are wanted, and this process has no room for them
	cost  int64  // of each; 0 means that of the waiting jobs
	lead  int64  // µs
	allow int64  // how much later than its slot a call is counted, µs
	id    string // of the job that was already pulled, if the gateway has lanes
}

// grant is the answer to a wish.
type grant struct {
	state state
	hint  time.Duration
	slots []job.Slot
}

// reserve asks Redis once and learns from the answer. The caller must use or release the slots in the grant.
func (p *Pacer) reserve(ctx context.Context, w wish) (grant, error) {
	pl := p.plan.Load()
	w.allow = p.late.allowance(pl)
	lease := p.name + "-" + strconv.FormatInt(p.asks.Add(1), 36)
	p.mu.Lock()
	seen := p.bounds.seen(pl.horizon, p.local(p.clock.Now()))
	args := append(pl.reserveArgs(p.now(), p.earliest(), w, &p.known, lease), p.windowArgs(pl)...)
	jump := p.known.jump
	p.mu.Unlock()
	sent := p.local(p.clock.Now())
	script, keys := reserveScript, p.slotKeys(pl)
	picks := pl.laned && (w.cost == 0 || w.id != "")
	if picks {
		script, keys, args = pickScript, append(keys, p.keys.Nobodys()), append(args, p.beside(pl, w))
	}
	v, err := script.Run(ctx, p.client, keys, args...).Slice()
	now := p.clock.Now()
	received := p.local(now) + 1
	if err != nil {
		p.unanswered(w, lease, err)
		return grant{}, err
	}
	p.distance.add(received-sent, now)
	p.congestion.all.answered(received-sent, now)
	r, err := decode(v, picks)
	if err != nil {
		return grant{}, err
	}
	if r.leased {
		for i := range r.slots {
			r.slots[i].Lease = lease + ":" + strconv.Itoa(i+1)
		}
	}
	for i, s := range r.slots {
		if s.Flow.Marks&placeMark != 0 {
			r.slots[i].Lease = lease + ":" + strconv.Itoa(i+1)
		}
	}
	leapt, era := p.bounds.observe(sent, received, r.now)
	for i := range r.slots {
		r.slots[i].Costly = r.costly
		r.slots[i].Era, r.slots[i].Seen, r.slots[i].Number = era, seen, p.given.Add(1)
		r.slots[i].Counted, r.slots[i].StateID = r.slots[i].At+w.allow, r.pacer.id
		p.congestion.start(r.slots[i], received, w.short)
	}
	return p.learn(r, jump, leapt, era), nil
}

func (pl *plan) reserveArgs(now, earliest int64, w wish, k *knowledge, lease string) []any {
	return []any{now, w.lead, pl.horizon, k.floor, k.jump, k.spacing(pl, earliest), pl.tolerance, w.want, w.cost,
		pl.cfg.MaxInFlight, pl.outlives, lease, pl.cfg.Version, pl.shape, pl.tooLate, k.root, HoldChannel, pl.cfg.Gateway, w.allow, k.heard}
}

// earliest returns a moment that Redis's clock has reached, in µs.
func (p *Pacer) earliest() int64 {
	if now := p.now(); now > 0 {
		return now
	}
	return p.bounds.earliest(p.local(p.clock.Now()))
}

// spacing returns the least distance of the next slots, in µs; now is a moment that Redis's clock has reached.
// Before this process knows of a first slot, neither that clock nor the last call is known: it may be after a
// rest.
func (k *knowledge) spacing(pl *plan, now int64) int64 {
	switch {
	case pl.tolerance > 0:
		return pl.spacing
	case k.floor == 0:
		return pl.even
	case k.began == 0 || now-k.floor > pl.wave || now < k.began: // set back, in the last case
		k.began = now
	}
	if now-k.began < pl.wave {
		return pl.even
	}
	return pl.spacing
}

// windowArgs returns what was seen of Redis's clock, what each window is, and how much longer its permits take
// because that clock is too fast. A permit was taken within the window before now, and its call written a
// moment later; the slot is within the horizon. What the clock may have gained before this process watched it
// is used only here, and not reported.
func (p *Pacer) windowArgs(pl *plan) []any {
	now := p.local(p.clock.Now())
	back := func(w window) int64 { return w.ready + w.width + w.ready/8 } // it takes longer, and so is considered for longer
	args := p.bounds.watched(p.number, back(pl.windows[len(pl.windows)-1]), pl.horizon, now)
	for _, w := range pl.windows {
		args = append(args, w.n, w.ready, w.width, p.bounds.gained(back(w), now), p.bounds.unwatched(back(w), now))
	}
	return args
}

func (p *Pacer) slotKeys(pl *plan) []string {
	k := p.keys
	return append([]string{k.Pace(), k.Hold(), k.Flight(), k.Pending(), k.Costs(), k.Active(), k.Retries(), k.Replays(), k.Due()}, append(p.allLists(len(pl.windows)), pl.cfg.First...)...)
}

// allLists are the lists of n windows, and of the windows that are out of force.
func (p *Pacer) allLists(n int) []string {
	out := p.lists(n)
	for i := 1; i <= keptMost; i++ {
		out = append(out, p.keys.PaceKept(i))
	}
	return out
}

func (p *Pacer) lists(n int) []string {
	var out []string
	for i := 1; i <= n; i++ {
		out = append(out, p.keys.PaceWindow(i))
	}
	return out
}

// pacerState describes the pacer's state in Redis as a whole. Moments are µs on Redis's clock.
type pacerState struct {
	last int64 // the latest slot ever given to any process
	root int64 // the life that the state belongs to: the moment when it began from nothing; 0: there is no state
	id   int64 // changes whenever the lists are rebuilt
}

// pacerStateOf reads s and o of the pace, as reserve.lua's head comment explains them. A missing field is 0.
func pacerStateOf(s, o any) (p pacerState, err error) {
	if p.last, err = number(s); err != nil {
		return p, err
	}
	text, _ := o.(string)
	for i, word := range strings.Fields(text) {
		if i < 2 && err == nil {
			*[]*int64{&p.root, &p.id}[i], err = number(word)
		}
	}
	return p, err
}

// reply is reserve.lua's answer as it came.
type reply struct {
	state                  state
	now, hint, held, epoch int64
	pacer                  pacerState
	probing, leased        bool
	costly                 bool // jobs have costs of their own
	slots                  []job.Slot
	loss                   Loss
}

// head is how many values reserve.lua and pick.lua answer with before the slots, and the others how many there
// are for each slot.
const head, ofSlot, ofPicked = 8, 2, 9

func decode(v []any, picked bool) (reply, error) {
	var with []any // jobs
	if n := (len(v) - head) / ofPicked; picked && n > 0 && len(v) == head+n*ofPicked {
		v, with = v[:head+n*ofSlot], v[head+n*ofSlot:]
	}
	if len(v) < head || len(v)%2 != head%2 {
		return reply{}, fmt.Errorf("reserve.lua answered with %d values: is another version of the program using this Redis?", len(v))
	}
	name, ok := v[0].(string)
	n := make([]int64, len(v))
	b, err := pacerStateOf(v[6], v[7])
	for i := 1; i < len(v); i++ {
		if err == nil && (i < 6 || i >= head) {
			n[i], err = number(v[i])
		}
		if err != nil || !ok {
			return reply{}, fmt.Errorf("reserve.lua answered %v at place %d: is another version of the program using this Redis?", v[i], i)
		}
	}
	r := reply{state: state(name), now: n[1], hint: n[2], held: n[3], epoch: n[4], probing: n[5]&1 == 1, leased: n[5]&2 == 2, costly: n[5]&4 == 4, pacer: b}
	if r.state == stateLost && len(n) == head+2 {
		r.loss = newLoss(n[head], n[head+1])
		return r, nil
	}
	r.slots = make([]job.Slot, 0, (len(n)-head)/2)
	for i := head; i < len(n); i += 2 {
		r.slots = append(r.slots, job.Slot{At: n[i], Cost: n[i+1]})
	}
	for i := range r.slots {
		if with != nil {
			r.slots[i] = pickedOf(r.slots[i], with[i*(ofPicked-ofSlot):])
		}
	}
	return r, nil
}

// number reads a number in a script's answer.
func number(v any) (int64, error) {
	switch x := v.(type) {
	case int64:
		return x, nil
	case string:
		return strconv.ParseInt(x, 10, 64)
	}
	return 0, errors.New("not a number")
}

// learn takes in an answer. Slots that came together with a change of Redis's clock are given back. An answer
// of a bygone era teaches nothing.
func (p *Pacer) learn(r reply, jumpSent, leapt, era int64) grant {
	g := grant{state: r.state, hint: time.Duration(r.hint) * time.Microsecond, slots: r.slots}
	p.meters.granted.Add(int64(len(r.slots)))
	if era == bygone {
		g.slots = nil
		p.giveBack(r.slots)
		return g
	}
	if r.state == stateLost {
		p.meters.quarantines.Inc()
	}
	p.mu.Lock()
	if r.state == stateLost {
		p.found = append(p.found, r.loss)
	}
	stale := p.known.learn(r, jumpSent, leapt)
	if n := len(r.slots); n > 0 && leapt == 0 && r.slots[n-1].At == r.pacer.last {
		p.latest = r.pacer.last
	} else if p.latest != r.pacer.last || leapt != 0 {
		p.latest = 0
	}
	p.known.refused.add(r.state == stateStale, p.clock.Now())
	p.mu.Unlock()
	for i := range r.slots {
		r.slots[i].Probe = r.probing
	}
	if leapt != 0 {
		g.slots = nil
		p.giveBack(r.slots)
	}
	if stale {
		p.Drop()
	}
	return g
}

// learn takes in an answer and reports whether slots held locally are out of date. After a leap of Redis's
// clock the known moments are shifted, and the next reservation reports a leap ahead.
func (k *knowledge) learn(r reply, jumpSent, leapt int64) (stale bool) {
	stale = r.epoch != k.epoch && k.epoch >= 0 || leapt != 0
	k.epoch, k.held, k.probing, k.leased = r.epoch, r.held, r.probing, r.leased
	looked := r.state != stateReshape && r.state != stateStale // in these states, no loss and no leap was looked for
	if looked && k.jump == jumpSent {
		k.jump = 0
	}
	if leapt != 0 {
		k.jump = max(k.jump+leapt, 0)
		if k.floor > 0 {
			k.floor += min(leapt, 0) // Redis moves its times when its clock was set back, not when it was set ahead
		}
	}
	if looked { // else what is lost would be taken for what never was
		k.floor = max(k.floor, r.pacer.last)
		if r.pacer.root != 0 {
			k.root, k.heard = r.pacer.root, r.now
		}
	}
	return stale
}

// ask reserves, and returns early when ctx ends, the pacer closes, or no answer comes. Slots that arrive after
// that are given back.
func (p *Pacer) ask(ctx context.Context, w wish) (grant, error) {
	type answer struct {
		g   grant
		err error
	}
	if p.over() {
		return grant{}, ErrClosed
	}
	answers, gone := make(chan answer), make(chan struct{})
	go p.background(func() { // on its own goroutine: if the pacer closes meanwhile, background runs it at once
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		g, err := p.reserve(asking, w)
		if err == nil && g.state == stateReshape {
			err = p.reshape(asking)
		}
		select {
		case answers <- answer{g, err}:
		case <-gone:
			p.giveBack(g.slots)
		}
	})
	limit := time.NewTimer(answerWithin)
	defer limit.Stop()
	defer close(gone)
	select {
	case a := <-answers:
		return a.g, a.err
	case <-limit.C:
		return grant{}, errNoAnswer
	case <-ctx.Done():
		return grant{}, ctx.Err()
	case <-p.closed:
		return grant{}, ErrClosed
	}
}

func (p *Pacer) reshape(ctx context.Context) error {
	pl := p.plan.Load()
	keys := append([]string{p.keys.Pace(), p.keys.Hold(), p.keys.Flight()}, p.allLists(MaxLimits)...)
	return reshapeScript.Run(ctx, p.client, keys, p.now(), pl.cfg.Version, pl.shape, pl.tooLate).Err()
}
