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

// units are the gateways at work, in the order of the file. A reload puts other ones in their place.
func (d *Dispatcher) units() []*unit { return *d.roster.Load() }

func (d *Dispatcher) byName() map[string]*unit {
	all := make(map[string]*unit, len(d.units()))
	for _, u := range d.units() {
		all[u.name] = u
	}
	return all
}

// run has a loop go on until the gateway is served no more.
func (u *unit) run(loop func(context.Context)) { u.loops.Go(func() { loop(u.ctx) }) }

// end pulls no more jobs, lets the calls under way finish, and gives unused slots back. ctx bounds the tidying up, not the calls.
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

// newcomer makes what serves a gateway that is new in the file. It does nothing until it joins.
func (d *Dispatcher) newcomer(g config.Gateway) (plan, error) {
	g, kept := bounded(g, d.longest)
	d.tools.working.Begin(g.Name)
	u, err := d.newUnit(g)
	if err != nil {
		d.forget(g.Name)
		return plan{}, err
	}
	u.ailing.Store(true) // no pulse is for it yet
	return plan{unit: u, as: g, kept: kept, new: true}, nil
}

// recallAlso reads what other dispatchers of this machine have seen of gateways' data since this one began, if one of these is new.
func (d *Dispatcher) recallAlso(gateways []config.Gateway, served map[string]*unit) {
	if d.state == nil || !slices.ContainsFunc(gateways, func(g config.Gateway) bool { return served[g.Name] == nil }) {
		return
	}
	seen, _ := d.state.Recall() // what can't be read was said at the start
	for gateway, m := range seen {
		if _, known := d.tools.past.Of(gateway); !known {
			d.tools.past.Put(gateway, m)
		}
	}
}

// drop takes back what was made for a reload that is refused.
func (d *Dispatcher) drop(plans []plan) {
	for _, p := range plans {
		if p.new {
			p.unit.end(d.ctx)
			d.forget(p.unit.name)
		}
	}
}

// enlist puts the gateways of a reload into their places. Those that are in it no more leave; their names come back.
func (d *Dispatcher) enlist(plans []plan) (gone []string) {
	before := d.byName()
	units := make([]*unit, len(plans))
	for i, p := range plans {
		units[i] = p.unit
		delete(before, p.unit.name)
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

// leave serves a gateway no more: nothing is pulled from now on, and its calls under way finish beside what goes on. Its jobs stay in Redis.
func (d *Dispatcher) leave(u *unit) {
	d.tools.past.Put(u.name, u.data.Memory())
	if d.state != nil {
		_ = d.state.Keep(map[string]incarnation.Memory{u.name: u.data.Memory()}) // else the next start knows a little less
	}
	u.log.Info("gateway served no more, as the file does not have it: calls under way finish, its jobs stay where they are")
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

// tidyTime is how long a gateway that leaves has for what is left to do when its calls have finished.
const tidyTime = 10 * time.Second

// left takes the figures of a gateway away that has left, unless it is back by now.
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

// meetAtOnce is how many gateways are compared with what was seen of their data beside one another.
const meetAtOnce = 16

// join begins to serve the gateways that are new, as a start does. One that can't be served yet is tried again until it can.
func (d *Dispatcher) join(ctx context.Context, plans []plan) {
	var added []*unit
	for _, p := range plans {
		if p.new {
			added = append(added, p.unit)
		}
	}
	if left := d.begin(ctx, added); len(left) > 0 {
		d.later(left)
	}
}

// later tries to serve gateways until all of them are, or are to stop.
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

// begin serves those of some new gateways that can be, and returns those to be tried again: nothing is called before it is known that a gateway's
// data is no old snapshot, and which limits hold.
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

// failed says why a gateway can't be served, and whether it is to be tried again with others: one whose keys are damaged waits on its own.
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

// met compares gateways' data with what was seen of it. It returns those where that could be done, and those where Redis gave no answer.
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
