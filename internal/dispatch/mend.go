package dispatch

import (
	"context"
	"time"

	"spillway/internal/audit"
	"spillway/internal/ledger"
)

// totalsFirst is when the totals are checked for the first time, and how soon after a failure.
const totalsFirst = 2 * time.Second

// totals checks the totals of all gateways in one round trip, so that idle ones cost next to nothing, and
// repairs gateways whose totals don't add up, until ctx ends.
func (d *Dispatcher) totals(ctx context.Context) {
	for next := totalsFirst; await(ctx, next); {
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
				u.mender.nudge()
			}
		}
	}
}

// mend returns the errand that repairs what foreign writes, evictions and lost writes have corrupted. It
// examines a gateway when its totals don't add up, until they do.
func (u *unit) mend(books *ledger.Books) func(context.Context) time.Duration {
	m := audit.New(u.redis, u.name, books).Mender()
	return func(ctx context.Context) time.Duration {
		did, next, err := m.Look(ctx)
		if err != nil {
			u.complain(ctx, "totals not looked at, trying again", err)
		}
		if did != (audit.Mended{}) {
			u.log.Error("jobs were lost or out of place and are put right: find out who else writes to this Redis, or whether it evicts or lost writes",
				"queued_again", did.Requeued, "placed", did.Placed, "entries_removed", did.Removed)
		}
		if next >= audit.CalmLook {
			return -1
		}
		return next
	}
}
