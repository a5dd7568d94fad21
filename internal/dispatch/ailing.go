package dispatch

import (
	"context"
	"errors"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// mendEvery is how often a gateway that could not be served at the start is retried.
const mendEvery = 2 * time.Second

// ails marks a gateway as not served if err means that one of its keys is damaged, and reports whether it does.
// The other gateways are served.
func (u *unit) ails(ctx context.Context, err error) bool {
	_, damaged := errors.AsType[*redisdb.DamagedError](err)
	if damaged {
		u.ailing.Store(true)
		u.idle = true
		u.log.ErrorContext(ctx, "gateway not served until its keys in Redis are mended", "error", err)
	}
	return damaged
}

// awaitMending serves a gateway once its keys are repaired.
func (d *Dispatcher) awaitMending(ctx context.Context, u *unit) {
	for await(ctx, mendEvery) {
		if u.meet(ctx, u.restored) != nil || d.look(ctx, []*unit{u}, ledger.Slow{}) != nil || u.blind != nil {
			continue
		}
		u.ailing.Store(false)
		d.serve(u)
		u.log.Info("gateway served: its keys in Redis are mended")
		return
	}
}

// setAside logs that a job with a damaged record was parked.
func (u *unit) setAside(id string) {
	u.log.Error("parked", "job", id, "reason", job.Unreadable, "error", "something else wrote into its record in Redis",
		"hint", "dispatcher dlq show "+id+" says where that is now: look the job up at the gateway, then dispatcher dlq resolve")
}
