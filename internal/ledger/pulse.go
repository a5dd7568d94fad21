package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Pulse is what an idle gateway must be told.
type Pulse struct {
	Pending  int64         // jobs in the queue, in all its lines
	Rejected int64         // jobs parked as rejected
	DueIn    time.Duration // until the next scheduled or retrying job is due; negative if none waits for its time
	AskIn    time.Duration // until the next look-up is due; negative if no job is pending
	Sweep    bool          // a sweep will find something to look at
	Limits   int64         // version of the limits that were set live; zero if they never were
	Alive    int64         // the data's last sign of life in µs; zero if nobody watches it, negative if it is not what was seen
	Shelve   bool          // jobs of a batch are to be put aside, or taken in
	Err      error         // why nothing of the above is known of this gateway alone; nil if it is
}

// Pulses takes the pulse of many gateways on one Redis in one round trip, so that idle gateways cost next to nothing.
// What a process is too slow for is said in the same scripts. The answers are in the order of all. The error is that of the first, if none could be looked at; what is wrong with some of them is in their pulses.
func Pulses(ctx context.Context, c redis.UniversalClient, all []*Books, slow Slow) ([]Pulse, error) {
	cmds := make([]*redis.Cmd, len(all))
	_ = pulseScript.Pipelined(ctx, c, func(run redisdb.Runner) { // each has its own error
		for i, b := range all {
			age := b.cfg.Age()
			cmds[i] = run(b.felt(), b.cfg.NowMicros.Now(), lowLease.Microseconds(), age.Version, age.Least,
				slow.Process, slow.For.Microseconds(), slow.Slots, b.keys.First(""))
		}
	})
	pulses, well := make([]Pulse, len(all)), false
	for i, cmd := range cmds {
		pulses[i] = all[i].pulse(cmd)
		well = well || pulses[i].Err == nil
	}
	if !well && len(all) > 0 {
		return nil, pulses[0].Err
	}
	return pulses, nil
}

// pulseKeys are the KEYS of pulse.lua, made once: thousands of gateways are looked at each second.
func (b *Books) pulseKeys() []string {
	k := b.keys
	return slices.Concat([]string{k.Pending(), k.Parked("rejected"), k.Scheduled(), k.Retrying(), k.Open(), k.Active(), k.Lease(), k.LiveLimits()},
		k.AsynqSets(), []string{k.Alive(), k.Retries(), k.Replays(), k.Due(), k.Shelving(), k.Slow(), k.Asking(), k.Classes()})
}

// pulse reads pulse.lua's answer.
func (b *Books) pulse(cmd *redis.Cmd) Pulse {
	n, err := cmd.Int64Slice()
	if err == nil && len(n) != 9 {
		err = redisdb.BadReply("pulse.lua", n)
	}
	if err != nil {
		return Pulse{DueIn: -1, AskIn: -1, Err: err}
	}
	b.watch.feel(n[5])
	p := Pulse{Pending: n[0], Rejected: n[1], DueIn: until(n[2]), AskIn: until(n[8]), Sweep: n[3] == 1, Limits: n[4], Alive: n[6], Shelve: n[7] == 1}
	return p
}

// until is a time in µs that a script has said; negative: none.
func until(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}
