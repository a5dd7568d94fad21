package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/access"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
	"spillway/internal/worker"
)

// Params configure a Dispatcher.
type Params struct {
	DB *redisdb.DB
	// Gateways are those to serve, with their secrets.
	Gateways []config.Gateway
	// Metrics is where metrics are registered.
	Metrics prometheus.Registerer
	Log     *slog.Logger
	// Traces records what becomes of jobs. Nil: not traced.
	Traces *tracing.Tracer
	// Version is the program's version, shown in the list of running dispatchers; empty: not shown.
	Version string
	// Listen returns the address of the HTTP server; nil or empty: none.
	Listen func() string
	// Chosen says that Gateways are only some of those in the configuration.
	Chosen bool
	// State is the directory in which this machine saves what it has seen of Redis's data; empty: only in
	// memory.
	State string
	// AfterRestore is the operator's confirmation that Redis was restored: calls continue, and calls that its
	// data doesn't know count as possibly made.
	AfterRestore bool
	// Patience is how long each step of Start waits for an unreachable Redis. Zero: not at all.
	Patience time.Duration
}

// Dispatcher calls gateways for the jobs in their queues. Any number of dispatchers may serve the same
// gateways.
type Dispatcher struct {
	p         Params
	tools     tools
	roster    atomic.Pointer[[]*unit] // gateways served, in configured order
	longest   time.Duration           // the longest call timeout at the start: no stop waits longer
	state     *incarnation.Store      // nil: nothing is saved on this machine
	forgetful bool                    // saving fails, which was logged
	burden    *bucket.Burden
	tooSlow   func(now time.Time) (slots int64, is bool)
	over      overload  // used only by the pulse
	overSaid  time.Time // when it was last logged that this process is too slow; used only by the pulse
	ctx       context.Context
	halt      context.CancelFunc
	loops     sync.WaitGroup
	turns     int // pulses so far; used only by the pulse
	from      int // where the next pulse starts, with many gateways; used only by the pulse
	round     round
	reloading sync.Mutex
	serving   sync.Mutex // held while a gateway starts to be served, or all stop
	leaving   sync.WaitGroup
}

// New returns a Dispatcher. It does nothing until Start.
func New(p Params) (*Dispatcher, error) {
	ballast()
	boundGarbage(len(p.Gateways))
	names := make([]string, len(p.Gateways))
	for i, g := range p.Gateways {
		names[i] = g.Name
	}
	t := tools{redis: p.DB.Client, calls: p.DB.Together, pacing: bucket.NewMetrics(p.Metrics), working: worker.NewMetrics(p.Metrics, names),
		access: access.NewMetrics(p.Metrics),
		log:    p.Log, traces: p.Traces}
	t.made, t.consume = &callsMade{}, queue.NewConsumers(p.DB.Client, p.Log)
	t.pool = gateway.NewPool()
	t.faults, t.looking = newMachineMetrics(p.Metrics), newLookMetrics(p.Metrics)
	t.ages = incarnation.NewMetrics(p.Metrics, names)
	d := &Dispatcher{p: p, burden: bucket.NewBurden(p.Metrics)}
	d.tooSlow = d.burden.Overloaded
	if len(p.Gateways) > 1 {
		t.burden = d.burden
	}
	t.past = incarnation.NewPast(d.recall())
	d.tools = t
	d.ctx, d.halt = context.WithCancel(context.Background())
	units := make([]*unit, len(p.Gateways))
	for i, g := range p.Gateways {
		d.longest = max(d.longest, g.Request.Timeout)
		var err error
		if units[i], err = d.newUnit(g); err != nil {
			return nil, err
		}
		units[i].restored = p.AfterRestore
	}
	d.roster.Store(&units)
	return d, nil
}

// Start starts to serve every gateway.
func (d *Dispatcher) Start(ctx context.Context) error {
	if err := d.meet(ctx); err != nil { // no call before it is certain that the data is no old snapshot
		return err
	}
	if err := d.patiently(ctx, d.lookAtAll); err != nil { // the limits in force must be known before the first call
		return err
	}
	if err := d.patiently(ctx, func(ctx context.Context) error { return d.announce(ctx, d.units()) }); err != nil {
		return err
	}
	sub := d.p.DB.Client.Subscribe(ctx, redisdb.Wake, bucket.HoldChannel) // first, because a new epoch of the pacer's state counts its subscribers
	_, _ = sub.ReceiveTimeout(ctx, time.Second)                           // without a reply it keeps trying
	d.run(func(ctx context.Context) { d.listen(ctx, sub) })
	d.run(d.pulse)
	d.run(d.remember)
	d.run(d.totals)
	d.run(d.erase)
	d.run(d.sayServing)
	for _, u := range d.units() {
		if u.ailing.Load() {
			u.run(func(ctx context.Context) { d.awaitMending(ctx, u) })
			continue
		}
		d.serve(u)
	}
	return nil
}

// serve starts to serve one gateway, unless the dispatcher is stopping.
func (d *Dispatcher) serve(u *unit) {
	d.serving.Lock()
	defer d.serving.Unlock()
	if u.ctx.Err() != nil {
		return
	}
	u.server.Start()
	for _, e := range u.errands {
		e.begin(-1)
	}
	u.sweeper.nudge()
	u.recoverer.nudge()
	u.sorter.nudge()
	u.recaller.nudge()
	if u.now().cfg.Outcomes != nil {
		u.feedMinder.nudge()
	}
}

// patiently retries a step of the start if it fails because Redis is unreachable, for example because the
// connection was just cut.
func (d *Dispatcher) patiently(ctx context.Context, step func(context.Context) error) error {
	return redisdb.Patiently(ctx, d.p.Patience, step)
}

// announce registers gateways, and makes their queues known to asynq's tools.
func (d *Dispatcher) announce(ctx context.Context, units []*unit) error {
	for _, u := range units {
		if err := redisdb.Register(ctx, d.p.DB.Client, u.name); err != nil {
			return err
		}
		err := queue.Announce(ctx, d.p.DB.Client, u.name)
		if redisdb.Away(err) {
			return err
		}
		if err != nil { // jobs don't depend on it
			u.complain(ctx, "asynq's own tools don't see the queue", err)
		}
	}
	return nil
}

func (d *Dispatcher) run(loop func(context.Context)) {
	d.loops.Add(1)
	go func() {
		defer d.loops.Done()
		loop(d.ctx)
	}()
}

// listen handles messages from Redis: it wakes idle gateways when a job has become due, drops reserved slots
// when a hold begins, and reports the slots known here when Redis has forgotten them, or may have.
func (d *Dispatcher) listen(ctx context.Context, sub *redis.PubSub) {
	defer sub.Close()
	heard := sub.ChannelWithSubscriptions()
	for {
		select {
		case m, ok := <-heard:
			if !ok {
				return
			}
			switch m := m.(type) {
			case *redis.Message:
				d.hear(m.Channel, m.Payload)
			case *redis.Subscription:
				if m.Channel == bucket.HoldChannel {
					for _, u := range d.units() {
						u.pacer.Report()
					}
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// hear acts on a message about a gateway. It must not wait for Redis: other gateways' messages come after this one.
func (d *Dispatcher) hear(channel, gateway string) {
	for _, u := range d.units() {
		if u.name != gateway {
			continue
		}
		if channel == bucket.HoldChannel {
			u.pacer.Drop()
			u.pacer.Report()
			u.mover.nudge() // the circuit may have closed: waiting work continues
		}
		u.woken.Store(true)
		u.pacer.Wake()
	}
}

// Stop stops pulling, waits for the calls in flight (up to each gateway's timeout), and gives unused slots
// back. Uncalled jobs stay at the head of the queue. ctx bounds the cleanup, not the calls.
func (d *Dispatcher) Stop(ctx context.Context) {
	d.serving.Lock()
	d.halt()
	d.serving.Unlock()
	var stopping sync.WaitGroup
	for _, u := range d.units() {
		stopping.Add(1)
		go func() {
			defer stopping.Done()
			u.end(ctx)
		}()
	}
	stopping.Wait()
	d.leaving.Wait()
	d.loops.Wait()
	d.tools.consume.Close()
}

// mendEvery is how often a gateway that could not be served at the start is retried.
const mendEvery = 2 * time.Second

// ails marks a gateway as not served if err means that one of its keys is damaged, and reports whether it does.
// The other gateways are served.
func (u *unit) ails(ctx context.Context, err error) bool {
	_, damaged := errors.AsType[*redisdb.DamagedError](err)
	if damaged {
		u.ailing.Store(true)
		u.idle = true
		u.log.ErrorContext(ctx, "gateway not served until its keys in Redis are mended", "error", err)
	}
	return damaged
}

// awaitMending serves a gateway once its keys are repaired.
func (d *Dispatcher) awaitMending(ctx context.Context, u *unit) {
	for await(ctx, mendEvery) {
		if u.meet(ctx, u.restored) != nil || d.look(ctx, []*unit{u}, ledger.Slow{}) != nil || u.blind != nil {
			continue
		}
		u.ailing.Store(false)
		d.serve(u)
		u.log.Info("gateway served: its keys in Redis are mended")
		return
	}
}

// setAside logs that a job with a damaged record was parked.
func (u *unit) setAside(id string) {
	u.log.Error("parked", "job", id, "reason", job.Unreadable, "error", "something else wrote into its record in Redis",
		"hint", "dispatcher dlq show "+ShellWord(id)+" says where that is now: look the job up at the gateway, then dispatcher dlq resolve")
}
