package dispatch

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"time"

	"spillway/internal/access"
	"spillway/internal/bucket"
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
	s.books = watchedBooks(u.calls, g, u.data, &u.counted, hears{ended, func(id string) { s.worker.Exhausted(id) }, func(n int64) { s.worker.Unrouted(n) }, u.setAside})
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
		Gateway: g.Name, Pacer: pacer{u.pacer, g.Circuit, u.machine, s.tokens}, Ledger: noting{s.books, u}, DeadLetters: parking,
		Sender: sender{s.client, u.machine, s.tokens, u.tools.made}, Judge: answers, Backoff: outcome.Backoff{First: g.Retry.First, Max: g.Retry.Max}.Delay,
		Attempts: g.Retry.Attempts, Timeout: g.Request.Timeout,
		Keys: g.Request.Key.Any(), KeyLifetime: g.Request.KeyCovers(), Sent: sent(g.Own()),
		Owner: newOwner(), Stopping: u.stopped, Clock: clock.Real{}, Metrics: t.working, Log: t.log, Traces: t.traces,
	}
}

// Reloaded is the result of a reload.
type Reloaded struct {
	// Gateways are those served, in their current configuration and in configured order.
	Gateways []config.Gateway
	// Added are those of them that were not served before.
	Added []config.Gateway
	// Removed are the names of gateways no longer served.
	Removed []string
	// Kept says what does not change until a restart.
	Kept []string
}

// Reload changes the configuration to these gateways and no others. Calls in flight end under the old one, even
// those of a removed gateway. Either everything is applied or, with an error, nothing. Limits set at run time
// still take precedence over configured ones.
func (d *Dispatcher) Reload(ctx context.Context, gateways []config.Gateway) (Reloaded, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	var out Reloaded
	plans := make([]plan, len(gateways))
	served := d.byName()
	d.recallAlso(gateways, served)
	if len(gateways) > 1 {
		d.tools.burden = d.burden // new gateways are not alone
	}
	for i, g := range gateways {
		var err error
		if plans[i], err = d.planned(served[g.Name], g); err != nil {
			d.drop(plans)
			return Reloaded{}, err
		}
		out.add(plans[i])
	}
	boundGarbage(len(gateways))
	out.Removed = d.enlist(plans)
	for _, p := range plans {
		if p.set != nil {
			old := p.unit.set.Swap(p.set)
			defer old.close() // its calls in flight finish
		}
	}
	for _, p := range plans {
		if p.set != nil {
			p.unit.settleIn(ctx)
		}
	}
	d.join(ctx, plans)
	return out, nil
}

// plan is what a reload does with one gateway.
type plan struct {
	unit *unit
	as   config.Gateway // as far as it can change while running
	kept []string       // what does not change
	set  *set           // nil: no change, or a new gateway
	new  bool
}

// planned returns the plan for one gateway, served by u; nil: not served yet.
func (d *Dispatcher) planned(u *unit, g config.Gateway) (plan, error) {
	if u == nil {
		return d.newcomer(g)
	}
	g, kept := u.feasible(g)
	p := plan{unit: u, as: g, kept: kept}
	if same(g, u.now().cfg) {
		return p, nil
	}
	if _, err := Pacer(u.redis, g, bucket.NewMetrics(nil)); err != nil {
		return p, err
	}
	var err error
	if p.set, err = u.newSet(g); err == nil {
		p.set.sheds = u.now().sheds || sheds(u.now().cfg, g)
	}
	return p, err
}

// same reports whether a gateway is unchanged, apart from its line in the file, which moves when another
// gateway is added before it.
func same(a, b config.Gateway) bool {
	a.At = b.At
	return reflect.DeepEqual(a, b)
}

func (r *Reloaded) add(p plan) {
	r.Gateways, r.Kept = append(r.Gateways, p.as), append(r.Kept, p.kept...)
	if p.new {
		r.Added = append(r.Added, p.as)
	}
}

// manyMore is by what factor the limit of jobs in flight may fall short of all calls that could be in flight:
// few calls take nearly as long as the timeout.
const manyMore = 4

// feasible returns the unit's gateway as far as it can change while running, and what does not change.
func (u *unit) feasible(g config.Gateway) (as config.Gateway, kept []string) {
	g, kept = bounded(g, u.grace)
	if concurrency(g) > manyMore*u.hands {
		kept = append(kept, fmt.Sprintf("more than %d calls of %s at once from this process", u.hands, u.name))
	}
	return g, kept
}

// bounded returns the gateway with a timeout that a stop waits for, and what does not change.
func bounded(g config.Gateway, grace time.Duration) (config.Gateway, []string) {
	if g.Request.Timeout <= grace {
		return g, nil
	}
	g.Request.Timeout = grace
	return g, []string{fmt.Sprintf("gateways.%s.request.timeout above the %s of the start", g.Name, job.FormatDuration(grace))}
}

// settleIn makes the pacer and the loops use a new set. If Redis is unreachable, the next successful pulse
// applies the new limits.
func (u *unit) settleIn(ctx context.Context) {
	if err := u.adopt(ctx); err != nil {
		u.limits.Store(-1)
		u.complain(ctx, "limits of the reloaded file not taken over yet, trying again", err)
	}
	u.server.Order(u.now().cfg.Priority.List())
	u.replayer.nudge()
	u.asker.nudge()
	u.teller.nudge()
	u.sorter.nudge()
	u.recaller.nudge()
	u.pacer.Wake()
}
