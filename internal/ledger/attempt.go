package ledger

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
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
		aside, err := b.setAside(ctx, record.Damage{ID: id, Err: err})
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
		_, err = b.setAside(ctx, record.Damage{ID: a.Job.ID, Err: err, Note: cameTo(a, e, true)})
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
		_, err = b.setAside(ctx, record.Damage{ID: a.Job.ID, Err: err, Note: cameTo(a, e, false)})
	}
	return err
}

// setAside parks a job with a damaged record as unreadable, so that it blocks no others (see record.SetAside).
func (b *Books) setAside(ctx context.Context, d record.Damage) (done bool, err error) {
	done, err = record.SetAside(ctx, b.c, record.Of{Keys: b.keys, Feed: b.cfg.Feed}, d, b.cfg.NowMicros.Now())
	if done && b.cfg.SetAside != nil {
		b.cfg.SetAside(d.ID)
	}
	return done, err
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

// Counted is what one process has seen of the money counted for a gateway's brakes. With it, Redis can be told
// what it has lost. The zero Counted has seen nothing. It is safe for concurrent use.
type Counted struct {
	mu      sync.Mutex
	born    string            // see brakes.lua
	opened  map[string]string // by currency, in minor units: the total that this process has opened
	lead    time.Duration     // the longest time seen from opening a call to its latest possible write
	process string            // as open.lua knows it: the name of its first worker, since each configuration that it reads creates others
	said    string            // cached text; empty: to be rebuilt
	agreed  int64             // when Redis was last known to have it (µs)
}

// countedFor is how long Redis certainly remembers what a silent process has opened. brakes_kept of
// brakes_ask.lua forgets it an hour later.
const countedFor = 24 * time.Hour

// see records the reply of open.lua at a time, "born currency money"; empty means that nothing was counted.
func (c *Counted) see(text string, now int64) {
	born, rest, _ := strings.Cut(text, " ")
	currency, money, ok := strings.Cut(rest, " ")
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.born != born {
		c.born, c.opened = born, map[string]string{}
	}
	c.opened[currency], c.said, c.agreed = later(c.opened[currency], money), "", max(c.agreed, now)
}

// recall drops what was opened so long ago that Redis may have forgotten it: it would be taken for lost and
// counted again. None of it is from the last day. The caller holds the lock.
func (c *Counted) recall(now int64) {
	if len(c.opened) > 0 && now-c.agreed > countedFor.Microseconds() {
		c.opened, c.said = map[string]string{}, ""
	}
}

// later returns the larger of two numbers, since replies may arrive out of order.
func later(a, b string) string {
	n, _ := strconv.ParseInt(a, 10, 64)
	m, err := strconv.ParseInt(b, 10, 64)
	if err != nil || n > m {
		return a
	}
	return b
}

// text returns what was seen, in the form that scripts read: "born CURRENCY:MONEY …", or "". The caller holds
// the lock.
func (c *Counted) text() string {
	if c.said != "" || c.born == "" {
		return c.said
	}
	c.said = c.born
	for _, currency := range slices.Sorted(maps.Keys(c.opened)) {
		c.said += " " + currency + ":" + c.opened[currency]
	}
	return c.said
}

// opens records that a call is being opened, which will be written within lead. It returns what was seen so
// far, the process's name in open.lua, and the longest lead so far.
func (c *Counted) opens(owner string, lead time.Duration, now int64) (seen, process string, longest time.Duration) {
	if i := strings.LastIndexByte(owner, '.'); i > 0 {
		owner = owner[:i]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process, c.lead = cmp.Or(c.process, owner), max(c.lead, lead)
	c.recall(now)
	return c.text(), c.process, c.lead
}

// micros returns this machine's time in µs, on a clock that goes on while the machine sleeps.
func (b *Books) micros() int64 {
	if now := b.cfg.NowMicros.Now(); now > 0 {
		return now
	}
	return record.Micros(time.Now())
}
