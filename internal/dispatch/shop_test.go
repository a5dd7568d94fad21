package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/double"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
	"spillway/internal/worker"
)

// shop is whole dispatchers and the double of a gateway, in virtual time. Redis is real, and calls go over connections in memory.
type shop struct {
	t      *testing.T
	v      *virtual
	g      config.Gateway
	double *double.Double
	began  time.Time
	door   *pipes
	all    []*clerk
	thaw   chan struct{} // closes when the run is judged
	bills  []bill        // what was taken in, where a story has it
}

// open opens a shop inside a bubble, runs it, and closes it. settings are the gateway's configuration, indented by four.
func open(t *testing.T, table *double.Table, o double.Options, settings string, run func(s *shop)) {
	t.Helper()
	openMutant(t, table, o, settings, nil, run)
}

// openMutant opens a shop whose program has a fault.
func openMutant(t *testing.T, table *double.Table, o double.Options, settings string, m mutant, run func(s *shop)) {
	t.Helper()
	testkit.Redis(t)
	name := testkit.Gateway(t)
	bubble(t, func(t *testing.T) {
		s := &shop{t: t, v: newVirtual(t, name, m), began: time.Now(), door: newPipes(), thaw: make(chan struct{})}
		cfg, err := config.Parse("x.yaml", []byte("redis: "+testkit.Redis(t)+"\ngateways:\n  "+name+":\n"+settings), config.Options{Secrets: true})
		s.must(err)
		s.g = cfg.Gateways[0]
		s.double, err = double.New(table, o)
		s.must(err)
		srv := &http.Server{Handler: s.double, ReadHeaderTimeout: time.Hour}
		go func() { _ = srv.Serve(s.door) }()
		run(s)
		close(s.thaw)
		const long = 2 * time.Minute
		died := slices.ContainsFunc(s.all, func(c *clerk) bool { return c.dead.Load() })
		if died {
			<-time.After(long) // dead processes record now what they could not
		}
		for _, c := range s.all {
			c.d.Stop(context.Background())
			c.client.Close()
			_ = c.db.Close()
		}
		_ = srv.Close()
		if !died {
			<-time.After(long) // the double may still answer calls; without dispatchers, which pulse all the time, this costs nothing
		}
		if left := s.v.unmade(); len(left) > 0 {
			t.Errorf("no script has the text %q", left)
		}
	})
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// wait waits until at after the beginning.
func (s *shop) wait(at time.Duration) { <-time.After(time.Until(s.began.Add(at))) }

// clerk is one process. A dead process does not reach Redis and makes no calls, but its calls in flight continue at the gateway. It wakes up when
// the run is judged, so that the test can end.
type clerk struct {
	s      *shop
	db     *redisdb.DB
	d      *Dispatcher
	client *gateway.Client
	dead   atomic.Bool
}

var errDead = errors.New("this process has died")

// hire starts one more process.
func (s *shop) hire() *clerk {
	s.t.Helper()
	c := &clerk{s: s, db: unhurried(s.t, testkit.Redis(s.t))}
	c.db.Client.AddHook(c)
	c.db.Client.AddHook(s.v)
	c.db.Client = listening{c.db.Client, s.v}
	var err error
	c.d, err = New(Params{DB: c.db, Gateways: []config.Gateway{s.g}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Patience: patience})
	s.must(err)
	c.call(c.d.units()[0])
	s.must(c.d.Start(s.t.Context()))
	s.all = append(s.all, c)
	return c
}

// call makes the process call the double.
func (c *clerk) call(u *unit) {
	set := *u.now()
	request, err := callConfig(set.cfg)
	c.s.must(err)
	request.Dial = c.s.door.dial
	c.client, err = gateway.New(request)
	c.s.must(err)
	c.asking(&set, request)
	judge, err := table(set.cfg)
	c.s.must(err)
	parking := Store(u.calls, set.cfg)
	parking.TaskEnded = u.server.Ended
	how := u.working(&set, parking, judge)
	how.Sender = c
	set.worker = worker.New(how)
	u.set.Store(&set)
}

// asking makes the process look up payments at the double.
func (c *clerk) asking(set *set, request gateway.Config) {
	if set.asks == nil {
		return
	}
	g, how, own := set.cfg, *set.asks, set.asks.routes[""]
	for accepted, to := range map[bool]*query{false: &own.doubted, true: &own.accepted} {
		q := g.Lookup.For(accepted)
		if q == nil {
			continue
		}
		var err error
		*to, err = newQuery(g, request, *q, lookMask(g).with(set.tokens))
		c.s.must(err)
		send := to.Send
		to.Send = func(ctx context.Context, r job.LookRequest) job.Result {
			return c.ifAlive(r.Due, func() job.Result { return send(ctx, r) })
		}
	}
	how.routes = map[string]lookup{"": own}
	set.asks = &how
}

// Send calls the double, if the process still lives.
func (c *clerk) Send(ctx context.Context, r job.Request) job.Result {
	return c.ifAlive(r.Due, func() job.Result { return c.client.Send(ctx, r) })
}

// ifAlive waits until due and then sends, if the process is alive.
func (c *clerk) ifAlive(due time.Time, send func() job.Result) job.Result {
	<-time.After(time.Until(due))
	if c.dead.Load() {
		<-c.s.thaw
		return job.Result{Stage: job.NotSent, Late: true}
	}
	return send()
}

// DialHook changes nothing.
func (c *clerk) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook keeps a dead process from Redis.
func (c *clerk) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.gone() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook does the same.
func (c *clerk) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.gone() {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

// gone reports whether the process is dead and the run not judged yet.
func (c *clerk) gone() bool {
	select {
	case <-c.s.thaw:
		return false
	default:
		return c.dead.Load()
	}
}

// take admits payments.
func (s *shop) take(jobs ...job.Job) {
	s.t.Helper()
	cfg := &config.Config{Gateways: []config.Gateway{s.g}}
	answers, err := Door(s.v.db.Client, cfg, patience).Admit(s.t.Context(), s.g.Name, jobs, admission.Park)
	s.must(err)
	for i, a := range answers {
		if a.Outcome != job.Enqueued {
			s.t.Fatalf("%s was not taken in: %+v", jobs[i].ID, a)
		}
	}
}

// settled waits until all jobs have ended, but not longer than most, and returns their standing.
func (s *shop) settled(most time.Duration) record.Standing {
	s.t.Helper()
	books := Books(s.v.db.Client, s.g)
	pause := func() time.Duration { return min(max(time.Second, time.Since(s.began)/100), 10*time.Second) } // less often in a run of hours
	for end := time.Now().Add(most); ; <-time.After(pause()) {
		at, err := books.Look(s.t.Context())
		s.must(err)
		if left := at.Queued + at.InFlight + at.Retrying + at.Scheduled + at.Pending + at.Parked[job.Rejected]; left == 0 || time.Now().After(end) {
			if left > 0 {
				s.t.Errorf("%d jobs are still on their way after %s: %+v", left, time.Since(s.began), at)
			}
			return at
		}
	}
}

// record returns the record of a job.
func (s *shop) record(id string) job.Record {
	s.t.Helper()
	rec, ok, err := Books(s.v.db.Client, s.g).Find(s.t.Context(), id)
	s.must(err)
	if !ok {
		s.t.Fatalf("job %s is lost", id)
	}
	return rec
}

// story returns the calls of a job, as the double recorded them.
func (s *shop) story(id string) (text string) {
	for _, c := range s.double.Calls() {
		if c.Job == id {
			text += fmt.Sprintf("\n  %s  %s %d, repeat: %v, fate %s", c.At.Sub(s.began), c.Answer, c.Status, c.Repeat, c.Fate)
		}
	}
	return text
}

// pipes makes connections in memory. Virtual time passes while a goroutine waits for one.
type pipes struct {
	coming chan net.Conn
	over   chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{coming: make(chan net.Conn), over: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.coming <- far:
		return near, nil
	case <-p.over:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the next connection.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.coming:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

// Close takes no more.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.over) })
	return nil
}

// Addr is nowhere.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
