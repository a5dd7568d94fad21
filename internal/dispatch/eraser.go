package dispatch

import (
	"context"
	"time"

	"spillway/internal/clock"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

const (
	eraseEvery = 10 * time.Minute // longest time between two scans for jobs to erase, over all processes
	eraseLeast = time.Second      // shortest time
	erasePart  = 4                // if that is sooner, the next scan comes after this part of the erase time
	eraseRest  = 20 * time.Millisecond
	eraseShare = 9 // share of the time, in tenths, that is left to calls
)

// erase removes personal data from the records of jobs that have been over for erase.payload, until ctx ends.
// It leaves Redis alone most of the time, and costs nothing if no gateway has such a setting.
func (d *Dispatcher) erase(ctx context.Context) {
	for await(ctx, d.eraseAgain()) {
		if err := d.eraseEnded(ctx); err != nil && ctx.Err() == nil {
			d.p.Log.Warn("jobs that are over not erased, trying again", "error", err)
		}
	}
}

// eraseAgain returns how long until the next scan.
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

// eraseEnded makes one scan. For each gateway, only one process does it at a time.
func (d *Dispatcher) eraseEnded(ctx context.Context) error {
	var mine []ledger.Ended
	for _, u := range d.units() {
		after := u.now().cfg.EraseAfter
		if after == 0 || u.ailing.Load() {
			continue
		}
		first, err := u.redis.SetNX(ctx, redisdb.NewKeys(u.name).Erase(), "1", eraseNext(after)*9/10).Result() // the clocks of processes differ
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
