package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"spillway/internal/ledger"
)

// mendFirst bounds when a gateway's totals are looked at for the first time: not all gateways' at once.
const mendFirst = 5 * time.Second

// mender puts right what writes behind our back, evictions and lost writes have put out of place, until ctx ends.
func (u *unit) mender(ctx context.Context) {
	m := ledger.NewMender(u.now().books)
	for next := rand.N(mendFirst); await(ctx, next, nil); {
		var did ledger.Mended
		var err error
		if did, next, err = m.Look(ctx); err != nil {
			u.complain(ctx, "totals not looked at, trying again", err)
		}
		if did != (ledger.Mended{}) {
			u.log.Error("jobs were lost or out of place and are put right: find out who else writes to this Redis, or whether it evicts or lost writes",
				"queued_again", did.Requeued, "placed", did.Placed, "entries_removed", did.Removed)
		}
	}
}
