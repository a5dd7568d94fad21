package dispatch

import (
	"cmp"
	"context"
	"time"

	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/incarnation"
	"spillway/internal/job"
)

// rememberEvery is how often this machine saves what it has seen of Redis's data: as much as a crash may lose.
const rememberEvery = 5 * time.Second

// complainEvery is how often an unreadable age of a gateway's data is logged. Pulses try at least once a
// second.
const complainEvery = time.Minute

// watch returns the watch on the age of a gateway's data.
func watch(g config.Gateway, t tools) *incarnation.Watch {
	return incarnation.NewWatch(t.redis, incarnation.Params{Gateway: g.Name, Past: t.past, Clock: clock.Real{},
		Metrics: t.ages, Log: t.log})
}

// recall returns what this machine has seen of each gateway's data.
func (d *Dispatcher) recall() map[string]incarnation.Memory {
	if d.p.State == "" {
		return nil
	}
	d.state = incarnation.OpenStore(d.p.State, d.p.DB.String())
	seen, err := d.state.Recall()
	if err != nil {
		d.p.Log.Warn("what this machine has seen of Redis's data can't be read: an old snapshot is noticed only from now on", "error", err)
	}
	return seen
}

// meet compares each gateway's data with what was seen of it. Gateways whose data is an old snapshot are held,
// and the others are served. It returns an error if no gateway is left that may be called.
func (d *Dispatcher) meet(ctx context.Context) error {
	held, ill := 0, 0
	var ailing error
	for _, u := range d.units() {
		err := d.patiently(ctx, func(ctx context.Context) error { return u.meet(ctx, u.restored) })
		if err != nil && !u.ails(ctx, err) {
			return err
		}
		if ailing = cmp.Or(ailing, err); err != nil {
			ill++
			continue
		}
		if u.data.Doubted() {
			held++
		}
	}
	d.keep()
	if ill > 0 && ill == len(d.units()) {
		return ailing
	}
	if held > 0 && held+ill == len(d.units()) {
		return d.Ready()
	}
	return nil
}

// meet compares the gateway's data with what was seen of it. restored is the operator's confirmation that Redis
// was restored.
func (u *unit) meet(ctx context.Context, restored bool) error {
	if restored {
		return u.settle(ctx)
	}
	return u.data.Meet(ctx)
}

// settle applies the operator's confirmation that Redis was restored.
func (u *unit) settle(ctx context.Context) error {
	confirmed, err := u.data.Confirm(ctx)
	u.confirmed = u.confirmed || confirmed // a try whose reply was lost counts
	switch {
	case err != nil:
	case u.confirmed:
		u.log.Warn("restored, as an operator says: jobs accepted until now may have been called; they go out with the same living key, or are parked")
	default:
		u.log.Info("nothing is known of a restore: --after-restore changes nothing")
	}
	return err
}

// Ready returns why a gateway is held although it could be called: its data is an old snapshot, or in a newer
// format. It returns nil if there is no such gateway.
func (d *Dispatcher) Ready() error {
	units := d.units()
	all := make([]*incarnation.Watch, len(units))
	for i, u := range units {
		if err := u.data.Newer(); err != nil {
			return err
		}
		all[i] = u.data
	}
	if message, hint := incarnation.Doubted(all); message != "" {
		return &job.Error{Code: job.CodeFailed, Message: message, Hint: hint}
	}
	return nil
}

// age applies what a pulse found out about the data's age. If it is in doubt, slots reserved earlier are given
// back.
func (u *unit) age(ctx context.Context, alive int64) {
	if err := u.data.Felt(ctx, alive); err != nil && time.Since(u.unread) > complainEvery {
		u.unread = time.Now()
		u.complain(ctx, "the age of Redis's data not looked at, trying again", err)
	}
	if u.data.Doubted() {
		u.pacer.Empty(ctx, job.Slot{})
	}
}

// remember saves what was seen, periodically and at the end.
func (d *Dispatcher) remember(ctx context.Context) {
	for await(ctx, rememberEvery) {
		d.keep()
	}
	d.keep()
}

// keep saves what was seen. It logs a failure only once, not every few seconds.
func (d *Dispatcher) keep() {
	if d.state == nil {
		return
	}
	seen := make(map[string]incarnation.Memory, len(d.units()))
	for _, u := range d.units() {
		seen[u.name] = u.data.Memory()
	}
	err := d.state.Keep(seen)
	if err != nil && !d.forgetful {
		d.p.Log.Warn(incarnation.InMemoryAlone, "error", err)
	}
	d.forgetful = err != nil
}
