package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// AskLimit bounds the look-ups of a gateway over all processes: at most N begin in any window of that length.
type AskLimit struct {
	job.Limit
	// WhileQueued applies the limit only while jobs wait in the queue.
	WhileQueued bool
}

// askBurst: up to N/askBurst look-ups may begin at once.
const askBurst = 10

// args returns the limit in the form that look_claim.lua reads: its field, the time between two look-ups in µs,
// and how many may begin at once. These and what the rest of the window allows are at most N.
func (l AskLimit) args(place int) []any {
	n := max(l.N, 1)
	burst, rest := max(n/askBurst, 1), int64(1)
	if n > 1 {
		rest = n - burst
	}
	field := "l" + strconv.Itoa(place)
	if l.WhileQueued {
		field = "s" + strconv.Itoa(place) + "-"
	}
	return []any{field, float64(l.Window.Microseconds()) / float64(rest), burst}
}

// Claim says which look-up to claim.
type Claim struct {
	Owner string // unique to the look-up
	// Page is the job whose look-up continues, because its answer has further pages. Empty: the first look-up
	// that is due.
	Page string
	// For is how long the claim lasts. No other process makes this look-up until then.
	For    time.Duration
	Limits []AskLimit
}

// MayAsk returns how many look-ups may begin now, and how long until more may; negative if no job is pending.
func (b *Books) MayAsk(ctx context.Context, limits []AskLimit) (n int, next time.Duration, err error) {
	reply, err := b.claim(ctx, Claim{Limits: limits})
	if err != nil {
		return 0, -1, err
	}
	return int(reply.n), until(reply.next), nil
}

// ClaimLook claims a due look-up, and records it before it is made. ok is false if none is due or allowed now:
// next is then how long until one may begin. next is negative if no job is pending, or if a look-up can't
// continue because its claim has expired. If ok is true and there is an error, the look-up is claimed and its
// payload can't be opened. Pass the answer to EndLook. Without that, the look-up is made again after the claim
// has expired.
func (b *Books) ClaimLook(ctx context.Context, c Claim) (l job.Look, next time.Duration, ok bool, err error) {
	reply, err := b.claim(ctx, c)
	if err == nil && reply.n < 0 {
		id, _ := at[string](reply.rest, 0)
		_, err := b.setAside(ctx, record.Damage{ID: id, From: []string{b.keys.Asking()}})
		return job.Look{}, 0, false, err
	}
	if err != nil || reply.n == 0 {
		return job.Look{}, until(reply.next), false, err
	}
	l, digest, err := b.looked(reply.rest)
	if err != nil {
		return job.Look{}, -1, false, err
	}
	l.Owner = c.Owner
	l.Job.Payload, err = b.cfg.Box.OpenJob(l.Job.ID, l.Job.Payload, digest)
	return l, 0, true, err
}

// claimReply is the reply of look_claim.lua.
type claimReply struct {
	n, next int64
	rest    []any
}

func (b *Books) claim(ctx context.Context, c Claim) (r claimReply, err error) {
	k, age := b.keys, b.cfg.Age()
	keys := append([]string{k.Asking(), k.Looks(), k.Hold(), k.Alive(), k.Retrying()}, slices.Concat(k.Lines(), b.cfg.First, b.cfg.Lanes)...)
	args := []any{b.cfg.NowMicros.Now(), k.JobPrefix(), c.Owner, c.Page, c.For.Microseconds(), age.Version, age.Least, len(c.Limits)}
	for i, l := range c.Limits {
		args = append(args, l.args(i)...)
	}
	reply, err := record.LookClaim.Run(ctx, b.c, keys, args...).Slice()
	if err != nil {
		return r, err
	}
	n, ok1 := at[int64](reply, 0)
	next, ok2 := at[int64](reply, 1)
	if !ok1 || !ok2 {
		return r, redisdb.BadReply("look_claim.lua", reply)
	}
	return claimReply{n, next, reply[2:]}, nil
}

// claimFields is how many values precede the payload in the reply of look_claim.lua.
const claimFields = 19

// looked decodes the look-up in the reply of look_claim.lua.
func (b *Books) looked(rest []any) (l job.Look, digest string, err error) {
	if len(rest) < claimFields {
		return l, "", redisdb.BadReply("look_claim.lua", rest)
	}
	text := func(i int) string { v, _ := at[string](rest, i); return v }
	var failed error
	number := func(i int) int64 {
		n, err := strconv.ParseInt(text(i), 10, 64)
		if err != nil {
			failed = redisdb.BadReply("look_claim.lua", rest[i])
		}
		return n
	}
	l = job.Look{Job: job.Job{ID: text(0), Gateway: b.cfg.Gateway, Cost: number(12), Batch: text(13), Route: text(17), Lane: text(18), Payload: joined(rest[claimFields:])},
		Generation: number(1), KeyGeneration: number(2), Accepted: text(3) == "1", Reference: text(4), First: record.Moment(number(5)), Ended: record.Moment(number(6)),
		AbsentKey: number(15), Declined: text(16) == "1", Made: int(number(7)), Absent: int(number(8)), Failed: int(number(9)), Entered: record.Moment(number(10)), Claimed: record.Moment(number(11))}
	return l, text(14), failed
}

// LookEnd is the result of a look-up, and when the next one is due.
type LookEnd struct {
	job.Finding
	// At is when it was written, and Took its duration.
	At   time.Time
	Took time.Duration
	// Next is the time until the next look-up of the schedule; negative if this was the last one. If the
	// look-up failed, it is the time until it is repeated.
	Next time.Duration
	// Least is the least time between two look-ups.
	Least time.Duration
	// Hold is how long no look-up is made at all, because the gateway asked for that. Zero means no hold.
	Hold time.Duration
	// Unmade says that the look-up was not made: it does not count, and is tried again after Next.
	Unmade bool
}

// The states of a job after a look-up.
const (
	AfterGone   = "gone" // the claim had expired: nothing was recorded
	AfterQueued = "queued"
	AfterDone   = string(job.Done)
	AfterAsking = string(job.Pending)
)

// EndLook records the result of a look-up. It returns the job's state, one of the above, or the reason for
// which it is parked. A result of done is recorded even if the claim has expired.
func (b *Books) EndLook(ctx context.Context, l job.Look, e LookEnd) (string, error) {
	taskID, taskKey, msg, err := b.Task(l.Job.ID, l.Generation+1)
	if err != nil {
		return "", err
	}
	k, verdict, line := b.keys, string(e.Verdict), e.line()
	switch {
	case e.Unmade:
		verdict = ""
	case e.Failed:
		verdict = "failed"
	}
	parked := func(r job.Reason) string { return k.Parked(string(r)) }
	keys := []string{k.Job(l.Job.ID), k.Asking(), k.Counters(), k.Hold(), k.Retries(), taskKey, k.Costs(), parked(job.Refused), parked(job.Exhausted), parked(job.UnknownOutcome), k.Looks(), k.Alive()}
	came, err := record.LookEnd.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), l.Job.ID, l.Generation, l.Owner, verdict, micros(e.Next), e.Least.Microseconds(),
		record.Micros(l.Claimed), e.After.Microseconds(), e.Error, e.Status, e.Reference, line, b.cfg.Dedupe.Milliseconds(), b.cfg.Brake.Setting(), b.cfg.Attempts,
		redisdb.Flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), b.sent(l.Job.Route), taskID, msg, b.cfg.Gateway, redisdb.Wake, e.Hold.Microseconds()).Text()
	if err != nil {
		_, err = b.setAside(ctx, record.Damage{ID: l.Job.ID, Err: err})
		return came, err
	}
	if came != AfterGone || verdict != string(job.LookDone) {
		return came, nil
	}
	a := job.Attempt{Job: l.Job, Generation: l.Generation, Owner: l.Owner, Accepted: l.Entered}
	return came, b.Done(ctx, a, job.Ending{Status: e.Status, Reference: e.Reference})
}

// micros returns d in µs, as scripts read it; -1 if d is negative.
func micros(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Microseconds()
}

// line returns the line of the record's history for a look-up that decided the job's outcome.
func (e LookEnd) line() string {
	if e.Unmade || e.Failed || e.Verdict == job.LookLater {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", e.At.UnixMicro(), e.Took.Microseconds(), e.Status, e.Verdict.InHistory())
}

// AskAgain starts look-ups for parked jobs that may have been charged, whatever the reason for which they are
// parked. It reports for each whether it was taken: a job is skipped if it is no longer parked in the given
// generation, or not in doubt.
func (b *Books) AskAgain(ctx context.Context, jobs []job.Return) ([]bool, error) {
	keys, args := []string{b.keys.Asking(), b.keys.Acts()}, []any{b.cfg.NowMicros.Now(), b.actPlace()}
	for _, j := range jobs {
		keys = append(keys, b.keys.Job(j.ID))
		args = append(args, j.ID, j.Generation)
	}
	taken, err := record.Ask.Act(ctx, b.c, keys, args...).BoolSlice()
	if err == nil && len(taken) != len(jobs) {
		err = redisdb.BadReply("ask.lua", taken)
	}
	return taken, err
}

const (
	unaskChunk = 200
	// unasked is how long no process may have made look-ups before pending jobs are parked: another process may
	// still have look-ups in its configuration.
	unasked = time.Minute
)

// Unask parks pending jobs as unknown_outcome with this error once no process makes look-ups for them. It
// returns how many it parked, and how long until the next are due for it; negative if no job is pending.
func (b *Books) Unask(ctx context.Context, why string) (parked int, next time.Duration, err error) {
	k := b.keys
	n, err := record.Unask.For(b.cfg.Feed).Run(ctx, b.c, []string{k.Asking(), k.Looks(), k.Counters(), k.Parked(string(job.UnknownOutcome))}, b.cfg.NowMicros.Now(), k.JobPrefix(),
		unaskChunk, why, unasked.Microseconds()).Int64Slice()
	if err == nil && len(n) != 2 {
		err = redisdb.BadReply("unask.lua", n)
	}
	if err != nil {
		return 0, -1, err
	}
	return int(n[0]), until(n[1]), nil
}
