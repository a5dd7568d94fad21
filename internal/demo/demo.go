// Package demo runs the whole system in one process and shows its progress. It enqueues a billing file. Admission has room for a
// part of the jobs; the others are parked and go in by themselves. Two workers call a strict provider at its limit. The provider
// refuses some jobs; they are replayed after its settings have changed. The demo ends with a summary whose totals must agree.
//
// The demo is made of the same parts as the two programs. Only the provider is simulated.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/lifecycle"
	"spillway/internal/provider"
	"spillway/internal/redisdb"
)

// Params configure a run. Default returns those of "dispatcher demo".
type Params struct {
	// Jobs is the number of jobs in the billing file, without duplicates and invalid lines.
	Jobs int
	// Expiring is how many of these are at the end of the file and expire before they are called.
	Expiring int
	// ExpireAfter is how long after the start these expire.
	ExpireAfter time.Duration
	// Limit is the limit of the provider, and the limit that the dispatchers keep.
	Limit provider.Limit
	// Room is the burst of admission: how many jobs it takes at once.
	Room int
	// Workers is the number of dispatchers that run concurrently.
	Workers int
	// Service is how long the provider takes to answer.
	Service time.Duration
	// DeclineEvery says that the provider refuses one of so many jobs, with 402.
	DeclineEvery int
	// Fail is the share of calls, from 0 to 1, that the provider answers with 500.
	Fail float64
	// Patience bounds the whole run. A run that takes longer fails.
	Patience time.Duration
	// Log is the log of the dispatchers.
	Log *slog.Logger
}

// Default returns the parameters of "dispatcher demo". A run takes about 27 seconds.
func Default() Params {
	return Params{
		Jobs: 2400, Expiring: 12, ExpireAfter: 5 * time.Second,
		Limit: provider.Limit{N: 100, Window: time.Second}, Room: 600, Workers: 2,
		Service: 20 * time.Millisecond, DeclineEvery: 20, Fail: 0.01,
		Patience: 2 * time.Minute, Log: slog.New(slog.DiscardHandler),
	}
}

// Watcher follows a run. Its methods are not called concurrently.
type Watcher interface {
	// Tell announces the next part of the run.
	Tell(what string)
	// Show gets the present state, several times a second.
	Show(v View)
}

// Outcome is the result of a run.
type Outcome struct {
	Reckoning Reckoning
	// Calls are all calls that reached the provider, for a picture.
	Calls []provider.CallLine
	Limit provider.Limit
}

// Run runs the demo. An error says that the run did not come to its end. The caller checks whether the reckoning holds. When ctx
// ends, Run stops everything in order and returns ctx's error.
func Run(ctx context.Context, p Params, w Watcher) (Outcome, error) {
	s, err := setUp(ctx, p)
	if err != nil {
		return Outcome{}, err
	}
	o, err := s.play(ctx, w)
	if stopErr := s.tearDown(); err == nil {
		err = stopErr
	}
	return o, err
}

// play runs the chapters and the reckoning.
func (s *stage) play(ctx context.Context, w Watcher) (Outcome, error) {
	begun := time.Now()
	bounded, cancel := context.WithDeadline(ctx, begun.Add(s.p.Patience))
	defer cancel()
	r := Reckoning{Limit: s.p.Limit.String()}
	err := s.chapters(bounded, w, &r)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case time.Since(begun) >= s.p.Patience:
		return Outcome{}, fmt.Errorf("the demo did not end within %v: is this machine very busy?", s.p.Patience)
	default:
		return Outcome{}, err
	}
	r.Seconds = tenth(time.Since(begun).Seconds())
	calls, err := s.reckon(ctx, &r)
	return Outcome{Reckoning: r, Calls: calls, Limit: s.p.Limit}, err
}

func (s *stage) chapters(ctx context.Context, w Watcher, r *Reckoning) error {
	w.Tell(fmt.Sprintf("A billing file of %s jobs goes in. There is room for %s;\nthe rest waits for room, and goes in by itself.",
		number(s.p.Jobs), number(s.p.Room)))
	if err := s.enqueue(ctx, r); err != nil {
		return err
	}
	w.Tell(fmt.Sprintf("%d workers call a provider that allows %s and answers 429 above.\nIt refuses one job in %d, and one call in %.0f fails.",
		s.p.Workers, s.p.Limit, s.p.DeclineEvery, 1/s.p.Fail))
	if err := s.watch(ctx, w, r.Jobs); err != nil {
		return err
	}
	s.noteRate(r)
	w.Tell("The provider changes its mind about the jobs that it refused:\nthey are replayed, each under a new idempotency key.")
	s.strict.Set(s.forgiving())
	if err := s.replay(ctx, r); err != nil {
		return err
	}
	return s.watch(ctx, w, r.Jobs)
}

// lookEvery is the time between two views.
const lookEvery = 200 * time.Millisecond

// watch shows the state until no job waits and no call is in flight.
func (s *stage) watch(ctx context.Context, w Watcher, jobs int) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		v, err := s.look(ctx, jobs)
		if err != nil {
			return err
		}
		w.Show(v)
		if v.Waiting+v.Rejected+v.InFlight == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const gatewayName = "demo"

// stage is the running system:
//
//	billing file ─▶ producer ─▶ admission ─▶ embedded Redis ◀─▶ dispatcher 1 ─┐
//	                                                       ◀─▶ dispatcher 2 ─┴─▶ strict provider, on a loopback port
type stage struct {
	p      Params
	begun  time.Time
	db     *redisdb.DB
	strict *provider.Provider
	cfg    *config.Config
	books  *ledger.Books
	parts  lifecycle.Group
}

// setUp starts all parts. If one of them can't start, it stops the others.
func setUp(ctx context.Context, p Params) (*stage, error) {
	s := &stage{p: p, begun: time.Now()}
	s.strict = provider.New(provider.Config{Limits: []provider.Limit{p.Limit}, Service: p.Service, DeclineEvery: p.DeclineEvery, Fail: p.Fail})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the provider needs a loopback port: %w", err)
	}
	s.cfg = configuration(p, ln.Addr().String())
	if s.db, err = dispatch.Open(ctx, s.cfg, 0); err != nil {
		_ = ln.Close()
		return nil, err
	}
	s.books = dispatch.Books(s.db.Client, s.cfg.Gateways[0])
	s.parts.Add(lifecycle.Step{Name: "the embedded Redis", Stop: func(context.Context) error { return s.db.Close() }})
	s.addProvider(ln)
	for n := range p.Workers {
		if err := s.addWorker(n + 1); err != nil {
			_, _ = ln.Close(), s.db.Close()
			return nil, err
		}
	}
	return s, s.parts.Start(ctx)
}

// configuration is the configuration of the dispatchers. Everything else has its default, as in a file.
func configuration(p Params, addr string) *config.Config {
	g := config.DefaultGateway()
	g.Name = gatewayName
	g.Request.URL = config.Secret("http://" + addr + "/v1/charges")
	g.Request.Timeout = 10 * time.Second
	g.Leak.Limits = []job.Limit{{N: int64(p.Limit.N), Window: p.Limit.Window}}
	g.Admission.Limits, g.Admission.Burst = g.Leak.Limits, int64(p.Room)
	g.Retry.First = 250 * time.Millisecond
	cfg := config.Default()
	cfg.File, cfg.Redis, cfg.Gateways = "the demo", redisdb.Embedded, []config.Gateway{g}
	return cfg
}

func (s *stage) addProvider(ln net.Listener) {
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s.parts.Add(lifecycle.Step{
		Name:  "the provider",
		Start: func(context.Context) error { go func() { ended <- s.strict.Serve(serving, ln) }(); return nil },
		Stop:  func(context.Context) error { stop(); return <-ended },
	})
}

func (s *stage) addWorker(n int) error {
	d, err := dispatch.New(dispatch.Params{DB: s.db, Gateways: s.cfg.Gateways, Metrics: prometheus.NewRegistry(), Log: s.p.Log.With("worker", n)})
	if err != nil {
		return err
	}
	s.parts.Add(lifecycle.Step{
		Name: fmt.Sprintf("worker %d", n), Within: s.cfg.Gateways[0].Request.Timeout + lifecycle.DefaultStep,
		Start: d.Start,
		Stop:  func(ctx context.Context) error { d.Stop(ctx); return nil },
	})
	return nil
}

// tearDown stops the workers, the provider and the Redis, in this order.
func (s *stage) tearDown() error { return s.parts.Stop(context.Background()) }

// forgiving returns the settings with which the provider refuses no job and fails no call.
func (s *stage) forgiving() provider.Config {
	c := s.strict.Config()
	c.DeclineEvery, c.Fail = 0, 0
	return c
}
