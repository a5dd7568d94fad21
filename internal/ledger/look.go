package ledger

import (
	"cmp"
	"context"
	"errors"
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
