package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Look returns the gateway's standing.
func (b *Books) Look(ctx context.Context) (record.Standing, error) {
	return standing(lookScript.Run(ctx, b.c, b.lookKeys(), b.cfg.NowMicros.Now(), b.keys.JobPrefix(), b.keys.First("")))
}

// Look returns a gateway's standing, for callers without its Books.
func Look(ctx context.Context, c redis.UniversalClient, gateway string) (record.Standing, error) {
	b := Books{c: c, keys: redisdb.NewKeys(gateway)}
	return b.Look(ctx)
}

func (b *Books) lookKeys() []string {
	k := b.keys
	return append([]string{k.Pending(), k.Active(), k.Scheduled(), k.Retrying(), k.Counters(), k.Rate(), k.Open(), k.Retries(), k.Replays(), k.Due(), k.Asking(), k.Classes()}, b.keys.AllParked()...)
}

// Odd examines many gateways on one Redis in one round trip. It reports for each, in the order of all, whether
// its totals don't add up or could not be read. The error is the first one, if none could be read.
func Odd(ctx context.Context, c redis.UniversalClient, all []*Books) ([]bool, error) {
	odd, failed := make([]bool, len(all)), 0
	var first error
	for i, seen := range LookAll(ctx, c, all) {
		odd[i] = seen.Err != nil || seen.Missing() != 0
		if seen.Err != nil {
			failed++
			first = cmp.Or(first, seen.Err)
		}
	}
	if failed < len(all) {
		first = nil
	}
	return odd, first
}

// Seen is a gateway's standing, or the error of reading it.
type Seen struct {
	record.Standing
	Err error
}

// LookAll is Look for many gateways on one Redis, in one round trip.
func LookAll(ctx context.Context, c redis.UniversalClient, all []*Books) []Seen {
	cmds, seen := make([]*redis.Cmd, len(all)), make([]Seen, len(all))
	_ = lookScript.Pipelined(ctx, c, func(run redisdb.Runner) { // each command has its own error
		for i, b := range all {
			cmds[i] = run(b.lookKeys(), b.cfg.NowMicros.Now(), b.keys.JobPrefix(), b.keys.First(""))
		}
	})
	for i, cmd := range cmds {
		seen[i].Standing, seen[i].Err = standing(cmd)
	}
	return seen
}

// firstReason is the index of the first parked reason in the reply of look.lua.
const firstReason = 15

// standing decodes the reply of look.lua.
func standing(cmd *redis.Cmd) (record.Standing, error) {
	n, err := cmd.Int64Slice()
	if err != nil {
		return record.Standing{}, err
	}
	if len(n) != firstReason+2*len(job.Reasons()) {
		return record.Standing{}, redisdb.BadReply("look.lua", n)
	}
	s := record.Standing{Now: record.Moment(n[0]), Queued: n[1], InFlight: n[2], Scheduled: n[3], Retrying: n[4],
		Done: n[5], Accepted: n[6], Discarded: n[7], ParkedBytes: max(n[10], 0), Pending: n[11], Parked: map[job.Reason]int64{}, Oldest: map[job.Reason]time.Time{}}
	if span := time.Duration(n[9]) * time.Microsecond; n[8] > 0 && span > 0 {
		s.Rate, s.Anew = float64(n[8])/span.Seconds(), 2*n[14] > n[8]
	}
	if n[13] > 0 {
		s.Steady = float64(n[12]) / (float64(n[13]) * CallSpan.Seconds())
	}
	for i, r := range job.Reasons() {
		if n[firstReason+i] > 0 {
			s.Parked[r], s.Oldest[r] = n[firstReason+i], record.Moment(n[firstReason+len(job.Reasons())+i])
		}
	}
	return s, nil
}

// HeadSince returns since when the job at the head of the queue's first nonempty line has been in the line, on
// Redis's clock. It is zero if the queue is empty.
func (b *Books) HeadSince(ctx context.Context) (time.Time, error) {
	lines, err := b.lines(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for _, line := range lines {
		task, err := b.c.LIndex(ctx, line, -1).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return time.Time{}, err
		}
		nanos, err := b.c.HGet(ctx, b.keys.Task(task), "pending_since").Int64()
		if err != nil {
			return time.Time{}, absent(err) // pulled in between
		}
		return time.Unix(0, nanos), nil
	}
	return time.Time{}, nil
}

func absent(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Find returns the record of a job. ok is false if there is none, or none any longer.
func (b *Books) Find(ctx context.Context, id string) (r job.Record, ok bool, err error) {
	all, err := b.c.HGetAll(ctx, b.keys.Job(id)).Result()
	if err != nil || len(all) == 0 {
		return job.Record{}, false, err
	}
	h := record.Named(all)
	r = record.Parse(b.cfg.Gateway, id, h)
	if r.Unopened == nil {
		r.Job.Payload, r.Sealed, r.Unopened = b.cfg.Box.Reveal(id, r.Job.Payload, h["digest"], r.Reason == job.Unreadable)
	}
	if r.State != job.Queued {
		return r, true, nil
	}
	// Pulled by a worker that has not opened its attempt yet: only asynq's task says so.
	state, err := b.c.HGet(ctx, b.keys.Task(job.TaskID(id, r.Generation)), "state").Result()
	if err == nil && state == "active" {
		r.State = job.InFlight
	}
	return r, true, nil
}

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

// slowRecent is how long a process's report counts. Reports come every other second.
const slowRecent = 10 * time.Second

// Slow reports that a process is too slow for its gateways' limits. The zero Slow reports nothing.
type Slow struct {
	Process string // HOST.PID
	For     time.Duration
	Slots   int64 // its limit of jobs in flight
}

// SlowSince is a process that is too slow for its gateways' limits.
type SlowSince struct {
	Process string // HOST.PID
	Since   time.Time
	Slots   int64 // its limit of jobs in flight
}

// SlowOnes returns the processes serving a gateway that are too slow at a time on Redis's clock, sorted by
// name.
func SlowOnes(ctx context.Context, c redis.UniversalClient, gateway string, now time.Time) ([]SlowSince, error) {
	said, err := c.HGetAll(ctx, redisdb.NewKeys(gateway).Slow()).Result()
	if err != nil {
		return nil, err
	}
	var all []SlowSince
	for process, text := range said {
		var since, seen, slots int64
		if _, err := fmt.Sscan(text, &since, &seen, &slots); err == nil && now.Sub(record.Moment(seen)) < slowRecent {
			all = append(all, SlowSince{process, record.Moment(since), slots})
		}
	}
	slices.SortFunc(all, func(a, b SlowSince) int { return cmp.Compare(a.Process, b.Process) })
	return all, nil
}

// flyingMost is how many jobs in flight are examined, which takes Redis a few milliseconds.
const flyingMost = 5000

// InFlight is the number of jobs in flight by lane. All is false if there were more than are examined.
type InFlight struct {
	Jobs map[string]int64
	All  bool
}

// InFlightByLane returns the number of jobs in flight by lane, for the first 5,000.
func (b *Books) InFlightByLane(ctx context.Context) (f InFlight, err error) {
	v, err := flyingScript.Run(ctx, b.c, []string{b.keys.Open(), b.keys.Active()}, b.keys.JobPrefix(), flyingMost).Slice()
	if err != nil {
		return f, err
	}
	if len(v)%2 != 1 {
		return f, redisdb.BadReply("flying.lua", v)
	}
	f.All, f.Jobs = v[0] == int64(1), make(map[string]int64, len(v)/2)
	for i := 1; i < len(v); i += 2 {
		f.Jobs[fmt.Sprint(v[i])], _ = v[i+1].(int64)
	}
	return f, nil
}

// Unsorted returns how many jobs are in the queue's own lines, by class; the default class has the empty name.
// Jobs that were called before share lines and are not counted. With lanes, jobs stay in these lines until the
// next call.
func (b *Books) Unsorted(ctx context.Context, classes []string) (map[string]int64, error) {
	lines := [][2]string{{"", b.keys.Due()}, {"", b.keys.Pending()}}
	for _, class := range classes {
		lines = append(lines, [2]string{class, b.keys.First(class)})
	}
	all, long := make(map[string]int64, len(classes)+1), make([]*redis.IntCmd, len(lines))
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, line := range lines {
			long[i] = p.LLen(ctx, line[1])
		}
		return nil
	})
	for i, line := range lines {
		all[line[0]] += long[i].Val()
	}
	return all, err
}
