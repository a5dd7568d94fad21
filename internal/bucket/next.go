package bucket

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

const (
	idlePoll    = 10 * time.Second // how often an idle gateway is looked at even if Wake is not called
	heldPoll    = time.Second      // and one that is held, paused or full
	shortestNap = 200 * time.Microsecond
	firstRetry  = 50 * time.Millisecond
	lastRetry   = 2 * time.Second
)

// Next waits until a job is pending and its slot is due within the lead, and returns the slot. The caller then
// pulls the job and writes its call at the slot, or gives the slot back with Empty or Release. While Redis
// doesn't answer, or calls are held, Next keeps waiting. It returns ctx.Err() as soon as ctx ends, or
// ErrClosed.
func (p *Pacer) Next(ctx context.Context) (job.Slot, error) {
	p.enter()
	s, err := p.next(ctx)
	if last := p.leave(); last && err != nil {
		p.Drop() // no caller is left to use them
	}
	return s, err
}

func (p *Pacer) next(ctx context.Context) (job.Slot, error) {
	if err := p.turn(ctx, p.nextTurn); err != nil {
		return job.Slot{}, err
	}
	defer func() { <-p.nextTurn }()
	var tries retries
	for {
		if s, ok := p.head(); ok {
			if err := p.sleep(ctx, p.Due(s).Add(-p.Lead()).Sub(p.clock.Now()), nil); err != nil {
				return job.Slot{}, err
			}
			if s, ok = p.pop(s); ok {
				return s, nil
			}
			continue
		}
		if free := p.waiters.ready(); free != nil { // their jobs are closer to their calls than one that is yet to be pulled; but if Redis is far away, both proceed
			if err := p.sleep(ctx, horizonMost, free); err != nil {
				return job.Slot{}, err
			}
		}
		pl := p.plan.Load()
		if early := p.early(pl); early > 0 {
			if err := p.sleep(ctx, early, p.spare); err != nil {
				return job.Slot{}, err
			}
			continue
		}
		room, err := p.room(ctx)
		if err != nil {
			return job.Slot{}, err
		}
		want, lead := min(pl.batch, pl.reach), p.soonest()
		if pl.laned {
			want, lead = min(want, max(p.handled.Load(), 1)), p.leadOf(pl)
		}
		n, err := p.congestion.all.enter(ctx, p.closed, min(want, room))
		if err != nil {
			return job.Slot{}, err
		}
		g, err := p.ask(ctx, wish{want: n, short: room < want, lead: lead})
		p.congestion.all.leave(n)
		if pl.laned {
			g.slots = p.bound(g.slots)
		}
		p.keep(g.slots)
		if err := p.after(ctx, g, err, &tries); err != nil {
			return job.Slot{}, err
		}
	}
}

// early returns how long asking for a slot would be useless: the latest slot is this pacer's, and the next one
// is still beyond the horizon. With one slot per horizon that saves every other request.
func (p *Pacer) early(pl *plan) time.Duration {
	p.mu.Lock()
	latest := p.latest
	p.mu.Unlock()
	if latest == 0 || pl.tolerance > 0 {
		return 0
	}
	reach := pl.horizon
	if pl.laned {
		reach = p.reachOf(pl)
	}
	left := time.Duration(latest+pl.spacing-reach-p.bounds.earliest(p.local(p.clock.Now()))) * time.Microsecond
	if left < shortestNap {
		return 0
	}
	return min(left, heldPoll)
}

// More returns up to most further slots that are held locally and due within the lead, as for Next, in order.
// It doesn't wait.
func (p *Pacer) More(most int) (slots []job.Slot) {
	for len(slots) < most {
		s, ok := p.head()
		if !ok || p.Due(s).Add(-p.Lead()).After(p.clock.Now()) {
			break
		}
		if s, ok = p.pop(s); !ok {
			break
		}
		slots = append(slots, s)
	}
	return slots
}

// turn waits for the token: one caller at a time reserves, the others line up behind it.
func (p *Pacer) turn(ctx context.Context, token chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.over() {
		return ErrClosed
	}
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return ErrClosed
	}
}

// after waits as long as the answer to a wish asks for.
func (p *Pacer) after(ctx context.Context, g grant, err error, tries *retries) error {
	p.refuse.Store(&err)
	if err != nil {
		if ctx.Err() != nil || err == ErrClosed { //nolint:errorlint // ours, never wrapped
			return err
		}
		return p.sleep(ctx, tries.next(), nil)
	}
	tries.reset()
	switch g.state {
	case stateOK, stateReshape:
		return nil
	case stateIdle:
		return p.sleep(ctx, idlePoll, p.wake)
	case stateHeld, statePaused, stateFull, stateWaiting, stateBraked, stateStale:
		return p.sleep(ctx, min(g.hint, heldPoll), p.wake)
	default:
		return p.sleep(ctx, min(max(g.hint, shortestNap), heldPoll), p.spare)
	}
}

// Broken returns why Redis gave no slot when it was last asked, if waiting does not help: for example, another
// program has written to one of the gateway's keys. It returns nil if there is no such reason; that Redis is
// away is none.
func (p *Pacer) Broken() error {
	if err := p.refuse.Load(); err != nil && !redisdb.Away(*err) && !errors.Is(*err, context.Canceled) && !errors.Is(*err, ErrClosed) && !errors.Is(*err, errNoAnswer) {
		return *err
	}
	return nil
}

// sleep waits for d, or for something on early, or until ctx ends or the pacer closes.
func (p *Pacer) sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-early:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return ErrClosed
	}
}

// retries spaces out attempts to reach Redis: the wait doubles, with jitter so that processes don't come
// together.
type retries struct{ last time.Duration }

func (r *retries) next() time.Duration {
	r.last = min(max(r.last*2, firstRetry), lastRetry)
	return r.last/2 + rand.N(r.last/2) //nolint:gosec // no secret depends on it
}

func (r *retries) reset() { r.last = 0 }

func (p *Pacer) enter() {
	p.mu.Lock()
	p.callers++
	p.mu.Unlock()
}

func (p *Pacer) leave() (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.callers--
	return p.callers == 0
}

func (p *Pacer) keep(slots []job.Slot) {
	p.mu.Lock()
	p.fifo = append(p.fifo, slots...)
	p.mu.Unlock()
}

// head returns the first slot held locally that can still be used; those before it are given back.
func (p *Pacer) head() (job.Slot, bool) {
	now := p.clock.Now()
	var passed []job.Slot
	p.mu.Lock()
	for len(p.fifo) > 0 && p.passed(p.fifo[0], now, p.plan.Load().tooLate/2) {
		passed = append(passed, p.fifo[0])
		p.fifo = p.fifo[1:]
	}
	var s job.Slot
	if len(p.fifo) > 0 {
		s = p.fifo[0]
	}
	p.mu.Unlock()
	p.giveBack(passed)
	return s, !s.Zero()
}

// pop takes the slot off the FIFO, unless it was dropped meanwhile.
func (p *Pacer) pop(s job.Slot) (job.Slot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fifo) == 0 || p.fifo[0] != s {
		return job.Slot{}, false
	}
	p.fifo = p.fifo[1:]
	s.Asked = p.local(p.clock.Now())
	return s, true
}

// AtMost sets how many jobs can be handled at once: no more are bound to slots. It has no effect if slots come
// without their jobs.
func (p *Pacer) AtMost(jobs int) { p.handled.Store(int64(jobs)) }

// row is how long the latest answers have all been the same: the time of the first and the latest of them; zero
// if the latest answer was a different one.
type row struct{ first, latest time.Time }

func (r *row) add(same bool, at time.Time) {
	switch {
	case !same:
		*r = row{}
	case r.first.IsZero():
		*r = row{at, at}
	default:
		r.latest = at
	}
}

// Stale reports whether the latest answer refused this process because its limits are older than those that the
// pacer has seen, and for how long every answer has. The caller should then look up which limits hold, and call
// Change.
func (p *Pacer) Stale() (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.known.refused
	return !r.first.IsZero(), r.latest.Sub(r.first)
}
