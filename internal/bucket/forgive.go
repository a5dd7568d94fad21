package bucket

import (
	"context"
	_ "embed" // the script is a file
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

//go:embed forgive.lua
var forgiveLua string

var forgiveScript = redisdb.NewActScript(redisdb.NowLua, poolLua, lossLua, forgiveLua)

// Charge is what losses have charged one limit with: calls that may have been made and that Redis does not
// know.
type Charge struct {
	Limit job.Limit
	// Units is at most what the limit allows.
	Units int64
	// Until is when the last of them stops counting.
	Until time.Time
}

// Charged returns what still counts of the charges for losses, for each limit that has any.
func (p *Pacer) Charged(ctx context.Context) ([]Charge, error) {
	pl := p.plan.Load()
	v, err := p.client.HMGet(ctx, p.keys.Pace(), "g", "charges").Result()
	if err != nil {
		return nil, fmt.Errorf("what losses have charged %s with could not be read: %w", p.gateway, err)
	}
	text, _ := v[1].(string)
	if shape, _ := v[0].(string); shape != pl.shape || text == "" {
		return nil, nil
	}
	var n []int64
	for _, word := range strings.Fields(text) {
		x, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("what losses have charged %s with makes no sense (%q): is another version of the program using this Redis?", p.gateway, text)
		}
		n = append(n, x)
	}
	now := p.clock.Now()
	units, until := make([]int64, len(pl.windows)), make([]time.Time, len(pl.windows))
	for ; len(n) >= 3; n = n[3:] {
		k := n[0] - 1
		if k < 0 || k >= int64(len(pl.windows)) {
			continue
		}
		if end := time.UnixMicro(n[1] + pl.windows[k].ready).UTC(); end.After(now) {
			units[k] += n[2]
			if end.After(until[k]) {
				until[k] = end
			}
		}
	}
	return charges(pl, units, until), nil
}

// Forgive lifts the charges for losses: the gateway's owner says that the calls were not made, or may be made
// again. It returns what was lifted. Calls that Redis knows are not charges and stay.
func (p *Pacer) Forgive(ctx context.Context) ([]Charge, error) {
	pl := p.plan.Load()
	args := []any{pl.shape, HoldChannel, p.gateway}
	for _, w := range pl.windows {
		args = append(args, w.width)
	}
	units, err := forgiveScript.Act(ctx, p.client, append([]string{p.keys.Pace()}, p.allLists(len(pl.windows))...), args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("what losses have charged %s with could not be lifted: %w", p.gateway, err)
	}
	if len(units) == 0 {
		return nil, &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the pacer of %s keeps other limits than those that the file and Redis name", p.gateway),
			Hint: "dispatchers take limits over within a second: run it again, with the file that they have"}
	}
	return charges(pl, units, make([]time.Time, len(units))), nil
}

// charges returns the units counted for each window with its limit, at most what that limit allows.
func charges(pl *plan, units []int64, until []time.Time) (all []Charge) {
	for k, w := range pl.windows[:len(units)] {
		if units[k] > 0 {
			all = append(all, Charge{job.Limit{N: w.n, Window: time.Duration(w.length) * time.Microsecond}, min(units[k], w.n), until[k]})
		}
	}
	return all
}
