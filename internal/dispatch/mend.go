package dispatch

import (
	"context"
	"time"

	"spillway/internal/audit"
	"spillway/internal/ledger"
)

// totalsFirst is when the totals are looked at for the first time, and how long after a failure again.
const totalsFirst = 2 * time.Second

// totals looks at the totals of all gateways in one round trip, so that idle ones cost next to nothing, and wakes the menders of those where they
// don't add up, until ctx ends.
func (d *Dispatcher) totals(ctx context.Context) {
	for next := totalsFirst; await(ctx, next, nil); {
		units := d.units()
		books := make([]*ledger.Books, len(units))
		for i, u := range units {
			books[i] = u.now().books
		}
		odd, err := ledger.Odd(ctx, d.p.DB.Client, books)
		if next = audit.CalmLook; err != nil {
			next = totalsFirst
			if ctx.Err() == nil {
				d.p.Log.Warn("totals not looked at, trying again", "error", err)
			}
			continue
		}
		for i, u := range units {
			if odd[i] {
				nudge(u.odd)
			}
		}
	}
}

// mender puts right what writes behind our back, evictions and lost writes have put out of place, until ctx ends. It looks closer whenever the totals
// did not add up, until they do.
func (u *unit) mender(ctx context.Context) {
	m := audit.New(u.redis, u.name, u.now().books).Mender()
	for next := time.Duration(-1); await(ctx, next, u.odd); {
		var did audit.Mended
		var err error
		if did, next, err = m.Look(ctx); err != nil {
			u.complain(ctx, "totals not looked at, trying again", err)
		}
		if next >= audit.CalmLook {
			next = -1
		}
		if did != (audit.Mended{}) {
			u.log.Error("jobs were lost or out of place and are put right: find out who else writes to this Redis, or whether it evicts or lost writes",
				"queued_again", did.Requeued, "placed", did.Placed, "entries_removed", did.Removed)
		}
	}
}
