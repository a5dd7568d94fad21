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
	"slices"

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

// MaxLimits is how many limits one gateway can have.
const MaxLimits = 8

const (
	keptMost    = 4                // how many windows that are out of force are remembered
	exactN      = 1024             // up to this many permits, a window is kept exactly
	exactWindow = 10 * time.Second // and every window shorter than this
	subBuckets  = 256              // otherwise in this many parts
	horizonMost = 100 * time.Millisecond
	lateMost    = 250 * time.Millisecond // what windows in parts allow for, as reports of lateness don't pay there
	lateEver    = time.Second            // a slot missed by more is never used
	epsilonMost = 2 * time.Millisecond   // lateness that isn't worth a report
	leaseMargin = 5 * time.Second
	batchLeast  = 16 // slots reserved at a time, or as many as come in batchSpan
	batchMost   = 128
	batchSpan   = 10 * time.Millisecond
	batchPart   = 64 // but at most this part of any limit: they are lost with the process, for a whole window
	longestW    = 366 * 24 * time.Hour
	evenLeast   = 20               // calls of a window: with fewer, each comes when its permit does
	evenMost    = 30 * time.Second // a longer window: what a loss took from it is counted by the spacing of calls, see loss_most in pool.lua
)

// window is one limit as reserve.lua reads it, all times in µs.
type window struct{ n, length, ready, width int64 }

// plan is what follows from a PacerConfig, all times in µs.
type plan struct {
	cfg       PacerConfig
	windows   []window // shortest first
	exact     bool     // at least one window is not kept in parts
	shape     string
	horizon   int64
	spacing   int64
	even      int64 // spacing in the first window after a rest
	wave      int64 // that window
	tolerance int64
	batch     int64
	shortest  time.Duration // of all windows there may be
	inHand    int64         // most slots that one process holds while its machine is busy
	reach     int64         // slots that fit in the horizon, and so in one answer
	epsilon   int64
	tooLate   int64
	outlives  int64
	maxCost   int64
	audit     *audit
	laned     bool     // there are lanes, or routes with limits: slots come with their jobs
	waiting   []string // sets of the lanes with jobs
	lane      []window
	routes    map[string][]window
}

func newPlan(cfg PacerConfig) (*plan, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	limits := slices.Clone(cfg.Limits)
	slices.SortStableFunc(limits, func(a, b job.Limit) int { return int(a.Window - b.Window) })
	shortest := limits[0].Window
	for _, l := range cfg.beside() {
		shortest = min(shortest, l.Window)
	}
	if cfg.Lanes != nil {
		shortest = min(shortest, shortestOwn) // a lane may get such a limit of its own
	}
	p := &plan{
		cfg:      cfg,
		shortest: shortest,
		horizon:  min(horizonMost, shortest/2).Microseconds(),
		epsilon:  min(epsilonMost, shortest/200).Microseconds(),
		tooLate:  min(lateEver, shortest/4).Microseconds(),
		outlives: (cfg.CallTimeout + leaseMargin).Microseconds(),
		maxCost:  job.MaxCount,
	}
	p.spacing, p.even, p.wave = spacing(limits)
	p.tolerance = (max(cfg.Burst, 1) - 1) * p.spacing
	for _, l := range limits {
		p.addWindow(l)
	}
	if p.laned = cfg.Laned(); p.laned {
		p.addLanes()
	}
	p.batch = max(min(batchSpan.Microseconds()/max(p.spacing, 1), p.maxCost/batchPart, batchMost), batchLeast)
	p.inHand = max((p.horizon+p.tooLate)/max(p.spacing, 1), batchLeast, cfg.Burst)
	p.reach = 1 + (p.horizon+p.tolerance)/max(p.spacing, 1)
	p.audit = newAudit(p.windows)
	return p, nil
}

// spacing is 0.9 × window/N of the limit that allows the quickest pace: the others are kept by their permits
// alone, and a tenth quicker than the limit lets the slots catch up after one was given back. Still quicker
// does not help: 97.4 and 98.2 % of 1,000/s at 0.5, 98.0 and 98.3 % at 0.9. After a rest of a whole window
// every permit is free, and the pace of the first N calls recurs in each window: even is 0.99 × window/N, so
// that calls don't wait for the tenth of a window that 0.9 would leave empty each time.
func spacing(limits []job.Limit) (quick, even, wave int64) {
	quick = job.MaxCount
	for _, l := range limits {
		if at := l.Window.Microseconds() * 9 / (l.N * 10); at < quick {
			quick, even, wave = at, l.Window.Microseconds()*99/(l.N*100), l.Window.Microseconds()
		}
	}
	if wave < evenLeast*quick || wave > evenMost.Microseconds() { // quick is 0 if more than 900,000 calls a second are allowed
		even = quick
	}
	return quick, even, wave
}

func (p *plan) addWindow(l job.Limit) {
	w := p.window(l, exactN, subBuckets)
	p.exact = p.exact || w.width == 0
	p.windows = append(p.windows, w)
	p.shape += fmt.Sprintf("%d:%d ", w.length, w.width)
	p.maxCost = min(p.maxCost, l.N)
}

// window works out a limit: one of more units than exact in a long window is kept in parts.
func (p *plan) window(l job.Limit, exact, parts int64) window {
	length := l.Window.Microseconds()
	w := window{n: l.N, length: length}
	w.ready = length + (length+9999)/10000 + p.cfg.Jitter.Microseconds() + p.epsilon
	if l.N > exact && l.Window >= exactWindow {
		w.width = (length + parts - 1) / parts
		p.tooLate = min(p.tooLate, lateMost.Microseconds())
		w.ready += p.tooLate
	}
	return w
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

func (p *Pacer) now() int64 { return p.plan.Load().cfg.NowMicros.Now() }
