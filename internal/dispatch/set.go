package dispatch

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"spillway/internal/access"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
	"spillway/internal/worker"
)

// set is what a unit uses for its current configuration. A reload replaces it: a call ends with the set with
// which it began.
type set struct {
	cfg    config.Gateway
	books  *ledger.Books
	client *gateway.Client            // for jobs without a route
	routes map[string]*gateway.Client // for the others
	tokens *access.Keeper             // nil: calls carry none
	worker *worker.Worker
	asks   *lookups // nil: no look-ups
	began  time.Time
	sheds  bool // an earlier set had classes or lanes that this one lacks
}

func (u *unit) now() *set { return u.set.Load() }

func (u *unit) tokens() *access.Keeper { return u.now().tokens }

// close closes what the set opened. Its calls in flight finish.
func (s *set) close() {
	s.tokens.Close()
	if s.asks != nil {
		s.asks.close()
	}
	s.client.Close()
	for _, c := range s.routes {
		c.Close()
	}
}

// newSet makes the set for a configuration, or returns why that is not possible. It changes nothing.
func (u *unit) newSet(g config.Gateway) (*set, error) {
	ended := func(taskID string) { u.server.Ended(taskID) }
	s := &set{cfg: g, began: time.Now()}
	s.books = u.booksOf(s, ended)
	own := g.Own()
	how, err := callConfig(own)
	how.Pool, how.Dial = u.tools.pool, u.tools.dial
	if err == nil {
		s.client, err = gateway.New(how)
	}
	if err == nil {
		s.tokens, err = u.keeper(own, how)
	}
	if err != nil {
		return nil, fmt.Errorf("gateway %s: request: %w", g.Name, err)
	}
	if s.asks, err = newLookups(g, s.tokens, u.tools.dial); err != nil {
		return nil, fmt.Errorf("gateway %s: %w", g.Name, err)
	}
	if s.asks != nil {
		u.tools.looking.begin(g.Name)
	}
	answers, err := s.table(own)
	if err != nil {
		return nil, fmt.Errorf("gateway %s: answers: %w", g.Name, err)
	}
	parking := Store(u.calls, g)
	parking.TaskEnded = ended
	working := u.working(s, parking, answers)
	if working.Routes, err = u.routes(s); err != nil {
		return nil, err
	}
	s.worker = worker.New(working)
	return s, nil
}

// booksOf returns the books of a set: they open no attempt in data other than what the unit has seen. ended is
// called for each task that was removed from the queue with its attempt.
func (u *unit) booksOf(s *set, ended func(taskID string)) *ledger.Books {
	cfg := bookkeeping(u.calls, s.cfg)
	cfg.Counted, cfg.TaskEnded, cfg.SetAside = &u.counted, ended, u.setAside
	cfg.Exhausted = func(id string) { s.worker.Exhausted(id) }
	cfg.Unrouted = func(n int64) { s.worker.Unrouted(n) }
	cfg.Unopened = func(n int64) { s.worker.Unopened(n) }
	cfg.Age = func() ledger.Age {
		version, least, marks := u.data.Age()
		return ledger.Age{Version: version, Least: least, Marks: marks}
	}
	return ledger.New(u.calls, cfg)
}

// table returns what a gateway's answers mean, for the jobs of one route.
func (s *set) table(g config.Gateway) (outcome.Table, error) {
	answers, err := table(g)
	if s.tokens != nil {
		answers = answers.Hiding(maskOf(g).with(s.tokens))
	}
	return answers, err
}

// routes returns how to call the jobs of each route.
func (u *unit) routes(s *set) (map[string]worker.Route, error) {
	if len(s.cfg.Routes) == 0 {
		return nil, nil
	}
	all := make(map[string]worker.Route, len(s.cfg.Routes))
	s.routes = make(map[string]*gateway.Client, len(s.cfg.Routes))
	for _, name := range s.cfg.RouteNames() {
		as, _ := s.cfg.On(name)
		how, err := callConfig(as)
		how.Pool, how.Dial = u.tools.pool, u.tools.dial
		if err == nil {
			s.routes[name], err = gateway.New(how)
		}
		if err != nil {
			return nil, fmt.Errorf("gateway %s: routes.%s.request: %w", as.Name, name, err)
		}
		answers, err := s.table(as)
		if err != nil {
			return nil, fmt.Errorf("gateway %s: routes.%s.answers: %w", as.Name, name, err)
		}
		all[name] = worker.Route{Sender: sender{s.routes[name], u.machine, s.tokens, u.tools.made}, Judge: answers, Sent: sent(as), Circuit: s.cfg.RouteCircuit(name), OwnHost: hostOf(as) != hostOf(s.cfg.Own())}
	}
	return all, nil
}

// hostOf returns the host that a gateway calls; empty if unknown.
func hostOf(g config.Gateway) string {
	u, err := url.Parse(g.Request.URL.Reveal())
	if err != nil {
		return ""
	}
	return u.Host
}

// working returns the worker's configuration for a set.
func (u *unit) working(s *set, parking *deadletter.Store, answers outcome.Table) worker.Config {
	g, t := s.cfg, u.tools
	return worker.Config{
		Gateway: g.Name, Pacer: workerPacer{u.pacer, g.Circuit, u.machine, s.tokens}, Ledger: workerBooks{s.books, u}, DeadLetters: parking,
		Sender: sender{s.client, u.machine, s.tokens, u.tools.made}, Judge: answers, Backoff: outcome.Backoff{First: g.Retry.First, Max: g.Retry.Max}.Delay,
		Attempts: g.Retry.Attempts, Timeout: g.Request.Timeout,
		Keys: g.Request.Key.Any(), KeyLifetime: g.Request.KeyCovers(), Sent: sent(g.Own()),
		Owner: newOwner(), Stopping: u.stopped, Clock: clock.Real{}, Metrics: t.working, Log: t.log, Traces: t.traces,
	}
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

// Via returns the proxy through which a gateway is called; nil if there is none.
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
	t, err = t.With(a.Rules)
	return t.Referring(g.Reference).Needing(a.DoneNeeds).Matching(a.Matches).Saving(a.Saved[config.Class5xx]).Holding(g.Hold.Max).Hiding(maskOf(g).hide), err
}

// lapseFor bounds one round of parking expired jobs. The next one begins with the next job that is found expired.
const lapseFor = time.Second

// workerBooks is the books as the worker uses them. A unit follows what they record: the mover is told about each back-off, so that a retry is
// moved when it is due, and a job that was pulled in vain has those behind it looked at.
type workerBooks struct {
	*ledger.Books
	u *unit
}

func (b workerBooks) Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error) {
	a, opening, err := b.Books.Open(ctx, id, generation, owner, deadline)
	if err == nil && b.u.vain(opening) {
		b.u.lapse(ctx, b.Books, id)
	}
	return a, opening, err
}

func (b workerBooks) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	err := b.Books.Back(ctx, a, e, wait)
	if wait > 0 {
		b.u.mover.nudge()
	}
	return err
}

// vain reports whether a job that was pulled in vain may have others like it behind it: it has expired, or may have been called since a
// restored snapshot; or it is stale, because a process died before it had removed the tasks of such jobs.
func (u *unit) vain(opening job.Opening) bool {
	if opening == job.OpenUnknown {
		_, _, marks := u.data.Age()
		return marks != ""
	}
	return opening == job.OpenExpired || opening == job.OpenStale
}

// lapse takes the jobs out of the queue that wait behind one that was pulled at a slot. Otherwise each of them would take a slot,
// and the gateway would make no calls meanwhile.
func (u *unit) lapse(ctx context.Context, books *ledger.Books, id string) {
	if !u.lapsing.TryLock() {
		return
	}
	defer u.lapsing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lapseFor)
	defer cancel()
	for ctx.Err() == nil {
		did, err := books.Lapse(ctx, id)
		for _, id := range did.Expired {
			u.now().worker.Parked(id, job.Expired)
		}
		for _, id := range did.Unsure {
			if !did.Asked {
				u.now().worker.Parked(id, job.UnknownOutcome)
			}
		}
		if err != nil {
			u.complain(ctx, "jobs that can't be called not parked before they are pulled", err)
		}
		if err != nil || len(did.Expired)+len(did.Unsure) == 0 {
			return
		}
	}
}
