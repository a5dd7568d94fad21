package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/redisdb"
)

// Pulse is what a process needs to know of an idle gateway.
type Pulse struct {
	Pending  int64         // jobs in all lines of the queue
	Rejected int64         // jobs parked as rejected
	DueIn    time.Duration // until the next scheduled or retrying job is due; negative if none
	AskIn    time.Duration // until the next look-up is due; negative if no job is pending
	Sweep    bool          // a sweep would find something
	Limits   int64         // version of the limits set at run time; zero if they never were
	Alive    int64         // the data's last sign of life in µs; zero if not checked, negative if the data is not what was seen
	Shelve   bool          // jobs of a batch have to be parked or admitted
	Err      error         // why this gateway's pulse is unknown; nil if it is known
}

// Pulses reads the pulse of many gateways on one Redis in one round trip, so that idle gateways cost next to
// nothing. The same scripts report if this process is too slow. Results are in the order of all. The error is
// the first one, if every read failed; otherwise errors are in the pulses.
func Pulses(ctx context.Context, c redis.UniversalClient, all []*Books, slow Slow) ([]Pulse, error) {
	cmds := make([]*redis.Cmd, len(all))
	_ = pulseScript.Pipelined(ctx, c, func(run redisdb.Runner) { // each command has its own error
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

// pulseKeys returns the KEYS of pulse.lua. They are computed once, because thousands of gateways are read each
// second.
func (b *Books) pulseKeys() []string {
	k := b.keys
	return slices.Concat([]string{k.Pending(), k.Parked("rejected"), k.Scheduled(), k.Retrying(), k.Open(), k.Active(), k.Lease(), k.LiveLimits()},
		k.AsynqSets(), []string{k.Alive(), k.Retries(), k.Replays(), k.Due(), k.Shelving(), k.Slow(), k.Asking(), k.Classes()})
}

// pulse decodes the reply of pulse.lua.
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

// until converts a script's time in µs; negative means none.
func until(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(us) * time.Microsecond
}
