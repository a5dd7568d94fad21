package dispatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/access"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/tracing"
	"spillway/internal/worker"
)

// unit is one gateway at work in this process:
//
//	queue server ◀──slots── queuePacer ◀── pacer ◀── Redis
//	     │ delivery with its slot, by an asynq server that gateways share
//	     ▼
//	  worker ──▶ ledger.Open ──▶ gateway.Send ──▶ outcome.Judge ──▶ ledger.Done / Back, deadletter.Park, pacer.Hold
//
//	background work, started by the process's pulse:
//	  mover      moves due retries and scheduled jobs
//	  replayer   admits jobs parked as rejected
//	  recoverer  replays jobs parked as exhausted
//	  sweeper    recovers what dead workers left
//	  asker      makes look-ups of pending jobs
//	  sorter     moves jobs whose class is no longer configured
//	  recaller   restores what was set at run time for lanes and routes
//	  feedMinder watches the readers of the outcome feed
//	  shelver    parks batches that stopped themselves
//	started by the process's check of the totals:
//	  mender     repairs what is lost or out of place
type unit struct {
	name         string
	set          atomic.Pointer[set]
	data         *incarnation.Watch
	counted      ledger.Counted // money of the calls that this process has opened
	machine      *ownMachine
	pacer        *bucket.Pacer
	server       *queue.Server
	tools        tools
	log          *slog.Logger
	redis        redis.UniversalClient
	calls        redis.UniversalClient // for the scripts of each call: they share round trips with those of all gateways
	grace        time.Duration         // the longest call timeout that a stop waits for
	mostInFlight int                   // of jobs, in the server
	pacing       sync.Mutex            // held while the pacer gets new limits
	kept         bucket.PacerConfig
	left         left                // jobs that can never be admitted; used only by the replayer
	reflow       reflow              // used only by the replayer
	setLive      bucket.SetLive      // for lanes and routes; used only by the recaller
	sorted       atomic.Pointer[set] // with this configuration, no jobs are in lanes that no longer exist
	limits       atomic.Int64        // version of the pacer's limits
	refused      int64               // version of limits that could not be applied, which was logged; used only by the pulse
	lapsing      sync.Mutex          // held while expired jobs are parked
	idle         bool                // the last pulse found nothing to do; used only by the pulse
	woken        atomic.Bool         // a message about it came since the last pulse
	passed       bool                // the last pulse asked for a sweep and this process skipped it; used only by the pulse
	unread       time.Time           // when an unreadable age of the data was last logged; used only by the pulse
	ailing       atomic.Bool         // not served, because one of its keys is damaged
	blind        error               // why the last pulse of this gateway failed; used only by the pulse
	damaged      time.Time           // when a fault of this gateway alone was last logged; used only by the pulse
	headSaid     time.Time           // see seal
	outdated     time.Time           // when it was last logged that Redis refuses this process's limits as too old; used only by the pulse
	confirmed    bool                // the operator's confirmation of a restore was applied
	restored     bool                // an operator confirmed a restore before this process started
	stopped      context.Context
	stop         context.CancelFunc
	ctx          context.Context // of the loops
	halt         context.CancelFunc
	loops        sync.WaitGroup

	feedHold feedHold
	tendedAt time.Time // when the last pulse had the feed checked; used only by the pulse
	askers   askers
	looked   atomic.Uint64 // look-ups so far, for the names of their owners
	owner    string
	resumes  ledger.Resumes // used only by the shelver

	mover, replayer, recoverer, sweeper, shelver, mender, minder, asker, sorter, recaller, feedMinder *errand
	errands                                                                                           []*errand // all of these
	trying                                                                                            bool      // the machine is out of service and being tested; used only by the minder
}

type tools struct {
	ages    *incarnation.Metrics
	faults  machineMetrics
	looking lookMetrics
	past    *incarnation.Past // what was seen of each gateway's data
	redis   redis.UniversalClient
	calls   func() redis.UniversalClient
	pacing  *bucket.Metrics
	burden  *bucket.Burden // nil: the only gateway, whose pacer tracks it itself
	working *worker.Metrics
	consume *queue.Consumers
	pool    *gateway.Pool // of connections to gateways
	dial    dialer        // opens those connections; nil: on the machine's network
	access  *access.Metrics
	made    *callsMade
	log     *slog.Logger
	traces  *tracing.Tracer
}

// dialer opens a connection, as net.Dialer does.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func (d *Dispatcher) newUnit(g config.Gateway) (*unit, error) {
	t := d.tools
	data := watch(g, t)
	u := &unit{name: g.Name, data: data, tools: t, log: t.log.With("gateway", g.Name), redis: t.redis, calls: t.calls(),
		grace: g.Request.Timeout, mostInFlight: concurrency(g), owner: newOwner(), resumes: ledger.Resumes{}}
	u.stopped, u.stop = context.WithCancel(context.Background())
	u.ctx, u.halt = context.WithCancel(d.ctx)
	u.mover, u.replayer, u.recoverer, u.sweeper = u.errand(u.move), u.errand(u.replay), u.errand(u.recoverDue), u.errand(u.sweep)
	u.shelver, u.minder = u.errand(u.shelve), u.errand(u.mind)
	u.asker, u.sorter, u.recaller = u.errand(u.ask), u.errand(u.sort), u.errand(u.recall)
	u.feedMinder = u.errand(u.tendFeed)
	u.machine = newMachine(g.Name, t.faults, u.log, u.minder.nudge)
	var err error
	if u.pacer, err = Pacer(u.calls, g, t.pacing); err != nil {
		return nil, err
	}
	u.pacer.Share(t.burden)
	first, err := u.newSet(g)
	if err != nil {
		return nil, err
	}
	u.set.Store(first)
	u.mender = u.errand(u.mend(first.books))
	u.kept = pacing(g, Limits{Limits: g.Leak.Limits})
	u.server = queue.NewServer(u.calls, queue.ServerConfig{
		Gateway: g.Name, Concurrency: u.mostInFlight, Pacer: queuePacer{u.pacer, u.data, u.machine, u.tokens, &u.feedHold}, Handle: u.handle,
		Grace: g.Request.Timeout + 5*time.Second, Consumers: t.consume, Log: t.log,
	})
	u.server.Order(g.Priority.List())
	return u, nil
}

// Pacer returns a pacer for a gateway.
func Pacer(c redis.UniversalClient, g config.Gateway, m *bucket.Metrics) (*bucket.Pacer, error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: g.Leak.Limits}), m)
	if err != nil {
		return nil, &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("gateway %s: leak: %v", g.Name, err)}
	}
	return p, nil
}

// pacing returns the pacer's configuration for a gateway with these limits in force. At most as many calls as
// the smallest of them allows can start together, whatever is configured for the original limits.
func pacing(g config.Gateway, l Limits) bucket.PacerConfig {
	burst := g.Leak.Burst
	for _, one := range l.Limits {
		burst = min(burst, max(one.N, 0))
	}
	return bucket.PacerConfig{Gateway: g.Name, Limits: l.Limits, Version: l.Version, Burst: burst, First: queue.FirstLines(g.Name, g.Priority.List()),
		Classes: g.Priority.List(), Routes: routesOf(g), Lanes: lanesOf(g), Scoped: g.Scoped(), Jitter: g.Leak.Jitter, MaxInFlight: g.Leak.MaxInFlight, CallTimeout: g.Request.Timeout}
}

// lanesOf returns the settings of a gateway's lanes; nil if it has none.
func lanesOf(g config.Gateway) *bucket.Lanes {
	if g.Lanes == nil {
		return nil
	}
	return &bucket.Lanes{Limits: g.Lanes.Limits, Weight: g.Lanes.Weight, MaxInFlight: g.Lanes.MaxInFlight}
}

// routesOf returns the routes of a gateway, with their limits.
func routesOf(g config.Gateway) (all []bucket.Route) {
	for _, r := range g.Routes {
		all = append(all, bucket.Route{Name: r.Name, Limits: r.Limits, MaxInFlight: r.MaxInFlight})
	}
	return all
}

// handle passes one delivery to the worker. An error means that nothing was recorded: the task comes again.
func (u *unit) handle(ctx context.Context, d job.Delivery) error {
	return u.now().worker.Handle(ctx, d)
}

// Bounds on the jobs of one gateway that a process may have in flight.
const (
	leastInHand = 16
	mostInHand  = 4096
)

// concurrency returns how many jobs this process may have in flight, by Little's law: the calls that start at
// the leak rate within one timeout. It bounds memory; it is not a limit towards the gateway.
func concurrency(g config.Gateway) int {
	n := float64(mostInHand)
	for _, l := range g.Leak.Limits {
		windows := max(1, g.Request.Timeout.Seconds()/l.Window.Seconds())
		n = min(n, float64(l.N)*windows)
	}
	return max(leastInHand, int(n))
}

// newOwner returns the prefix of this process's fencing tokens.
func newOwner() string {
	var b [6]byte
	rand.Read(b[:])
	return processName() + "." + hex.EncodeToString(b[:])
}

// processName returns HOST.PID of this process.
func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s.%d", host, os.Getpid())
}

// workerPacer adapts a bucket.Pacer to the worker.
type workerPacer struct {
	*bucket.Pacer
	circuit job.Circuit
	machine *ownMachine
	tokens  *access.Keeper
}

// barred returns why no slot can be used now, or nil.
func (p workerPacer) barred() error {
	switch {
	case p.machine.unfit() != nil:
		return errUnfit
	case !p.tokens.Ready():
		return errNoToken
	}
	return nil
}

func (p workerPacer) Take(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.barred(); err != nil {
		return job.Slot{}, err
	}
	return p.Pacer.Take(ctx, cost, id)
}

func (p workerPacer) Retake(ctx context.Context, cost int64, id string) (job.Slot, error) {
	if err := p.barred(); err != nil {
		return job.Slot{}, err
	}
	return p.Pacer.Retake(ctx, cost, id)
}

func (p workerPacer) Failed(ctx context.Context, f job.Failure) (job.Fallout, error) {
	return p.Pacer.Failed(ctx, p.circuit, f)
}

// queuePacer adapts the pacer to the queue. Nothing is pulled while the data is doubtful, this machine can't call,
// there is no access token, or a reader of outcomes is too far behind.
type queuePacer struct {
	*bucket.Pacer
	data     *incarnation.Watch
	machine  *ownMachine
	tokens   func() *access.Keeper
	feedHold *feedHold
}

func (g queuePacer) free() bool {
	return g.data.Free() && g.machine.unfit() == nil && g.tokens().Ready() && !g.feedHold.held()
}

func (g queuePacer) Next(ctx context.Context) (job.Slot, error) {
	for {
		if err := cmp.Or(g.data.Wait(ctx), g.machine.wait(ctx), g.feedHold.wait(ctx)); err != nil {
			return job.Slot{}, err
		}
		s, err := g.Pacer.Next(ctx)
		if err != nil || g.free() {
			return s, err
		}
		g.Empty(ctx, s)
		if g.feedHold.held() {
			continue
		}
		if err := g.tokens().Wait(ctx); err != nil { // only now that there is a job to call: an idle gateway needs no token
			return job.Slot{}, err
		}
	}
}

func (g queuePacer) More(most int) []job.Slot {
	if !g.free() {
		return nil
	}
	return g.Pacer.More(most)
}

func (g queuePacer) Passed(s job.Slot) bool {
	return g.Pacer.Passed(s, time.Now()) || g.machine.unfit() != nil || !g.tokens().Ready() || g.feedHold.held()
}

// sender adapts the gateway client to the worker.
type sender struct {
	c       *gateway.Client
	machine *ownMachine
	tokens  *access.Keeper
	made    *callsMade
}

// Send makes a call, with an access token if the gateway needs one, and drops a token that the gateway rejects.
func (s sender) Send(ctx context.Context, r job.Request) job.Result {
	var t *access.Token
	if s.tokens != nil {
		if t = s.tokens.Current(); t == nil {
			return job.Result{Stage: job.NotSent, Err: errNoToken}
		}
		r.Bearer = t.Text
	}
	res := s.c.Send(ctx, r)
	s.machine.called(res.Err)
	s.made.add(res)
	switch {
	case t == nil || res.Stage != job.Answered:
	case res.Status == http.StatusUnauthorized:
		res.Renewed = s.tokens.Refused(ctx, t)
	default:
		t.Works()
	}
	return res
}

// callsMade counts the calls of this process, with the time of the last one.
type callsMade struct{ n, last atomic.Int64 }

// add counts a call's result.
func (c *callsMade) add(res job.Result) {
	if !res.Wrote.IsZero() {
		c.n.Add(1)
		c.last.Store(res.Wrote.UnixMicro())
	}
}
