package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/internal/config"
	"spillway/internal/incarnation"
	"spillway/internal/ledger"
)

// units returns the gateways served, in configured order. A reload replaces the list.
func (d *Dispatcher) units() []*unit { return *d.roster.Load() }

func (d *Dispatcher) byName() map[string]*unit {
	all := make(map[string]*unit, len(d.units()))
	for _, u := range d.units() {
		all[u.name] = u
	}
	return all
}

// run runs a loop until the gateway is no longer served.
func (u *unit) run(loop func(context.Context)) { u.loops.Go(func() { loop(u.ctx) }) }

// end stops pulling, waits for the calls in flight, and gives unused slots back. ctx bounds the cleanup, not
// the calls.
func (u *unit) end(ctx context.Context) {
	u.halt()
	u.server.Halt()
	u.stop()
	u.server.Stop(ctx)
	u.pacer.Close(ctx)
	u.now().close()
	for _, e := range u.errands {
		e.end()
	}
	u.loops.Wait()
}

// newcomer prepares a gateway that is new in the configuration. It does nothing until join.
func (d *Dispatcher) newcomer(g config.Gateway) (change, error) {
	g, kept := bounded(g, d.longest)
	d.tools.working.Begin(g.Name)
	u, err := d.newUnit(g)
	if err != nil {
		d.forget(g.Name)
		return change{}, err
	}
	u.ailing.Store(true) // no pulse yet
	return change{unit: u, as: g, kept: kept, new: true}, nil
}

// recallAlso reads what other dispatchers on this machine have seen of gateways' data since this one started,
// if one of these gateways is new.
func (d *Dispatcher) recallAlso(gateways []config.Gateway, served map[string]*unit) {
	if d.state == nil || !slices.ContainsFunc(gateways, func(g config.Gateway) bool { return served[g.Name] == nil }) {
		return
	}
	seen, _ := d.state.Recall() // read errors were reported at the start
	for gateway, m := range seen {
		if _, known := d.tools.past.Of(gateway); !known {
			d.tools.past.Put(gateway, m)
		}
	}
}

// drop undoes the preparation of a refused reload.
func (d *Dispatcher) drop(changes []change) {
	for _, c := range changes {
		if c.new {
			c.unit.end(d.ctx)
			d.forget(c.unit.name)
		}
	}
}

// enlist applies the changes of a reload. Gateways no longer configured leave; it returns their names.
func (d *Dispatcher) enlist(changes []change) (gone []string) {
	before := d.byName()
	units := make([]*unit, len(changes))
	for i, c := range changes {
		units[i] = c.unit
		delete(before, c.unit.name)
	}
	left := d.units()
	d.roster.Store(&units)
	for _, u := range left {
		if before[u.name] == u {
			gone = append(gone, u.name)
			d.leave(u)
		}
	}
	return gone
}

// leave stops serving a gateway: nothing more is pulled, and its calls in flight finish in the background. Its
// jobs stay in Redis.
func (d *Dispatcher) leave(u *unit) {
	d.tools.past.Put(u.name, u.data.Memory())
	if d.state != nil {
		_ = d.state.Keep(map[string]incarnation.Memory{u.name: u.data.Memory()}) // without it, the next start knows a little less
	}
	u.log.Info("gateway no longer served, because the file does not have it: calls in flight finish, its jobs stay where they are")
	d.serving.Lock()
	defer d.serving.Unlock()
	u.halt()
	d.leaving.Go(func() {
		u.server.Halt()
		ctx, cancel := context.WithTimeout(context.Background(), u.grace+tidyTime)
		defer cancel()
		u.end(ctx)
		d.left(u)
	})
}

// tidyTime is how long a leaving gateway has for cleanup after its calls have finished.
const tidyTime = 10 * time.Second

// left removes the metrics of a gateway that has left, unless it is back.
func (d *Dispatcher) left(u *unit) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	if d.byName()[u.name] == nil {
		d.forget(u.name)
	}
}

func (d *Dispatcher) forget(gateway string) {
	d.tools.working.Forget(gateway)
	d.tools.pacing.Forget(gateway)
	d.tools.ages.Forget(gateway)
	d.tools.access.Forget(gateway)
	d.tools.faults.forget(gateway)
	d.tools.looking.forget(gateway)
}

// meetAtOnce is how many gateways' data are compared concurrently.
const meetAtOnce = 16

// join starts to serve new gateways. A gateway that can't be served yet is retried.
func (d *Dispatcher) join(ctx context.Context, changes []change) {
	var added []*unit
	for _, c := range changes {
		if c.new {
			added = append(added, c.unit)
		}
	}
	if left := d.begin(ctx, added); len(left) > 0 {
		d.later(left)
	}
}

// later retries gateways until all are served or stopping.
func (d *Dispatcher) later(units []*unit) {
	d.serving.Lock()
	defer d.serving.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	d.run(func(ctx context.Context) {
		for len(units) > 0 && await(ctx, mendEvery) {
			units = d.begin(ctx, slices.DeleteFunc(units, func(u *unit) bool { return u.ctx.Err() != nil }))
		}
	})
}

// begin serves those of some new gateways that can be served, and returns the others for a retry. No call is
// made before it is certain that a gateway's data is no old snapshot, and which limits are in force.
func (d *Dispatcher) begin(ctx context.Context, units []*unit) (left []*unit) {
	if len(units) == 0 {
		return nil
	}
	met, left := d.met(ctx, units)
	err := d.look(ctx, met, ledger.Slow{})
	if err == nil {
		err = d.announce(ctx, met)
	}
	if err != nil {
		d.p.Log.Warn("new gateways not served yet, trying again", "error", err)
		return append(left, met...)
	}
	for _, u := range met {
		if u.blind != nil {
			if d.failed(ctx, u, u.blind) {
				left = append(left, u)
			}
			continue
		}
		u.ailing.Store(false)
		d.serve(u)
		u.log.Info("serving", "limits", u.limitsNow())
	}
	return left
}

// failed logs why a gateway can't be served, and reports whether to retry it with others: one with damaged keys
// waits on its own.
func (d *Dispatcher) failed(ctx context.Context, u *unit, err error) (again bool) {
	if !u.ails(ctx, err) {
		return true
	}
	d.serving.Lock()
	defer d.serving.Unlock()
	if u.ctx.Err() == nil {
		u.run(func(ctx context.Context) { d.awaitMending(ctx, u) })
	}
	return false
}

func (u *unit) limitsNow() string {
	u.pacing.Lock()
	defer u.pacing.Unlock()
	return fmt.Sprint(u.kept.Limits)
}

// met compares gateways' data with what was seen of it. It returns the gateways for which that succeeded, and
// those for which Redis did not answer.
func (d *Dispatcher) met(ctx context.Context, units []*unit) (met, left []*unit) {
	errs := make([]error, len(units))
	turns, done := make(chan struct{}, meetAtOnce), sync.WaitGroup{}
	for i, u := range units {
		turns <- struct{}{}
		done.Go(func() {
			defer func() { <-turns }()
			errs[i] = u.meet(ctx, u.restored)
		})
	}
	done.Wait()
	for i, u := range units {
		if errs[i] == nil {
			met = append(met, u)
		} else if d.failed(ctx, u, errs[i]) {
			left = append(left, u)
		}
	}
	if len(left) > 0 {
		d.p.Log.Warn("new gateways not served yet, trying again", "gateways", len(left), "error", cmp.Or(errs...))
	}
	return met, left
}
