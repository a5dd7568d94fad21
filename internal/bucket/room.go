package bucket

import (
	"context"
	_ "embed" // the scripts are files
	"fmt"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed room.lua
var roomLua string

var roomScript = redisdb.NewScript(redisdb.NowLua, slewedLua, roomLua)

// Room is when a call finds room in all limits as things stand, for people to read.
type Room struct {
	// In is how long until then; zero when there is room, or when it is not known as the limits have just
	// changed.
	In time.Duration
	// At is that moment on Redis's clock; zero when In is.
	At time.Time
	// Gap is how long before that moment the last slot was; zero when In is, or when there was none.
	Gap time.Duration
	// Limit is what the call waits for longest. The zero Limit, when In is not zero, means that no slot is given out before, as after Redis
	// lost its memory.
	Limit job.Limit
	// Full means that as many calls are in flight as are allowed (MaxInFlight).
	Full bool
}

// Room returns when a call of this cost finds room. It reserves nothing.
func (p *Pacer) Room(ctx context.Context, cost int64) (Room, error) {
	pl := p.plan.Load()
	args := []any{p.now(), max(cost, 1), pl.shape}
	for _, w := range pl.windows {
		args = append(args, w.n, w.ready)
	}
	keys := append([]string{p.keys.Pace(), p.keys.Flight()}, p.lists(len(pl.windows))...)
	v, err := roomScript.Run(ctx, p.client, keys, args...).Int64Slice()
	if err != nil {
		return Room{}, fmt.Errorf("what room %s has could not be read: %w", p.gateway, err)
	}
	if len(v) != 5 || v[2] > int64(len(pl.windows)) {
		return Room{}, fmt.Errorf("room.lua answered %v: is another version of the program using this Redis?", v)
	}
	r := Room{Full: pl.cfg.MaxInFlight > 0 && v[3] >= pl.cfg.MaxInFlight}
	if v[1] <= v[0] {
		return r, nil
	}
	r.In, r.At = time.Duration(v[1]-v[0])*time.Microsecond, time.UnixMicro(v[1]).UTC()
	if v[4] > 0 {
		r.Gap = time.Duration(v[1]-v[4]) * time.Microsecond
	}
	if v[2] > 0 {
		w := pl.windows[v[2]-1]
		r.Limit = job.Limit{N: w.n, Window: time.Duration(w.length) * time.Microsecond}
	}
	return r, nil
}
