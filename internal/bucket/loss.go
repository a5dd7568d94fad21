package bucket

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// Loss is a finding of a reservation: Redis may not know every slot that was given out.
type Loss struct {
	// Charged is the units charged to each long limit for what may be missing, at most what the limit allows.
	// The charge lasts for a window, or until Forgive. Zero if no limit is long, or nothing is missing.
	Charged int64
	// Why says how that is known.
	Why string
}

func newLoss(charged, why int64) Loss {
	reasons := []string{
		"Redis's clock was set forward",
		"Redis was emptied, and a process knows of slots from before",
		"Redis lost slots that a process knows of",
		"Redis was begun again, or another one took over: its last moments may be lost",
		"Redis lost a limit's list of calls",
		"a snapshot was restored, as an operator says",
		"Redis was begun again, or another one took over, and its clock is behind: when it wrote last can't be told",
	}
	if why < 0 || why >= int64(len(reasons)) {
		return Loss{charged, fmt.Sprintf("reason %d, which another version of the program knows", why)}
	}
	return Loss{charged, reasons[why]}
}

// Losses returns the losses that this process was the first to notice since the last call of Losses.
func (p *Pacer) Losses() []Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	return found
}

// Report tells Redis, in the background, which slots this process knows to have been given out. A state that
// begins from nothing asks for it on HoldChannel, and a process that knows of an older state objects in this
// way. A process that knows of none reports nothing.
func (p *Pacer) Report() {
	p.mu.Lock()
	knows := p.known.root != 0
	p.mu.Unlock()
	if !knows {
		return
	}
	p.background(func() {
		ctx, cancel := p.within(context.Background(), answerWithin)
		defer cancel()
		for range 2 { // a state of other limits is first converted to ours
			if g, err := p.reserve(ctx, wish{cost: 1}); err != nil || g.state != stateReshape || p.reshape(ctx) != nil {
				return
			}
		}
	})
}

//go:embed forgive.lua
var forgiveLua string

var forgiveScript = redisdb.NewActScript(redisdb.NowLua, poolLua, forgiveLua)

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
