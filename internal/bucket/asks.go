package bucket

import (
	"context"
	"time"

	"spillway/internal/job"
)

// noRoute is the route of look-ups, which take no permits of a route. No route has this name, so scripts find
// nothing under it.
const noRoute = "\x00"

// Ask takes a permit of a job's lane for a look-up of the job; the slot already has the account's. It returns
// the slot with that permit, or how long to wait until the lane has one. After that wait the caller reserves
// another slot and asks again. Without lanes there is nothing to take.
func (p *Pacer) Ask(ctx context.Context, s job.Slot, lane string) (with job.Slot, wait time.Duration, err error) {
	pl := p.plan.Load()
	if pl.cfg.Lanes == nil {
		return s, 0, nil
	}
	arg := p.besideLane(pl, p.local(p.clock.Now()))
	within, cancel := p.within(ctx, answerWithin)
	defer cancel()
	us, err := asksScript.Run(within, p.client, []string{p.keys.Pace(), p.keys.Nobodys()}, p.now(), lane, s.At, p.late.edge(s), jsonOf(arg)).Int64()
	if err == nil && us == 0 {
		s.Flow = job.Flow{Route: noRoute, Lane: lane, Kept: true}
	}
	return s, time.Duration(us) * time.Microsecond, err
}
