// Package bucket keeps the limits: step 2 and step 4 of 8, the maths and the scripts of admission and of the
// pacer.
//
// Admission asks an Algorithm: may this job enter the queue now? Its Lua fragment is composed into the script
// that admits jobs, so that admission, record and queueing are one atomic step.
//
// The Pacer hands out slots: the moments at which calls may start. Every limit is a pool of N permits. A call
// takes one permit from each pool, and a permit taken for a slot is ready again at
//
//	edge + R    with R = window × 1.0001 + jitter + 2 ms
//
// where edge is the latest moment at which the call was written: the slot, or the reported moment when the call
// was late. A call is never written before its slot, and arrives at most the jitter later than the quickest one
// would. So two calls that use one permit arrive at least one window apart, and no window of that length,
// wherever it begins, holds more than N calls. This does not depend on order, on the number of processes, or on
// any clock but Redis's.
package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/clock"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// HoldChannel is the channel on which a gateway's name is published when a hold or pause began or ended. A
// subscriber calls Empty without a slot, so that slots reserved ahead don't outlive the hold's beginning, and
// Wake. It also calls Report, as the name is published there too when the pacer's state begins from nothing
// while others listen.
const HoldChannel = redisdb.Wake + ":hold"

var (
	// ErrClosed is what Next and Take return after Close.
	ErrClosed = errors.New("the pacer is closed: it gives out no more slots")
	// ErrHeld is what Take and Retake return while calls are held, and for longer than they may wait.
	ErrHeld = errors.New("calls are held or paused, or the cap on calls in flight is reached")

	errNoAnswer = errors.New("no answer from Redis: check that it runs and can be reached")
)

// PacerConfig configures the pacer of one gateway.
type PacerConfig struct {
	// Gateway is the gateway's name.
	Gateway string
	// Limits all hold, in every rolling window; at least one, at most MaxLimits.
	Limits []job.Limit
	// Version orders live changes of Limits: a pacer with an older version than Redis has seen gets no slots
	// until Change. Zero is the configuration file's.
	Version int64
	// Burst is how many calls may start together; zero means 1. At most the smallest limit.
	Burst int64
	// Jitter allows for the variation of the delay on the way to the gateway. Too small a value breaks the
	// limits.
	Jitter time.Duration
	// MaxInFlight is how many calls may be in flight, over all processes; zero means no cap.
	MaxInFlight int64
	// First are the keys of the lines of jobs that were never called, the highest class first. Nil means that
	// the gateway has no classes.
	First []string
	// Classes are those of the jobs, the highest first, in the order of First. They are used only with lanes or
	// with routes that have limits; otherwise the queue handles classes.
	Classes []job.Class
	// Routes are those that jobs can name, with their limits.
	Routes []Route
	// Lanes is what each lane may have; nil means that the gateway has no lanes. With lanes, or routes that
	// have limits, a slot comes with the job that is called at it.
	Lanes *Lanes
	// Scoped means that a route can be held on its own, whether it has limits or not: the gateway's answers, or
	// a circuit of its own, may concern one route only.
	Scoped bool
	// CallTimeout is how long a call may take. A lease is given up at slot + CallTimeout + 5 s. A call sent
	// ahead after a hold may take as long, but if its result is not reported the next one starts 5 s after its
	// slot.
	CallTimeout time.Duration
	// NowMicros overrides Redis's clock in scripts, for tests only; nil means Redis's TIME.
	NowMicros redisdb.Clock
}

// Pacer hands out the slots of one gateway: step 4 of 8. Any number of processes may each have one; together they keep
// the limits. Its methods are safe for concurrent use.
//
//	Next  ──turn──> local FIFO <── reserve.lua, up to 128 slots ahead
//	Take  ──turn──> reserve.lua, one slot
//	Written ──────> late.lua, in the background; Close waits for it
type Pacer struct {
	client  redis.UniversalClient
	keys    redisdb.Keys
	gateway string
	name    string // prefix of this pacer's leases
	number  int64  // this pacer's own, above 0
	meters  instruments
	plan    atomic.Pointer[plan]
	clock   clock.Clock // local time; a test may have it follow NowMicros
	began   time.Time   // origin of local µs
	bounds  clockBounds

	within     func(context.Context, time.Duration) (context.Context, context.CancelFunc) // bounds the wait for an answer of Redis
	asleep     func() time.Duration                                                       // how long this machine has been suspended
	sleptFirst time.Duration                                                              // before the pacer began
	slept      atomic.Int64                                                               // since then, in µs

	nextTurn, takeTurn chan struct{} // the holder of the token may reserve
	wake               chan struct{}
	spare              chan struct{} // units were given back: the next slot may be earlier than Redis said
	closed             chan struct{}
	asks, given        atomic.Int64 // reservations, and slots from them
	handled            atomic.Int64 // how many jobs can be handled at once; zero means one

	waiters    waiters
	late       lateCalls
	congestion congestion
	distance   distance              // distance to Redis
	refuse     atomic.Pointer[error] // see Broken

	mu      sync.Mutex
	fifo    []job.Slot
	known   knowledge
	found   []Loss // not yet returned by Losses
	pace    readiness
	latest  int64 // the latest slot of all, while it is known to be this pacer's and was not given back; else 0
	callers int   // goroutines inside Next
	done    bool
	work    sync.WaitGroup // background work
}

// knowledge is what the last answers of Redis said.
type knowledge struct {
	floor   int64 // latest slot ever given to any process, as far as this one knows
	began   int64 // when calls resumed after a rest, by Redis's clock
	jump    int64 // how far Redis's clock was set forward, not yet reported to it
	epoch   int64 // of the last answer; -1 before the first
	held    int64 // µs until which calls are held
	leased  bool  // slots have leases, as the calls in flight have a cap
	probing bool  // calls wait for the one that goes first after a hold
	refused row   // answers that the limits known here are too old
	root    int64 // the life of the latest known state, or 0
	heard   int64 // when it became known
}

// NewPacer returns the pacer of one gateway, or an error if its configuration can't be kept. It makes no
// request to Redis.
func NewPacer(c redis.UniversalClient, cfg PacerConfig, m *Metrics) (*Pacer, error) {
	redisdb.Prepare()
	made, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	p := &Pacer{
		client:     withoutRetry(c),
		keys:       redisdb.NewKeys(cfg.Gateway),
		gateway:    cfg.Gateway,
		name:       rand.Text()[:12],
		number:     1 + mathrand.Int64N(job.MaxCount),
		meters:     m.of(cfg.Gateway),
		clock:      clock.Real{},
		began:      time.Now(),
		within:     context.WithTimeout,
		asleep:     clock.Asleep,
		nextTurn:   make(chan struct{}, 1),
		takeTurn:   make(chan struct{}, 1),
		wake:       make(chan struct{}, 1),
		spare:      make(chan struct{}, 1),
		closed:     make(chan struct{}),
		pace:       newReadiness(),
		known:      knowledge{epoch: -1},
		late:       newLateCalls(),
		congestion: newCongestion(),
	}
	for range 3 { // one of them was not interrupted
		p.sleptFirst = max(p.sleptFirst, p.asleep())
	}
	p.plan.Store(made)
	return p, nil
}

// Share makes the pacer take part in the burden of its process. It must be called before the pacer is used.
func (p *Pacer) Share(b *Burden) { p.congestion.all = b }

// Change replaces the configuration, from the next reservation on. Only the gateway's name must stay the same.
// Slots held locally are given back.
func (p *Pacer) Change(ctx context.Context, cfg PacerConfig) error {
	made, err := newPlan(cfg)
	if err != nil {
		return err
	}
	if cfg.Gateway != p.gateway {
		return errors.New("a pacer keeps its gateway: make a new one for another gateway")
	}
	p.Empty(ctx, job.Slot{})
	p.plan.Store(made)
	p.mu.Lock()
	p.known.refused, p.latest = row{}, 0
	p.mu.Unlock()
	p.Wake()
	return nil
}

// Wake says that a job may be pending, or that something that held back calls has ended. It never blocks.
func (p *Pacer) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close ends Next and Take, gives back the slots held locally, and waits for late reports until ctx ends. It
// may be called twice.
func (p *Pacer) Close(ctx context.Context) {
	p.mu.Lock()
	first := !p.done
	if first {
		close(p.closed)
	}
	p.mu.Unlock()
	if first {
		p.Empty(ctx, job.Slot{})
	}
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		p.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	p.congestion.close()
}

// over reports whether Close has been called.
func (p *Pacer) over() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// background runs f on a goroutine and returns a channel that is closed when f has returned. Close waits for
// it; after Close, f runs synchronously.
func (p *Pacer) background(f func()) <-chan struct{} {
	over := make(chan struct{})
	p.mu.Lock()
	inline := p.done
	if !inline {
		p.work.Add(1)
	}
	p.mu.Unlock()
	if inline {
		f()
		close(over)
		return over
	}
	go func() {
		defer p.work.Done()
		defer close(over)
		f()
	}()
	return over
}

// local is a recent moment in µs since the pacer began: by the monotonic clock, which stands still while the
// machine is suspended, plus the time of suspension.
func (p *Pacer) local(t time.Time) int64 { return t.Sub(p.began).Microseconds() + p.suspended() }

// leastSleep is the shortest suspension that counts, in µs: the two clocks that show it are not read at the
// same moment.
const leastSleep = 10_000

// suspended is how long the machine was suspended since the pacer began, in µs.
func (p *Pacer) suspended() int64 {
	for {
		known, now := p.slept.Load(), (p.asleep() - p.sleptFirst).Microseconds()
		if now < known+leastSleep {
			return known
		}
		p.slept.CompareAndSwap(known, now)
	}
}

func (p *Pacer) now() int64 { return p.plan.Load().cfg.NowMicros.Now() }

// check returns why a limit can't be kept, or nil.
func check(l job.Limit) error {
	switch {
	case l.N < 1 || l.N > job.MaxCount:
		return fmt.Errorf("the limit %s allows %d calls: give a number from 1 to %d", l, l.N, int64(job.MaxCount))
	case l.Window < time.Microsecond || l.Window%time.Microsecond != 0:
		return fmt.Errorf("the limit %s has a window of %s: give a whole number of microseconds, at least one", l, l.Window)
	}
	return nil
}
