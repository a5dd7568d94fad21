package dispatch

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/job"
)

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
	changes := make([]change, len(gateways))
	served := d.byName()
	d.recallAlso(gateways, served)
	if len(gateways) > 1 {
		d.tools.burden = d.burden // new gateways are not alone
	}
	for i, g := range gateways {
		var err error
		if changes[i], err = d.changeOf(served[g.Name], g); err != nil {
			d.drop(changes)
			return Reloaded{}, err
		}
		out.add(changes[i])
	}
	boundGarbage(len(gateways))
	out.Removed = d.enlist(changes)
	for _, c := range changes {
		if c.set != nil {
			old := c.unit.set.Swap(c.set)
			defer old.close() // its calls in flight finish
		}
	}
	for _, c := range changes {
		if c.set != nil {
			c.unit.settleIn(ctx)
		}
	}
	d.join(ctx, changes)
	return out, nil
}

// change is what a reload does with one gateway.
type change struct {
	unit *unit
	as   config.Gateway // as far as it can change while running
	kept []string       // what does not change
	set  *set           // nil: no change, or a new gateway
	new  bool
}

// changeOf returns the change of one gateway, served by u; nil: not served yet.
func (d *Dispatcher) changeOf(u *unit, g config.Gateway) (change, error) {
	if u == nil {
		return d.newcomer(g)
	}
	g, kept := u.feasible(g)
	c := change{unit: u, as: g, kept: kept}
	if same(g, u.now().cfg) {
		return c, nil
	}
	if _, err := Pacer(u.redis, g, bucket.NewMetrics(nil)); err != nil {
		return c, err
	}
	var err error
	if c.set, err = u.newSet(g); err == nil {
		c.set.sheds = u.now().sheds || sheds(u.now().cfg, g)
	}
	return c, err
}

// same reports whether a gateway is unchanged, apart from its line in the file, which moves when another
// gateway is added before it.
func same(a, b config.Gateway) bool {
	a.At = b.At
	return reflect.DeepEqual(a, b)
}

func (r *Reloaded) add(c change) {
	r.Gateways, r.Kept = append(r.Gateways, c.as), append(r.Kept, c.kept...)
	if c.new {
		r.Added = append(r.Added, c.as)
	}
}

// manyMore is by what factor the limit of jobs in flight may fall short of all calls that could be in flight:
// few calls take nearly as long as the timeout.
const manyMore = 4

// feasible returns the unit's gateway as far as it can change while running, and what does not change.
func (u *unit) feasible(g config.Gateway) (as config.Gateway, kept []string) {
	g, kept = bounded(g, u.grace)
	if concurrency(g) > manyMore*u.mostInFlight {
		kept = append(kept, fmt.Sprintf("more than %d calls of %s at once from this process", u.mostInFlight, u.name))
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
	u.feedMinder.nudge()
	u.sorter.nudge()
	u.recaller.nudge()
	u.pacer.Wake()
}
