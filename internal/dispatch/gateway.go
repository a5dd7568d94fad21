package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
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
	"spillway/internal/outcome"
	"spillway/internal/queue"
	"spillway/internal/tracing"
	"spillway/internal/worker"
)

// unit is one gateway at work in this process:
//
//	queue server ──pull──▶ gate ◀──slots── pacer ◀── Redis
//	     │ delivery with its slot, by an asynq server that gateways share
//	     ▼
//	  worker ──▶ ledger.Open ──▶ gateway.Send ──▶ outcome.Judge ──▶ ledger.Done / Back, deadletter.Park, pacer.Hold
//
//	beside it, woken by the process's pulse: mover (due retries and scheduled jobs), replayer (jobs parked as rejected), recoverer (those parked as exhausted),
//	sweeper (what the dead left), asker (look-ups of pending jobs), sorter (jobs of classes that the file has no more), recaller (what was set live for lanes and routes), teller (readers of the outcome feed), shelver (batches that stopped themselves); by the process's look at the totals: mender (what is lost or out of place)
type unit struct {
	name      string
	set       atomic.Pointer[set]
	data      *incarnation.Watch
	counted   ledger.Counted // the money that this process has opened calls for
	machine   *ownMachine
	pacer     *bucket.Pacer
	server    *queue.Server
	tools     tools
	log       *slog.Logger
	redis     redis.UniversalClient
	calls     redis.UniversalClient // for what each call costs: such scripts share round trips with those of all gateways
	grace     time.Duration         // the longest time-out of a call that a stop waits for
	hands     int                   // how many jobs the server has in hand at most
	pacing    sync.Mutex            // whoever has it tells the pacer what to keep
	kept      bucket.PacerConfig
	left      left                // jobs that can never go in; the replayer's own
	reflow    reflow              // the replayer's own, too
	setLive   bucket.SetLive      // for lanes and routes; the recaller's own
	sorted    atomic.Pointer[set] // with these settings no jobs are left in lanes that are no more
	limits    atomic.Int64        // version of the limits that the pacer keeps
	refused   int64               // version of those that could not be taken over, as the log has said; the pulse's own
	idle      bool                // the last pulse found nothing to do; the pulse's own
	woken     atomic.Bool         // something was published of it since it was looked at last
	passed    bool                // the last pulse that called for a sweep led to none; the pulse's own
	unread    time.Time           // when the log last said that the data's age can't be looked at; the pulse's own
	ailing    atomic.Bool         // it is not served, since one of its keys is damaged
	blind     error               // why the last pulse of this gateway could not be taken; the pulse's own
	damaged   time.Time           // when the log last said what keeps this gateway alone from being served; the pulse's own
	headSaid  time.Time           // see seal
	outdated  time.Time           // when the log last said that the limits kept here are refused as too old; the pulse's own
	confirmed bool                // an operator has settled that Redis was restored
	restored  bool                // an operator has said so before this process began
	stopped   context.Context
	stop      context.CancelFunc
	ctx       context.Context // of the loops
	halt      context.CancelFunc
	loops     sync.WaitGroup

	told   told
	toldAt time.Time // when the last pulse had the feed looked at; the pulse's own
	askers askers
	looked atomic.Uint64 // look-ups so far, for their owners' names
	owner  string

	mover, replayer, recoverer, sweeper, shelver, mender, minder, asker, sorter, recaller, teller *errand
	errands                                                                                       []*errand // all of these
	trying                                                                                        bool      // the machine is out of service, and is tried; the minder's own
}

type tools struct {
	ages    *incarnation.Metrics
	faults  machineMetrics
	looking lookMetrics
	past    *incarnation.Past // what was seen of each gateway's data
	redis   redis.UniversalClient
	calls   func() redis.UniversalClient
	pacing  *bucket.Metrics
	burden  *bucket.Burden // nil: there is one gateway, whose pacer looks after itself
	working *worker.Metrics
	consume *queue.Consumers
	pool    *gateway.Pool // of connections to gateways
	access  *access.Metrics
	made    *callsMade
	log     *slog.Logger
	traces  *tracing.Tracer
}

func (d *Dispatcher) newUnit(g config.Gateway) (*unit, error) {
	t := d.tools
	data := watch(g, t)
	u := &unit{name: g.Name, data: data, tools: t, log: t.log.With("gateway", g.Name), redis: t.redis, calls: t.calls(),
		grace: g.Request.Timeout, hands: concurrency(g), owner: newOwner()}
	u.stopped, u.stop = context.WithCancel(context.Background())
	u.ctx, u.halt = context.WithCancel(d.ctx)
	u.mover, u.replayer, u.recoverer, u.sweeper = u.errand(u.move), u.errand(u.replay), u.errand(u.recoverDue), u.errand(u.sweep)
	u.shelver, u.minder = u.errand(u.shelve), u.errand(u.mind)
	u.asker, u.sorter, u.recaller = u.errand(u.ask), u.errand(u.sort), u.errand(u.recall)
	u.teller = u.errand(u.tell)
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
		Gateway: g.Name, Concurrency: u.hands, Gate: gate{u.pacer, u.data, u.machine, u.tokens, &u.told}, Handle: u.handle,
		Grace: g.Request.Timeout + 5*time.Second, Consumers: t.consume, Log: t.log,
	})
	u.server.Order(g.Priority.List())
	return u, nil
}

// Pacer returns the pacer of a gateway.
func Pacer(c redis.UniversalClient, g config.Gateway, m *bucket.Metrics) (*bucket.Pacer, error) {
	p, err := bucket.NewPacer(c, pacing(g, Limits{Limits: g.Leak.Limits}), m)
	if err != nil {
		return nil, &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("gateway %s: leak: %v", g.Name, err)}
	}
	return p, nil
}

// handle hands one delivery to the worker. An error means that nothing was written down: the task comes again.
func (u *unit) handle(ctx context.Context, d job.Delivery) error {
	return u.now().worker.Handle(ctx, d)
}

func callConfig(g config.Gateway) (gateway.Config, error) {
	secure, err := g.Request.TLS.Config()
	if err != nil {
		return gateway.Config{}, fmt.Errorf("tls: %w", err)
	}
	signs, err := signing(g.Request.Sign)
	if err != nil {
		return gateway.Config{}, fmt.Errorf("sign.private_key: %w", err)
	}
	headers := make(map[string]string, len(g.Request.Headers))
	for name, value := range g.Request.Headers {
		headers[name] = value.Reveal()
	}
	return gateway.Config{URL: g.Request.URL.Reveal(), Method: g.Request.Method, Encoding: g.Request.Encoding, Headers: headers,
		JobHeaders: jobHeaders(g.Request), Strip: g.Request.Strip,
		Key: g.Request.Key, Timeout: g.Request.Timeout, MaxConns: concurrency(g), TLS: secure,
		Proxy: g.Request.Proxy.Reveal(), Sign: signs, OAuth2: granting(g.Request.OAuth2)}, nil
}

func jobHeaders(q config.Request) map[string][]gateway.HeaderPart {
	all := make(map[string][]gateway.HeaderPart, len(q.JobHeaders))
	for name, parts := range q.JobHeaders {
		for _, p := range parts {
			all[name] = append(all[name], gateway.HeaderPart{Text: p.Text.Reveal(), Secret: p.Variable.Reveal(), Place: p.Place})
		}
	}
	return all
}

// Via returns the proxy that a gateway is called through; nil where there is none.
func Via(g config.Gateway) (*gateway.Proxy, error) {
	return gateway.ParseProxy(g.Request.Proxy.Reveal())
}

func signing(s config.Sign) (gateway.Sign, error) {
	key, err := s.Key()
	to := gateway.Sign{Header: s.Header, Value: s.Value, Secret: []byte(s.Secret.Reveal()), Key: key, Algorithm: s.Algorithm, Content: s.Content,
		Encoding: s.Encoding, TimestampHeader: s.TimestampHeader, Timestamp: s.Timestamp}
	if s.JWS != nil {
		to.JWS = &gateway.JWS{KeyID: s.JWS.KeyID, Unencoded: s.JWS.Unencoded, Protected: s.JWS.Protected}
	}
	return to, err
}

func table(g config.Gateway) (outcome.Table, error) {
	a := g.Answers
	t, err := outcome.Profile(a.Profile)
	if err != nil {
		return outcome.Table{}, err
	}
	rules := make([]outcome.Rule, len(a.Rules))
	for i, r := range a.Rules {
		rules[i] = outcome.Rule{When: r.When, Status: r.Status, Header: r.Header, Body: r.Body, Then: job.Verdict(r.Then), Scope: job.Scope(r.Scope), Reference: r.Reference}
	}
	t, err = t.With(rules)
	return t.Referring(g.Reference).Needing(a.DoneNeeds).Matching(a.Matches).Saving(a.Saved[config.Class5xx]).Holding(g.Hold.Max).Hiding(maskOf(g).hide), err
}

// The bounds of how many jobs of one gateway a process may have in hand.
const (
	leastInHand = 16
	mostInHand  = 4096
)

// concurrency is how many jobs this process may have in hand, by Little's law: the calls that start at the leak rate within one
// time-out. It is a bound for memory, not a limit towards the gateway.
func concurrency(g config.Gateway) int {
	n := float64(mostInHand)
	for _, l := range g.Leak.Limits {
		windows := max(1, g.Request.Timeout.Seconds()/l.Window.Seconds())
		n = min(n, float64(l.N)*windows)
	}
	return max(leastInHand, int(n))
}

// nudging tells the mover of each back-off that this process writes down, so that a retry is moved when it is due
// and not when somebody looks.
type nudging struct {
	*ledger.Books
	due *errand
}

func (n nudging) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	err := n.Books.Back(ctx, a, e, wait)
	if wait > 0 {
		n.due.nudge()
	}
	return err
}

// newOwner returns the start of the fencing tokens of this process.
func newOwner() string {
	var b [6]byte
	rand.Read(b[:])
	return processName() + "." + hex.EncodeToString(b[:])
}

// processName is HOST.PID of this process.
func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s.%d", host, os.Getpid())
}
