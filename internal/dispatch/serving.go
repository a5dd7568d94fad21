package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// servingEvery is the interval of a dispatcher's heartbeat.
const servingEvery = 5 * time.Second

// mostChosen is the most gateways named of those that a process was told to serve.
const mostChosen = 10

// callsMade counts the calls of this process, with the time of the last one.
type callsMade struct{ n, last atomic.Int64 }

// add counts a call's result.
func (c *callsMade) add(res job.Result) {
	if !res.Wrote.IsZero() {
		c.n.Add(1)
		c.last.Store(res.Wrote.UnixMicro())
	}
}

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
