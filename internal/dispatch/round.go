package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/incarnation"
	"spillway/internal/redisdb"
)

// round is how long this process takes to look at all its gateways once. Safe for concurrent use.
type round struct{ began, took atomic.Int64 } // µs

func (r *round) begin(now time.Time) { r.began.Store(now.UnixMicro()) }

// end takes in that all gateways have been looked at; the next round begins.
func (r *round) end(now time.Time) {
	r.took.Store(now.UnixMicro() - r.began.Load())
	r.begin(now)
}

// micros returns how long the last round took, or this one already if that is longer, in µs; 0 before the first one.
func (r *round) micros(now time.Time) int64 {
	began := r.began.Load()
	if began == 0 {
		return 0
	}
	return max(r.took.Load(), now.UnixMicro()-began)
}

// mostPatience bounds what a slow process is waited for: if it gets nowhere, somebody has to look.
const mostPatience = 5 * time.Minute

// longestSilence is how long a gateway may be without a sign of life until nobody is there to serve it, at now on Redis's clock: quiet, or longer while a dispatcher is
// alive that needs longer to come round to each of its gateways.
func longestSilence(ctx context.Context, c redis.UniversalClient, now time.Time) (time.Duration, error) {
	longest, err := redisdb.LongestRound(ctx, c, now)
	return min(max(quiet, 2*longest), mostPatience), err
}

// unserved says that no dispatcher serves a gateway, or that none ever did, by its last sign of life.
func unserved(ctx context.Context, c redis.UniversalClient, s incarnation.Sign) (bool, error) {
	silent := s.Now.Sub(s.Last)
	if s.Last.IsZero() || silent <= quiet {
		return s.Last.IsZero(), nil
	}
	most, err := longestSilence(ctx, c, s.Now)
	return silent > most, err
}

// patient returns the move, which begins at the present time of Redis, with the time that a slow dispatcher of the gateway is given to show itself.
func (m *Moving) patient(ctx context.Context) (incarnation.Move, error) {
	move := m.move()
	var err error
	if m.Act.At, err = m.Redis.Time(ctx).Result(); err != nil {
		return move, err
	}
	move.Silence, err = longestSilence(ctx, m.Redis, m.Act.At)
	return move, err
}
