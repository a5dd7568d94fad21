package dispatch

import (
	"context"
	"fmt"
	"reflect"
	"slices"

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

// set is what a unit works with as it is configured now. A reload puts another one in its place: a call ends with the one it began with.
type set struct {
	cfg    config.Gateway
	books  *ledger.Books
	client *gateway.Client
	worker *worker.Worker
}

func (u *unit) now() *set { return u.set.Load() }

// newSet makes what the configuration asks for, or says why it can't be had. Nothing is changed by it.
func (u *unit) newSet(g config.Gateway) (*set, error) {
	ended := func(taskID string) { u.server.Ended(taskID) }
	s := &set{cfg: g}
	s.books = watchedBooks(u.calls, g, u.data, hears{ended, func(id string) { s.worker.Exhausted(id) }, u.setAside})
	how, err := callConfig(g)
	if err == nil {
		s.client, err = gateway.New(how)
	}
	if err != nil {
		return nil, fmt.Errorf("gateway %s: request: %w", g.Name, err)
	}
	answers, err := table(g)
	if err != nil {
		return nil, fmt.Errorf("gateway %s: answers: %w", g.Name, err)
	}
	parking := Store(u.calls, g)
	parking.TaskEnded = ended
	s.worker = worker.New(u.working(s, parking, answers))
	return s, nil
}

// working is what the worker of a set works with.
func (u *unit) working(s *set, parking *deadletter.Store, answers outcome.Table) worker.Config {
	g, t := s.cfg, u.tools
	return worker.Config{
		Gateway: g.Name, Pacer: pacer{u.pacer, g.Circuit, u.machine}, Ledger: nudging{s.books, u.due}, DeadLetters: parking,
		Sender: sender{s.client, u.machine}, Judge: answers, Backoff: outcome.Backoff{First: g.Retry.First, Max: g.Retry.Max}.Delay,
		Attempts: g.Retry.Attempts, Timeout: g.Request.Timeout,
		Keys: g.Request.IdempotencyHeader != "", KeyLifetime: g.Request.KeyCovers(), Sent: sent(g),
		Owner: newOwner(), Stopping: u.stopped, Clock: clock.Real{}, Metrics: t.working, Log: t.log, Traces: t.traces,
	}
}

// Reloaded is what a reload came to.
type Reloaded struct {
	// Gateways are those served, as they are configured now, in the order of New.
	Gateways []config.Gateway
	// Kept says in words what stays as it was until a restart.
	Kept []string
}

// Reload takes over new settings for the gateways that are served; others are not looked at. Calls under way end with the old ones. Either
// all settings are taken over or, with an error, none. Limits that were set live go on before the file's.
func (d *Dispatcher) Reload(ctx context.Context, gateways []config.Gateway) (Reloaded, error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	var out Reloaded
	sets := make([]*set, len(d.units))
	for i, u := range d.units {
		g, kept := u.feasible(gateways)
		out.Gateways, out.Kept = append(out.Gateways, g), append(out.Kept, kept...)
		if reflect.DeepEqual(g, u.now().cfg) {
			continue
		}
		if _, err := Pacer(u.redis, g, bucket.NewMetrics(nil)); err != nil {
			return Reloaded{}, err
		}
		var err error
		if sets[i], err = u.newSet(g); err != nil {
			return Reloaded{}, err
		}
	}
	for i, s := range sets {
		if s != nil {
			old := d.units[i].set.Swap(s)
			defer old.client.Close() // its calls under way finish
		}
	}
	for i, s := range sets {
		if s != nil {
			d.units[i].settleIn(ctx)
		}
	}
	return out, nil
}

// manyMore is by how much the jobs in hand may fall short of all calls that could be under way: few of them take anything like the time-out.
const manyMore = 4

// feasible returns the unit's gateway as far as it can be changed while it works, and what stays as it was.
func (u *unit) feasible(gateways []config.Gateway) (g config.Gateway, kept []string) {
	i := slices.IndexFunc(gateways, func(g config.Gateway) bool { return g.Name == u.name })
	if i < 0 {
		return u.now().cfg, nil
	}
	g = gateways[i]
	if g.Request.Timeout > u.grace {
		kept = append(kept, fmt.Sprintf("gateways.%s.request.timeout above the %s of the start", u.name, job.FormatDuration(u.grace)))
		g.Request.Timeout = u.grace
	}
	if concurrency(g) > manyMore*u.hands {
		kept = append(kept, fmt.Sprintf("more than %d calls of %s at once from this process", u.hands, u.name))
	}
	return g, kept
}

// settleIn has the pacer and the loops follow a new set. If Redis can't be asked for the limits that are set live, the next pulse that reaches it
// takes the new limits over.
func (u *unit) settleIn(ctx context.Context) {
	if err := u.adopt(ctx); err != nil {
		u.limits.Store(-1)
		u.complain(ctx, "limits of the reloaded file not taken over yet, trying again", err)
	}
	nudge(u.rejected)
	u.pacer.Wake()
}
