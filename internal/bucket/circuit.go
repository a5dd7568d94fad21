package bucket

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Failed counts a call that met trouble. When the trouble is the gateway's, no process calls it from then on
// until the hold is over and one call that is sent ahead succeeds; slots held locally are given back.
func (p *Pacer) Failed(ctx context.Context, c job.Circuit, f job.Failure) (job.Fallout, error) {
	if f.Kind == "" {
		f.Kind = job.Fail
	}
	if c.Failures == 0 && f.Kind == job.Fail {
		return job.Fallout{}, nil
	}
	pl := p.plan.Load()
	args := []any{p.now(), string(f.Kind), atLeastOne(f.For), f.Job, f.Slot,
		f.Took.Microseconds(), redisdb.Flag(f.Written), f.Outages, f.Spent, f.Why, c.Failures, c.Ratio, c.Calls, c.Window.Microseconds(), c.Max.Microseconds(),
		HoldChannel, p.gateway, max(f.Since.UnixMicro(), 0)}
	in, alone := pl.scopeOf(f)
	var v []string
	var err error
	if alone {
		args[15] = redisdb.Wake // jobs that are bound already stay so: no other jobs are given back
		v, err = p.failedIn(ctx, pl, in, args)
	} else {
		keys := slices.Concat([]string{p.keys.Hold(), p.keys.Rate(), p.keys.Pending(), p.keys.Due()}, pl.cfg.First, pl.waiting)
		v, err = circuitScript.Run(ctx, p.client, keys, args...).StringSlice()
	}
	if err != nil {
		return job.Fallout{}, fmt.Errorf("trouble with %s could not be counted: %w", p.gateway, err)
	}
	out, state, err := fallout(v)
	if err != nil {
		return job.Fallout{}, err
	}
	out.Own = state == "own" || f.Outages >= forgiven && f.Written && out.Outage.IsZero()
	if alone {
		return out, nil
	}
	if out.Opened && f.Kind == job.Fail {
		p.meters.opened.Inc()
		p.meters.circuit.set(true)
	}
	if out.Held > 0 && (out.Opened || state == "again" || f.Kind == job.Wait) {
		p.heldUntil(out.At.Add(out.Held).UnixMicro())
	}
	return out, nil
}

// forgiven is how many outages a job may meet before the trouble counts as its own, as in outage.lua.
const forgiven = 2

// atLeastOne returns d in µs: at least 1 if d is positive, else 0.
func atLeastOne(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(d.Microseconds(), 1)
}

// fallout reads circuit.lua's answer.
func fallout(v []string) (out job.Fallout, state string, err error) {
	if len(v) != 4 {
		return job.Fallout{}, "", fmt.Errorf("circuit.lua answered with %d values: is another version of the program using this Redis?", len(v))
	}
	var at, outage, held int64
	if _, err := fmt.Sscan(v[1]+" "+v[2]+" "+v[3], &at, &outage, &held); err != nil {
		return job.Fallout{}, "", fmt.Errorf("circuit.lua answered %v: is another version of the program using this Redis?", v)
	}
	out = job.Fallout{At: time.UnixMicro(at), Held: time.Duration(held) * time.Microsecond, Opened: v[0] == "opened"}
	if outage > 0 {
		out.Outage = time.UnixMicro(outage)
	}
	return out, v[0], nil
}

// heldUntil takes in the news of a hold: slots held locally that fall inside it are given back.
func (p *Pacer) heldUntil(micros int64) {
	p.meters.holds.Inc()
	p.mu.Lock()
	p.known.held, p.known.probing = max(p.known.held, micros), true
	p.mu.Unlock()
	p.Drop()
}

// Watch keeps the circuit's metric right, as other processes open and close the circuit too. It asks Redis only
// while this process knows of a hold, or believes the circuit open.
func (p *Pacer) Watch(ctx context.Context) error {
	p.mu.Lock()
	held := p.known.probing
	p.mu.Unlock()
	if !held && !p.meters.circuit.open.Load() {
		return nil
	}
	s, err := p.Look(ctx)
	if err == nil {
		p.meters.circuit.set(s.Circuit)
	}
	return err
}

// openGauge is 1 while the circuit is open.
type openGauge struct {
	shown prometheus.Gauge
	open  atomic.Bool
}

func (g *openGauge) set(open bool) {
	g.open.Store(open)
	g.shown.Set(map[bool]float64{true: 1}[open])
}
