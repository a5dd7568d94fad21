package bucket

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

const takeLead = time.Millisecond // a handler that takes its own slot is ready when it asks

// Take waits for a slot for a job that was already pulled: one that came without a slot, or whose slot has
// passed. It doesn't look at the queue. It returns ctx.Err() as soon as ctx ends, ErrClosed, or job.ErrCost.
//
// Where the gateway has lanes, or routes with limits, the slot has the permits of the job with that id; with an
// empty id it has only the gateway's. It returns ErrHeld when the job's route or lane has none soon: the job
// should go back to its queue.
func (p *Pacer) Take(ctx context.Context, cost int64, id string) (job.Slot, error) {
	return p.take(ctx, cost, id, true)
}

// Retake is Take for a job that is ready to be called and whose slot has passed. It returns ErrHeld when it
// would have to wait for the end of a hold or a pause, or for calls under way, or when the slot is for the call
// that is sent ahead after a hold: the job should go back to its queue.
func (p *Pacer) Retake(ctx context.Context, cost int64, id string) (job.Slot, error) {
	return p.take(ctx, cost, id, false)
}

// waiter is a job that waits in Take or Retake.
type waiter struct {
	cost    int64
	id      string // of its job, if the gateway has lanes
	patient bool
	got     chan taken // has room for one
}

type taken struct {
	slot job.Slot
	err  error
}

// waiters are served in the order in which they came; one of them also asks for those behind it.
type waiters struct {
	mu   sync.Mutex
	all  []*waiter
	free chan struct{} // closed when no job that is ready waits; nil while none does
}

// first returns how many of the first waiters want slots of one cost for one job, with that cost and job.
func (l *waiters) first() (n, cost int64, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		if n > 0 && (w.cost != cost || w.id != id) {
			break
		}
		n, cost, id = n+1, w.cost, w.id
	}
	return n, cost, id
}

func (l *waiters) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
	if !w.patient && l.free == nil {
		l.free = make(chan struct{})
	}
}

// ready returns a channel that is closed when no job that is ready waits; nil if none does.
func (l *waiters) ready() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free
}

// answer removes the waiters for which is returns a result, and gives it to them.
func (l *waiters) answer(is func(*waiter) *taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(w *waiter) bool {
		t := is(w)
		if t != nil {
			w.got <- *t
		}
		return t != nil
	})
	if l.free != nil && !slices.ContainsFunc(l.all, func(w *waiter) bool { return !w.patient }) {
		close(l.free)
		l.free = nil
	}
}

// serve hands out slots of that cost, and for that job, in order, and returns those left over.
func (l *waiters) serve(slots []job.Slot, cost int64, id string) (left []job.Slot) {
	l.answer(func(w *waiter) *taken {
		if len(slots) == 0 || w.cost != cost || w.id != id {
			return nil
		}
		t := &taken{slot: slots[0]}
		slots = slots[1:]
		return t
	})
	return slots
}

func (p *Pacer) take(ctx context.Context, cost int64, id string, patient bool) (job.Slot, error) {
	if p.over() {
		return job.Slot{}, ErrClosed
	}
	if !p.plan.Load().laned {
		id = ""
	}
	t := &waiter{cost: max(cost, 1), id: id, patient: patient, got: make(chan taken, 1)}
	p.waiters.join(t)
	err := ctx.Err()
	for err == nil {
		select {
		case r := <-t.got:
			return r.slot, r.err
		case p.takeTurn <- struct{}{}:
			err = p.serve(ctx, t)
			<-p.takeTurn
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.closed:
			err = ErrClosed
		}
	}
	p.waiters.answer(func(other *waiter) *taken {
		if other != t {
			return nil
		}
		return &taken{err: err}
	})
	r := <-t.got // a slot, if it came first
	return r.slot, r.err
}

// serve asks for slots for the waiters until this one has its own.
func (p *Pacer) serve(ctx context.Context, t *waiter) error {
	var tries retries
	for len(t.got) == 0 {
		if err := p.askForWaiters(ctx, t, &tries); err != nil {
			return err
		}
	}
	return nil
}

// askForWaiters asks once, for as many slots of one cost as are wanted and may come in one answer. It then
// waits as long as the answer says, unless this waiter has its slot.
func (p *Pacer) askForWaiters(ctx context.Context, t *waiter, tries *retries) error {
	pl := p.plan.Load()
	p.waiters.answer(func(w *waiter) *taken {
		if w.cost <= pl.maxCost {
			return nil
		}
		return &taken{err: job.ErrCost}
	})
	want, cost, id := p.waiters.first()
	if want == 0 {
		return nil
	}
	room, err := p.room(ctx)
	if err != nil {
		return err
	}
	n, err := p.congestion.all.enter(ctx, p.closed, min(want, room, pl.batch, pl.reach))
	if err != nil {
		return err
	}
	g, err := p.ask(ctx, wish{want: n, short: true, cost: cost, id: id, lead: min(takeLead.Microseconds(), pl.horizon/2)})
	p.congestion.all.leave(n)
	if err == nil && (g.barred() || g.state == stateWaiting) {
		p.waiters.answer(func(w *waiter) *taken {
			if g.state == stateWaiting && w.id != id || g.state != stateWaiting && w.patient {
				return nil
			}
			return &taken{err: ErrHeld}
		})
	}
	p.giveBack(p.waiters.serve(g.slots, cost, id))
	if len(t.got) > 0 || len(g.slots) > 0 && err == nil {
		return nil
	}
	return p.after(ctx, g, err, tries)
}

// barred reports whether calls wait for more than their time, or for the call that is sent ahead.
func (g grant) barred() bool {
	return g.state == stateHeld || g.state == stateBraked || g.state == statePaused || g.state == stateFull || len(g.slots) > 0 && g.slots[0].Probe
}

// noRoute is the route of look-ups, which take no permits of a route. No route has this name, so scripts find
// nothing under it.
const noRoute = "\x00"

// Ask takes a permit of a job's lane for a look-up of the job; the slot already has the account's. It returns
// the slot with that permit, or how long to wait until the lane has one. After that wait the caller reserves
// another slot and asks again. Without lanes there is nothing to take.
func (p *Pacer) Ask(ctx context.Context, s job.Slot, lane string) (with job.Slot, wait time.Duration, err error) {
	pl := p.plan.Load()
	if pl.cfg.Lanes == nil {
		return s, 0, nil
	}
	arg := p.besideLane(pl, p.local(p.clock.Now()))
	within, cancel := p.within(ctx, answerWithin)
	defer cancel()
	us, err := asksScript.Run(within, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, p.now(), lane, s.At, p.late.edge(s), jsonOf(arg)).Int64()
	if err == nil && us == 0 {
		s.Flow = job.Flow{Route: noRoute, Lane: lane, Kept: true}
	}
	return s, time.Duration(us) * time.Microsecond, err
}

//go:embed room.lua
var roomLua string

var roomScript = redisdb.NewScript(redisdb.NowLua, poolLua, roomLua)

// Room is when a call finds room in all limits as things stand, for people to read.
type Room struct {
	// In is how long until then; zero when there is room, or when it is not known as the limits have just
	// changed.
	In time.Duration
	// At is that moment on Redis's clock; zero when In is.
	At time.Time
	// Gap is how long before that moment the last slot was; zero when In is, or when there was none.
	Gap time.Duration
	// Limit is what the call waits for longest. The zero Limit, when In is not zero, means that no slot is given out before, as after Redis
	// lost its memory.
	Limit job.Limit
	// Full means that as many calls are in flight as are allowed (MaxInFlight).
	Full bool
}

// Room returns when a call of this cost finds room. It reserves nothing.
func (p *Pacer) Room(ctx context.Context, cost int64) (Room, error) {
	pl := p.plan.Load()
	args := []any{p.now(), max(cost, 1), pl.shape}
	for _, w := range pl.windows {
		args = append(args, w.n, w.ready)
	}
	keys := append([]string{p.keys.Pace(), p.keys.Flight()}, p.lists(len(pl.windows))...)
	v, err := roomScript.Run(ctx, p.client, keys, args...).Int64Slice()
	if err != nil {
		return Room{}, fmt.Errorf("what room %s has could not be read: %w", p.gateway, err)
	}
	if len(v) != 5 || v[2] > int64(len(pl.windows)) {
		return Room{}, fmt.Errorf("room.lua answered %v: is another version of the program using this Redis?", v)
	}
	r := Room{Full: pl.cfg.MaxInFlight > 0 && v[3] >= pl.cfg.MaxInFlight}
	if v[1] <= v[0] {
		return r, nil
	}
	r.In, r.At = time.Duration(v[1]-v[0])*time.Microsecond, time.UnixMicro(v[1]).UTC()
	if v[4] > 0 {
		r.Gap = time.Duration(v[1]-v[4]) * time.Microsecond
	}
	if v[2] > 0 {
		w := pl.windows[v[2]-1]
		r.Limit = job.Limit{N: w.n, Window: time.Duration(w.length) * time.Microsecond}
	}
	return r, nil
}
