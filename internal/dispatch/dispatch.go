package dispatch

import (
	"context"
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
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/tracing"
	"spillway/internal/worker"
)

// Params say what a dispatcher serves.
type Params struct {
	DB *redisdb.DB
	// Gateways are those to serve, with their secrets.
	Gateways []config.Gateway
	// Metrics is where the instruments go.
	Metrics prometheus.Registerer
	Log     *slog.Logger
	// Traces hears of what becomes of jobs. Nil: nobody does.
	Traces *tracing.Tracer
	// Version is the program's own, for those who ask who serves; empty: it is not said.
	Version string
	// Listen returns where the HTTP side is; empty, or nil: there is none.
	Listen func() string
	// Chosen says that Gateways are not all of the file's.
	Chosen bool
	// State is the directory in which this machine remembers what it has seen of Redis's data; empty: in memory alone.
	State string
	// AfterRestore is an operator's word that Redis was restored: calls go on, and what its data doesn't know counts as called.
	AfterRestore bool
	// Patience is how long each step of Start waits for a Redis that is away. Zero: not at all.
	Patience time.Duration
}

// Dispatcher serves gateways from their queues. Any number of dispatchers may serve the same ones.
type Dispatcher struct {
	p         Params
	tools     tools
	roster    atomic.Pointer[[]*unit] // those served, in the order of the file
	longest   time.Duration           // the longest time-out of a call at the start: no stop waits longer
	state     *incarnation.Store      // nil: nothing is kept on this machine
	forgetful bool                    // it can't be kept, and the log has said so
	burden    *bucket.Burden
	tooSlow   func(now time.Time) (slots int64, is bool)
	over      overload  // the pulse's own
	overSaid  time.Time // when the log last said that this process is too slow; the pulse's own
	ctx       context.Context
	halt      context.CancelFunc
	loops     sync.WaitGroup
	turns     int // pulses so far; the pulse's own
	from      int // where the next pulse begins, of many gateways; the pulse's own
	round     round
	reloading sync.Mutex
	serving   sync.Mutex // whoever has it begins to serve a gateway, or stops all
	leaving   sync.WaitGroup
}

// New returns a dispatcher that does nothing until Start.
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

// Start begins to serve every gateway.
func (d *Dispatcher) Start(ctx context.Context) error {
	if err := d.meet(ctx); err != nil { // nothing is called before it is known that the data is no old snapshot
		return err
	}
	if err := d.patiently(ctx, d.lookAtAll); err != nil { // the limits that hold now come before the first call
		return err
	}
	if err := d.patiently(ctx, func(ctx context.Context) error { return d.announce(ctx, d.units()) }); err != nil {
		return err
	}
	sub := d.p.DB.Client.Subscribe(ctx, redisdb.Wake, bucket.HoldChannel) // before anything is asked for: a life of the pacer's state that begins counts who listens
	_, _ = sub.ReceiveTimeout(ctx, time.Second)                           // without an answer it goes on trying
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

// serve begins to serve one gateway, unless it is to stop by now.
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
		u.teller.nudge()
	}
}

// patiently does a step of the start that may be repeated: a connection that is cut just then is no reason to give up.
func (d *Dispatcher) patiently(ctx context.Context, step func(context.Context) error) error {
	return redisdb.Patiently(ctx, d.p.Patience, step)
}

// announce writes gateways into the register, and tells asynq's own tools of their queues.
func (d *Dispatcher) announce(ctx context.Context, units []*unit) error {
	for _, u := range units {
		if err := redisdb.Register(ctx, d.p.DB.Client, u.name); err != nil {
			return err
		}
		err := queue.Announce(ctx, d.p.DB.Client, u.name)
		if redisdb.Away(err) {
			return err
		}
		if err != nil { // jobs don't need it
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

// listen wakes idle gateways when a job has become due, drops reserved slots when a hold begins, and says what is known here of
// slots when Redis seems to have forgotten them, or may have while nobody could be told.
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
				d.hear(ctx, m.Channel, m.Payload)
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

func (d *Dispatcher) hear(ctx context.Context, channel, gateway string) {
	for _, u := range d.units() {
		if u.name != gateway {
			continue
		}
		if channel == bucket.HoldChannel {
			u.pacer.Empty(ctx, job.Slot{})
			u.pacer.Report()
			u.mover.nudge() // the circuit may have closed: what waited for that goes on
		}
		u.woken.Store(true)
		u.pacer.Wake()
	}
}

// Stop pulls no more jobs, lets the calls under way finish (up to each gateway's time-out), and gives unused slots
// back. Jobs that were not called stay at the head of the queue. ctx bounds the tidying up, not the calls.
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
