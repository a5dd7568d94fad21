package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/incarnation"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// registering are books that register their gateway before its first job is admitted, with one command for each
// process and gateway.
type registering struct {
	admission.Books
	redis   redis.UniversalClient
	gateway string
	done    atomic.Bool
}

// Offer implements admission.Books.
func (r *registering) Offer(jobs []job.Newcomer) (job.Offer, error) {
	offer, err := r.Books.Offer(jobs)
	if err != nil || r.done.Load() {
		return offer, err
	}
	return func(ctx context.Context, ticket job.Ticket, mode string) ([]job.Admittance, job.Room, error) {
		if !r.done.Load() {
			if err := redisdb.Register(ctx, r.redis, r.gateway); err != nil {
				return nil, job.Room{}, err
			}
			r.done.Store(true)
		}
		return offer(ctx, ticket, mode)
	}, nil
}

// LastServed returns when a dispatcher of the gateway last gave a sign of life, zero if never, and whether one
// is probably running.
func LastServed(ctx context.Context, c redis.UniversalClient, gateway string) (last time.Time, serves bool, err error) {
	sign, err := incarnation.Look(ctx, c, gateway)
	if err != nil {
		return sign.Last, false, err
	}
	alone, err := unserved(ctx, c, sign)
	return sign.Last, err == nil && !alone, err
}
