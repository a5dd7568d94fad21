package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/incarnation"
	"spillway/internal/redisdb"
)

// round measures how long this process takes to read all its gateways once. It is safe for concurrent use.
type round struct{ began, took atomic.Int64 } // µs

func (r *round) begin(now time.Time) { r.began.Store(now.UnixMicro()) }

// end records that all gateways have been read; the next round begins.
func (r *round) end(now time.Time) {
	r.took.Store(now.UnixMicro() - r.began.Load())
	r.begin(now)
}

// micros returns the duration of the last round, or of the current one if that is longer already, in µs; 0
// before the first.
func (r *round) micros(now time.Time) int64 {
	began := r.began.Load()
	if began == 0 {
		return 0
	}
	return max(r.took.Load(), now.UnixMicro()-began)
}

// mostPatience bounds the wait for a slow process. If it makes no progress, an operator has to act.
const mostPatience = 5 * time.Minute

// longestSilence returns how long a gateway may be without a sign of life before it counts as not served, at
// now on Redis's clock: quiet, or longer while a running dispatcher needs longer to read all its gateways.
func longestSilence(ctx context.Context, c redis.UniversalClient, now time.Time) (time.Duration, error) {
	longest, err := redisdb.LongestRound(ctx, c, now)
	return min(max(quiet, 2*longest), mostPatience), err
}

// unserved reports, by its last sign of life, whether no dispatcher serves a gateway.
func unserved(ctx context.Context, c redis.UniversalClient, s incarnation.Sign) (bool, error) {
	silent := s.Now.Sub(s.Last)
	if s.Last.IsZero() || silent <= quiet {
		return s.Last.IsZero(), nil
	}
	most, err := longestSilence(ctx, c, s.Now)
	return silent > most, err
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

// patient returns the move, starting at Redis's present time, with enough time for a slow dispatcher of the
// gateway to show itself.
func (m *Moving) patient(ctx context.Context) (incarnation.Move, error) {
	move := m.move()
	var err error
	if m.Act.At, err = m.Redis.Time(ctx).Result(); err != nil {
		return move, err
	}
	move.Silence, err = longestSilence(ctx, m.Redis, m.Act.At)
	return move, err
}

// servingEvery is the interval of a dispatcher's heartbeat.
const servingEvery = 5 * time.Second

// mostChosen is the most gateways named of those that a process was told to serve.
const mostChosen = 10

// sayServing sends this process's heartbeat to Redis until ctx ends. Nothing depends on it, so a failure is
// logged once.
func (d *Dispatcher) sayServing(ctx context.Context) {
	started, failed := time.Now().UTC(), false
	for {
		err := redisdb.Serve(ctx, d.p.DB.Client, processName(), d.servingNow(started))
		if err != nil && !failed && ctx.Err() == nil {
			d.p.Log.Warn("Redis was not told that this process serves: who looks for it does not see it", "error", err)
		}
		failed = err != nil
		if !await(ctx, servingEvery) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = redisdb.ServeNoMore(ctx, d.p.DB.Client, processName()) // if it fails, the process shows as silent for a while
}

// servingNow returns this process's heartbeat.
func (d *Dispatcher) servingNow(started time.Time) redisdb.Serving {
	units := d.units()
	s := redisdb.Serving{Version: d.p.Version, Started: started, Gateways: len(units), Calls: d.tools.made.n.Load(), Round: d.round.micros(time.Now())}
	if at := d.tools.made.last.Load(); at > 0 {
		s.LastCall = time.UnixMicro(at).UTC()
	}
	if d.p.Listen != nil {
		s.Listen = d.p.Listen()
	}
	if d.p.Chosen {
		for _, u := range units[:min(mostChosen, len(units))] {
			s.Chosen = append(s.Chosen, u.name)
		}
	}
	return s
}
