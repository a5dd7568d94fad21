package deadletter

import (
	"context"
	"slices"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// Clearing is one run over a filter's jobs, oldest first: a replay, a discard or a resolve. Jobs parked after it began
// are left alone, so that a job which fails again is not replayed again. Stopped between two chunks, it goes on where it
// was when it is run anew: what it took is not parked any more.
type Clearing struct {
	Store  *Store
	Filter Filter
	Clock  clock.Clock
	// Seen is the filter's jobs as somebody has just read them, in order; nil means that nobody has.
	Seen *Seen
	// Progress is called after each chunk; nil means nobody watches.
	Progress func(Cleared)
	// Taken is told of each job taken; nil means nobody asks.
	Taken func(rec job.Record)
	// HeldBack is told of each job held back, and why; nil means nobody asks.
	HeldBack func(rec job.Record, why string)
	// Withdraw discards jobs that wait for their call, where the filter means such jobs. Nil: it means none.
	Withdraw func(ctx context.Context, jobs []job.Return) ([]bool, error)
	// Begin is called once, before the first job is offered; an error ends the run. Nil means nothing is to be done.
	Begin func(ctx context.Context) error
	// Watch says what the gateway lets a replay do now; it is asked several times a second. Nil means everything.
	Watch func(ctx context.Context) (Leave, error)
	// Canary is how many jobs go first: the rest follows when each of them is done. Zero means that all go.
	Canary int
	// Class is what a replay does to the jobs' class.
	Class job.ClassChange
	// Agreed is when people agreed to a replay: a job whose payload was replaced after that counts as gone. Zero: it may have been replaced.
	Agreed time.Time
	// Canaries is told how the jobs sent ahead stand, while they are waited for; nil means nobody asks.
	Canaries func(Canary)
}

// Cleared counts what a clearing did.
type Cleared struct {
	Taken    int // replayed, discarded or resolved
	HeldBack int // not to be sent again, for the reasons given to Clearing.HeldBack
	Gone     int // no longer parked when their turn came, or replaced
	// Unsure is how many of the last chunk may or may not be taken, after an error.
	Unsure int
}

// Replay takes the jobs in again through admission, waiting for room as long as that takes.
func (c Clearing) Replay(ctx context.Context, a job.Readmitter, r Rules) (Cleared, error) {
	return c.run(ctx, r.Key, a.Readmit, readmitChunk)
}

// How many jobs one script takes: few enough not to keep others waiting for longer than an offer of new jobs does.
const (
	readmitChunk = 500
	removeChunk  = 200 // to make a job done, or discarded, takes longer
)

// clearing is a Clearing under way.
type clearing struct {
	Clearing
	take taker
	done Cleared
	size int // how many jobs to offer at most
	// most is how many jobs to offer next: few while there is little room.
	most    int
	begun   bool
	pace    pace
	canary  canary
	watched time.Time // when Watch was last asked
}

// due is a job whose turn has come.
type due struct {
	rec job.Record
	key job.KeyChange
	why string // it is to be held back; empty means that it is not
}

// decide says what becomes of a job's key, or why it is to be held back.
type decide func(job.Record) (change job.KeyChange, why string)

func (c Clearing) run(ctx context.Context, key decide, take taker, size int) (Cleared, error) {
	filter, err := c.Store.UpToNow(ctx, c.Filter)
	if err != nil {
		return Cleared{}, err
	}
	c.Filter = filter
	run := &clearing{Clearing: c, take: take, size: size, most: size, pace: pace{clock: c.Clock}, canary: canary{size: c.Canary}}
	chunk := make([]due, 0, size)
	for d, err := range c.jobs(ctx, key) {
		if err != nil {
			return run.done, err
		}
		if d.why != "" {
			run.holdBack(d.rec, d.why)
			continue
		}
		if chunk = append(chunk, d); len(chunk) < run.canary.goal(size) {
			continue
		}
		if err := run.all(ctx, chunk); err != nil {
			return run.done, err
		}
		if err := run.follow(ctx, false); err != nil {
			return run.done, err
		}
		chunk = chunk[:0]
	}
	if err := run.all(ctx, chunk); err != nil {
		return run.done, err
	}
	return run.done, run.follow(ctx, true)
}

func (c *clearing) holdBack(rec job.Record, why string) {
	c.done.HeldBack++
	if c.HeldBack != nil {
		c.HeldBack(rec, why)
	}
}

// The bounds of how long to wait for room at a time.
const (
	leastWait   = 2 * time.Millisecond
	unknownWait = 100 * time.Millisecond
	mostWait    = time.Second
)

// all takes a chunk and waits for room as long as it needs. It stops between two offers, never within one: what an
// offer did would not be known.
func (c *clearing) all(ctx context.Context, chunk []due) error {
	for len(chunk) > 0 {
		if err := c.ready(ctx); err != nil {
			return err
		}
		n, wait := c.pace.room(chunk[:min(c.most, len(chunk))])
		if n == 0 {
			c.wait(ctx, wait)
			continue
		}
		full, retry, err := c.offer(context.WithoutCancel(ctx), chunk[:n])
		if err != nil {
			c.done.Unsure = n
			return err
		}
		chunk = append(full, chunk[n:]...)
		if len(full) > 0 || n == c.most {
			c.most = min(max(1, 2*(n-len(full))), c.size)
		}
		switch {
		case len(full) == 0:
		case retry < 0:
			c.holdBack(chunk[0].rec, neverRoom)
			chunk, c.most = chunk[1:], c.size
		default:
			c.wait(ctx, retry)
		}
		if c.Progress != nil {
			c.Progress(c.done)
		}
	}
	return nil
}

// ready returns why the next offer must not be made, or nil.
func (c *clearing) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.watch(ctx); err != nil || c.begun || c.Begin == nil {
		return err
	}
	c.begun = true
	return c.Begin(ctx)
}

// offer returns the jobs that found no room.
func (c *clearing) offer(ctx context.Context, some []due) (full []due, retry time.Duration, err error) {
	jobs := make([]job.Return, len(some))
	for i, d := range some {
		jobs[i] = job.Return{ID: d.rec.Job.ID, Generation: d.rec.Generation, Reason: d.rec.Reason, Key: d.key, Class: c.Class, Agreed: c.Agreed}
		if d.rec.State != job.Parked {
			jobs[i].Reason = ""
		}
	}
	answers, retry, err := c.take(ctx, jobs)
	if err != nil {
		return nil, 0, err
	}
	for i, a := range answers {
		switch a {
		case job.Full:
			full = append(full, some[i])
		case job.Enqueued:
			c.done.Taken++
			c.pace.spend(some[i].rec.Job.Cost)
			c.canary.took(some[i])
			if c.Taken != nil {
				c.Taken(some[i].rec)
			}
		default:
			c.done.Gone++
		}
	}
	return slices.Clip(full), retry, nil
}

func (c *clearing) wait(ctx context.Context, retry time.Duration) {
	wait := unknownWait
	if retry > 0 {
		wait = min(max(retry, leastWait), mostWait)
	}
	select {
	case <-c.Clock.After(wait):
	case <-ctx.Done():
	}
}
