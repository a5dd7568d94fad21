package ledger

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/seal"
)

// Open records an attempt before its call. deadline is how long from now no other process may judge the
// attempt: the wait for the slot, the call's timeout and a margin. With OpenHeld nothing was recorded and the
// task must come again. With OpenStale and OpenBusy nothing was recorded and there is nothing to do. With any
// other opening, the owner must call the job, or park it as the opening says. The same owner may open the same
// attempt again, with a later deadline.
func (b *Books) Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error) {
	keys := append([]string{b.keys.Job(id)}, b.openKeys...)
	age := b.cfg.Age()
	lead, begun := max(deadline-b.cfg.Timeout, 0), b.micros()
	seen, process, longest := b.cfg.Counted.opens(owner, lead, begun)
	reply, err := record.Open.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), id, generation, owner, deadline.Microseconds(),
		redisdb.Flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), b.cfg.Attempts, age.Version, age.Least, age.Marks, b.cfg.Sent, b.routeSent,
		b.brakes, lead.Microseconds(), seen, process, longest.Microseconds()).Slice()
	if err != nil {
		aside, err := b.orAside(ctx, id, "", err)
		if aside {
			return job.Attempt{}, job.OpenStale, nil
		}
		return job.Attempt{}, "", err
	}
	a, opening, err := opened(reply, job.Attempt{Job: job.Job{ID: id, Gateway: b.cfg.Gateway}, Generation: generation, Owner: owner})
	if err == nil {
		digest, _ := at[string](reply, digestAt)
		opening = b.unseal(&a, digest, opening)
		now, _ := at[string](reply, seenAt)
		b.cfg.Counted.see(now, begun)
	}
	return a, opening, err
}

// digestAt is the index of the payload's digest in the reply of open.lua.
const digestAt = 9

// seenAt is the index of the money counted for brakes, and leftAt that of the time to the job's expiry.
const (
	seenAt = digestAt + 6
	leftAt = seenAt + 1
)

// opened decodes the reply of open.lua.
func opened(reply []any, a job.Attempt) (job.Attempt, job.Opening, error) {
	ok := true
	text := func(i int) string { v, is := at[string](reply, i); ok = ok && is; return v }
	number := func(i int) int64 { v, is := at[int64](reply, i); ok = ok && is; return v }
	what := job.Opening(text(0))
	if ok && len(reply) == 1 {
		return job.Attempt{}, what, nil
	}
	a.Job.Cost, a.Spent, a.KeyGeneration, a.Accepted, a.Outages = number(1), int(number(2)), number(3), record.Moment(number(5)), int(number(6))
	if age := number(4); age >= 0 {
		a.KeySent, a.KeyAge = true, time.Duration(age)*time.Microsecond
	}
	a.Job.Batch, a.LastError = text(7), text(8)
	a.Unsure, a.Lapse = number(digestAt+1) == 1, number(digestAt+1) == 2
	a.Failed, a.Calls, a.Job.Route = record.Moment(number(digestAt+2)), int(number(digestAt+3)), text(digestAt+4)
	a.Job.Lane, a.Left = text(digestAt+5), time.Duration(number(leftAt))*time.Microsecond
	if !ok {
		return job.Attempt{}, "", redisdb.BadReply("open.lua", reply)
	}
	a.Job.Payload = joined(reply[leftAt+1:])
	return a, what, nil
}

// joined concatenates the pieces of a payload.
func joined(pieces []any) []byte {
	if len(pieces) == 0 {
		return nil
	}
	first, _ := at[string](pieces, 0)
	payload := []byte(first)
	for i := range pieces[1:] {
		piece, _ := at[string](pieces, 1+i)
		payload = append(payload, piece...)
	}
	return payload
}

// at returns one value of a script's reply. ok is false if it is absent or of another type.
func at[T int64 | string](reply []any, i int) (value T, ok bool) {
	if i < len(reply) {
		value, ok = reply[i].(T)
	}
	return value, ok
}

// Done records that the attempt's call succeeded. It is idempotent.
func (b *Books) Done(ctx context.Context, a job.Attempt, e job.Ending) error {
	k := b.keys
	end := k.TaskEnd(job.TaskID(a.Job.ID, a.Generation), time.Now())
	keys := slices.Concat([]string{k.Job(a.Job.ID)}, b.doneKeys, end.Keys)
	done, err := record.Done.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), a.Job.ID, a.Generation, a.Owner, e.Status, e.Line(),
		b.cfg.Dedupe.Milliseconds(), record.Micros(a.Accepted), e.Reference, b.cfg.Brake.Setting(), end.Task, end.Until).Int()
	b.cfg.ended(end.Task, done == 1 || done == 2)
	if err != nil {
		_, err = b.orAside(ctx, a.Job.ID, cameTo(a, e, true), err)
	}
	return err
}

// Back records that the attempt ended and the job continues. With wait zero, the job goes to the head of its
// line of the queue at once; otherwise it waits for that back-off. If the record has moved on, Back does
// nothing.
func (b *Books) Back(ctx context.Context, a job.Attempt, e job.Ending, wait time.Duration) error {
	taskID, taskKey, msg, err := b.Task(a.Job.ID, a.Generation+1)
	if err != nil {
		return err
	}
	k := b.keys
	end := k.TaskEnd(job.TaskID(a.Job.ID, a.Generation), time.Now())
	keys := append([]string{k.Job(a.Job.ID), k.Open(), k.Rate(), k.Due(), taskKey, k.Retrying(), k.Costs(), k.Counters(), k.Hold(), k.Retries()}, end.Keys...)
	back, err := record.Back.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), a.Job.ID, a.Generation, a.Owner, redisdb.Flag(e.Spent), e.Line(), e.Status,
		wait.Microseconds(), e.Error, taskID, msg, b.cfg.Gateway, redisdb.Wake, e.Doubt(), redisdb.Flag(e.Alive()), record.Micros(e.Failed), record.Micros(e.Outage),
		end.Task, end.Until).Int()
	b.cfg.ended(end.Task, back == 1)
	if err != nil {
		_, err = b.orAside(ctx, a.Job.ID, cameTo(a, e, false), err)
	}
	return err
}

// setAside parks a job with a damaged record as unreadable, so that it blocks no others. from are further sets
// that contain it.
func (b *Books) setAside(ctx context.Context, id string, from ...string) error {
	done, err := record.SetAside(ctx, b.c, record.Of{Keys: b.keys, Feed: b.cfg.Feed}, id, "", b.cfg.NowMicros.Now(), from...)
	if done && b.cfg.SetAside != nil {
		b.cfg.SetAside(id)
	}
	return err
}

// orAside returns the error of a script on a job's record. If the record is damaged, the job is set aside, and
// the error is nil. note is what else is known of the job.
func (b *Books) orAside(ctx context.Context, id, note string, err error) (aside bool, _ error) {
	aside, err = record.IfDamaged(ctx, b.c, record.Of{Keys: b.keys, Feed: b.cfg.Feed}, id, note, b.cfg.NowMicros.Now(), err)
	if aside && b.cfg.SetAside != nil {
		b.cfg.SetAside(id)
	}
	return aside, err
}

// cameTo describes the outcome of a call whose job's record is damaged.
func cameTo(a job.Attempt, e job.Ending, done bool) string {
	switch {
	case done:
		return "its last call succeeded (reference " + e.Reference + "): resolve it as done"
	case e.Called:
		return "its last call came to: " + e.Error
	case a.KeySent:
		return "it was called before"
	}
	return ""
}

// lapseChunk is how many tasks of each line one step of Lapse looks at.
const lapseChunk = 200

// Lapsed are the jobs that Lapse has taken out of the queue.
type Lapsed struct {
	Expired []string // parked as expired
	Unsure  []string // they may have been called since a snapshot that was restored: parked as unknown_outcome, or pending if Asked
	Asked   bool
}

// Lapse parks queued jobs that have expired and can't have been charged, and those that may have been called since a
// restored snapshot and that no key covers. It removes their tasks, so that none of them is pulled at a slot. id
// is such a job, which was pulled: one step looks near the heads of the lines in which that job waited. If it
// returns no jobs, there are none left near the heads. Any process may do this at any time.
func (b *Books) Lapse(ctx context.Context, id string) (Lapsed, error) {
	k, age := b.keys, b.cfg.Age()
	keys := []string{k.Pending(), k.Counters(), k.Parked(string(job.Expired)), k.Alive(), k.Nobodys()}
	reply, err := record.Lapse.For(b.cfg.Feed).Run(ctx, b.c, keys, b.cfg.NowMicros.Now(), id, k.JobPrefix(), lapseChunk, job.ExpiredUnsent,
		age.Version, age.Least, age.Marks, redisdb.Flag(b.cfg.Keys), b.cfg.KeyLifetime.Microseconds(), job.Uncovered, b.cfg.Asks.First(false)).StringSlice()
	if err != nil {
		return Lapsed{}, err
	}
	if len(reply) == 0 {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply)
	}
	lines, err := strconv.Atoi(reply[0])
	if err != nil || lines < 0 || len(reply) < 2+2*lines {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply[0])
	}
	ids := reply[2+2*lines:]
	expired, err := strconv.Atoi(reply[1+2*lines])
	if err != nil || expired < 0 || expired > len(ids) {
		return Lapsed{}, redisdb.BadReply("lapse.lua", reply[1+2*lines])
	}
	did := Lapsed{ids[:expired], ids[expired:], b.cfg.Asks.First(false) > 0}
	for i := 1; i <= 2*lines; i += 2 {
		size, err := strconv.ParseInt(reply[i+1], 10, 64)
		if err != nil {
			return did, redisdb.BadReply("lapse.lua", reply[i+1])
		}
		if err := b.clearHead(ctx, reply[i], size); err != nil {
			return did, err
		}
	}
	return did, nil
}

// clearHead removes the stale tasks near the head of a line that had size tasks: also if others were added since.
func (b *Books) clearHead(ctx context.Context, line string, size int64) error {
	_, err := b.clearStretch(ctx, line, max(size-lapseChunk, 0), papersChunk)
	return err
}

// unseal opens the payload of an attempt that may be called. A payload that can't be opened is never sent. If
// its key is missing, or it is unsealed where sealing is required, it is set aside: others may be like it, and
// a change of the configuration fixes them all. If it was changed, the job is parked.
func (b *Books) unseal(a *job.Attempt, digest string, opening job.Opening) job.Opening {
	if opening != job.OpenGo {
		return opening
	}
	plain, err := b.cfg.Box.OpenJob(a.Job.ID, a.Job.Payload, digest)
	if err == nil {
		a.Job.Payload = plain
		return opening
	}
	a.Job.Payload, a.LastError = nil, err.Error()
	if errors.Is(err, seal.ErrChanged) {
		return job.OpenChanged
	}
	return job.OpenSealed
}
