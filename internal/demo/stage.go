package demo

import (
	"context"
	"fmt"
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
