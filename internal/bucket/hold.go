package bucket

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Fewer says that the gateway takes fewer calls at once than are under way: their number is halved, over all
// processes, and recovers by one each second. The rate stays. It returns the cap that holds now, or 0 if a
// single call was too many already: then nothing is lowered, and only a hold can help.
func (p *Pacer) Fewer(ctx context.Context) (int64, error) {
	keys := []string{p.keys.Hold(), p.keys.Flight(), p.keys.Active()}
	few, err := fewerScript.Run(ctx, p.client, keys, p.now(), HoldChannel, p.gateway).Int64()
	if err != nil {
		return 0, fmt.Errorf("the cap of %s could not be written down: %w", p.gateway, err)
	}
	p.Drop()
	return few, nil
}

// Pause stops the gateway, in every process, until Resume.
func (p *Pacer) Pause(ctx context.Context, why string) error { return p.setPaused(ctx, "1", why) }

// Resume ends a pause. A hold stays.
func (p *Pacer) Resume(ctx context.Context) error {
	err := p.setPaused(ctx, "0", "")
	p.Wake()
	return err
}

func (p *Pacer) setPaused(ctx context.Context, paused, why string) error {
	if err := pauseScript.Act(ctx, p.client, []string{p.keys.Hold()}, paused, why, HoldChannel, p.gateway).Err(); err != nil {
		return fmt.Errorf("pausing or resuming %s could not be written down: %w", p.gateway, err)
	}
	p.Drop()
	return nil
}

// Look returns what holds back the gateway's calls.
func (p *Pacer) Look(ctx context.Context) (Standing, error) {
	return look(ctx, p.client, p.gateway, p.now())
}

// Look returns what holds back a gateway's calls. It needs no pacer of the gateway.
func Look(ctx context.Context, c redis.Scripter, gateway string) (Standing, error) {
	return look(ctx, c, gateway, 0)
}

func look(ctx context.Context, c redis.Scripter, gateway string, now int64) (Standing, error) {
	return lookAt(ctx, c, gateway, redisdb.NewKeys(gateway).Hold(), now)
}

// lookAt reads one of a gateway's holds: its own, or that of a route or a lane.
func lookAt(ctx context.Context, c redis.Scripter, gateway, hold string, now int64) (Standing, error) {
	k := redisdb.NewKeys(gateway)
	return standingOf(gateway, lookScript.Run(ctx, c, []string{hold, k.Pace(), k.LiveLimits()}, now))
}

// standingOf reads the answer of look.lua.
func standingOf(gateway string, answer *redis.Cmd) (Standing, error) {
	v, err := answer.Slice()
	if err != nil {
		return Standing{}, fmt.Errorf("what holds %s back could not be read: %w", gateway, err)
	}
	if len(v) != 12 {
		return Standing{}, fmt.Errorf("look.lua answered with %d values: is another version of the program using this Redis?", len(v))
	}
	s := Standing{Reason: fmt.Sprint(v[1]), Probing: v[2] == int64(1), Paused: v[3] == int64(1), PauseWhy: fmt.Sprint(v[4]),
		Circuit: v[5] == int64(1), Endless: v[5] != int64(0), Denied: v[6] == int64(1), Stale: v[7] == int64(1), BrakeWhy: fmt.Sprint(v[10])}
	for _, one := range []struct {
		i  int
		at *time.Time
	}{{0, &s.HeldUntil}, {8, &s.Since}, {9, &s.BrakedUntil}, {11, &s.Braked}} {
		micros, err := strconv.ParseInt(fmt.Sprint(v[one.i]), 10, 64)
		if err != nil {
			return Standing{}, fmt.Errorf("look.lua answered %v: is another version of the program using this Redis?", v[one.i])
		}
		if micros > 0 {
			*one.at = time.UnixMicro(micros)
		}
	}
	if s.BrakedUntil.After(s.HeldUntil) && !s.Endless {
		s.HeldUntil, s.Reason, s.Probing = s.BrakedUntil, s.BrakeWhy, false
	}
	return s, nil
}

// Standing is what holds back a gateway's calls, for people to read.
type Standing struct {
	// HeldUntil is when the hold ends; zero means no hold.
	HeldUntil time.Time
	// Reason is why it is held. It stays set while Probing.
	Reason string
	// Probing means that the hold is over and one call goes first; the rest follow when it succeeds.
	Probing bool
	// Circuit means that the hold is an open circuit, or began with one. The first call that succeeds closes
	// it.
	Circuit bool
	// Endless means that the end of the hold is not known: the gateway failed, or refused access. HeldUntil is
	// when it is tried again.
	Endless bool
	// Denied means that the gateway refuses access: it answered 401 or 403. Endless is set too, and usually a
	// person has to end it.
	Denied bool
	// Paused means that an operator stopped the gateway; PauseWhy is the reason given.
	Paused   bool
	PauseWhy string
	// Since is when it was paused, or else when the trouble behind the hold began; zero if that is not known.
	Since time.Time
	// BrakedUntil is when there is room at the latest for the money of the next job; until then nothing is
	// called. Zero means that no brake holds the calls back. BrakeWhy names the brake, and Braked is when it
	// began.
	BrakedUntil, Braked time.Time
	BrakeWhy            string
	// Barred means that Paused stands for something that was not done by an operator and that Resume does not
	// end; PauseWhy names it. Look never sets it.
	Barred bool
	// NoToken means that Reason says why there is no access token for calls, and HeldUntil when it is tried
	// again. Look never sets it.
	NoToken bool
	// Stale means that for 2 s no process with the version of the limits that Redis knows has been given a
	// slot: the pacer has seen a newer version, which Redis has lost.
	Stale bool
}

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
	var in scope
	alone := false
	if pl.laned && f.Flow.Kept {
		in, alone = pl.scopeOf(f)
	}
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
