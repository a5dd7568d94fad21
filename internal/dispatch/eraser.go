package dispatch

import (
	"context"
	"time"

	"spillway/internal/clock"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

const (
	eraseEvery = 10 * time.Minute // how long it is at most from one look for jobs to erase to the next, of all processes together
	eraseLeast = time.Second      // and at least
	erasePart  = 4                // a job is erased no later than such a part of its time after that, where this is shorter
	eraseRest  = 20 * time.Millisecond
	eraseShare = 9 // of ten parts of the time nine are left to what calls need
)

// erase erases, until ctx ends, what is left of people in the records of jobs that have been over for erase.payload. It leaves Redis alone for most of the time, and costs nothing where no gateway has
// such a time.
func (d *Dispatcher) erase(ctx context.Context) {
	for await(ctx, d.eraseAgain()) {
		if err := d.eraseEnded(ctx); err != nil && ctx.Err() == nil {
			d.p.Log.Warn("jobs that are over not erased, trying again", "error", err)
		}
	}
}

// eraseAgain returns how long it is until the next look.
func (d *Dispatcher) eraseAgain() time.Duration {
	next := eraseEvery
	for _, u := range d.units() {
		if after := u.now().cfg.EraseAfter; after > 0 {
			next = min(next, eraseNext(after))
		}
	}
	return next
}

func eraseNext(after time.Duration) time.Duration {
	return min(max(after/erasePart, eraseLeast), eraseEvery)
}

// eraseEnded looks once. Of several processes one does it at a time, gateway by gateway.
func (d *Dispatcher) eraseEnded(ctx context.Context) error {
	var mine []ledger.Ended
	for _, u := range d.units() {
		after := u.now().cfg.EraseAfter
		if after == 0 || u.ailing.Load() {
			continue
		}
		first, err := u.redis.SetNX(ctx, redisdb.NewKeys(u.name).Erase(), "1", eraseNext(after)*9/10).Result() // the clocks of processes don't tick as one
		if err != nil {
			return err
		}
		if first {
			mine = append(mine, ledger.Ended{Books: u.now().books, After: after})
		}
	}
	if len(mine) == 0 {
		return nil
	}
	erased, err := ledger.EraseEnded(ctx, mine, func(ctx context.Context, took time.Duration) error {
		return clock.Wait(ctx, max(eraseRest, took*eraseShare))
	})
	for gateway, n := range erased {
		d.p.Log.Info("what was left of people is erased from jobs that have been over for erase.payload", "gateway", gateway, "jobs", n)
	}
	return err
}
