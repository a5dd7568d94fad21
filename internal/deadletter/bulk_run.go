package deadletter

import (
	"context"
	"iter"
	"slices"
	"time"

	"spillway/internal/clock"
	"spillway/internal/job"
)

// BulkRun is one run over a filter's jobs, oldest first: a replay, a discard or a resolve. It ignores jobs
// parked after it began, so that a job that fails again is not replayed again. If it is interrupted between two
// chunks, a new run continues where it stopped, because the jobs that it took are no longer parked.
type BulkRun struct {
	Store  *Store
	Filter Filter
	Clock  clock.Clock
	// Seen is the filter's jobs as just read, in order; nil if they were not read.
	Seen *Seen
	// Progress is called after each chunk; nil: not called.
	Progress func(BulkResult)
	// Taken is called for each job taken; nil: not called.
	Taken func(rec job.Record)
	// HeldBack is called for each job held back, with the reason; nil: not called.
	HeldBack func(rec job.Record, why string)
	// Withdraw discards jobs that wait for their call, if the filter selects such jobs. Nil: it selects none.
	Withdraw func(ctx context.Context, jobs []job.Return) ([]bool, error)
	// Begin is called once, before the first job is offered; an error ends the run. Nil: not called.
	Begin func(ctx context.Context) error
	// Watch returns what the gateway permits a replay now; it is called several times a second. Nil means no
	// restriction.
	Watch func(ctx context.Context) (Leave, error)
	// Canary is how many jobs go first; the rest follows when each of them is done. Zero means that all go.
	Canary int
	// Class is what a replay does to the jobs' class.
	Class job.ClassChange
	// Agreed is when a replay was requested: a job whose payload was replaced later is not taken and counts as Gone. Zero: replaced payloads are taken.
	Agreed time.Time
	// Canaries is called with the state of the jobs sent ahead, while they are waited for; nil: not called.
	Canaries func(Canary)
}

// BulkResult counts the results of a BulkRun.
type BulkResult struct {
	Taken    int // replayed, discarded or resolved
	HeldBack int // not taken, for the reasons given to BulkRun.HeldBack
	Gone     int // no longer parked in their turn, or replaced after BulkRun.Agreed
	// Unsure is how many jobs of the last chunk may or may not have been taken, after an error.
	Unsure int
}

// Replay admits the jobs again. It waits for room as long as needed.
func (c BulkRun) Replay(ctx context.Context, a job.Readmitter, r Rules) (BulkResult, error) {
	return c.run(ctx, r.Key, a.Readmit, readmitChunk)
}

// How many jobs one script takes: few enough to block others no longer than an offer of new jobs does.
const (
	readmitChunk = 500
	removeChunk  = 200 // making a job done, or discarded, takes longer
)

// running is a BulkRun in progress.
type running struct {
	BulkRun
	take taker
	done BulkResult
	size int // most jobs in one offer
	// most is how many jobs to offer next: few while there is little room.
	most    int
	begun   bool
	pace    pace
	canary  canary
	watched time.Time // time of the last Watch
}

// due is a job whose turn has come.
type due struct {
	rec job.Record
	key job.KeyChange
	why string // why it is held back; empty if it is not
}

// decide returns what becomes of a job's key, or why the job is held back.
type decide func(job.Record) (change job.KeyChange, why string)

// taker takes one chunk out of the store.
type taker func(ctx context.Context, jobs []job.Return) (answers []job.Admittance, retry time.Duration, err error)

func (c BulkRun) run(ctx context.Context, key decide, take taker, size int) (BulkResult, error) {
	filter, err := c.Store.UpToNow(ctx, c.Filter)
	if err != nil {
		return BulkResult{}, err
	}
	c.Filter = filter
	run := &running{BulkRun: c, take: take, size: size, most: size, pace: pace{clock: c.Clock}, canary: canary{size: c.Canary}}
	chunk := make([]due, 0, size)
	for d, err := range c.jobs(ctx, key) {
		if err != nil {
			return run.done, err
		}
		if d.why != "" {
			run.holdBack(d.rec, d.why)
			continue
		}
		if chunk = append(chunk, d); len(chunk) < size && (c.Canary == 0 || len(chunk) < run.canary.goal(size)) {
			continue
		}
		if err := run.all(ctx, chunk); err != nil {
			return run.done, err
		}
		if c.Canary > 0 {
			if err := run.follow(ctx, false); err != nil {
				return run.done, err
			}
		}
		chunk = chunk[:0]
	}
	err = run.all(ctx, chunk)
	if err == nil && c.Canary > 0 {
		err = run.follow(ctx, true)
	}
	return run.done, err
}

func (c *running) holdBack(rec job.Record, why string) {
	c.done.HeldBack++
	if c.HeldBack != nil {
		c.HeldBack(rec, why)
	}
}

// Bounds on one wait for room.
const (
	leastWait   = 2 * time.Millisecond
	unknownWait = 100 * time.Millisecond
	mostWait    = time.Second
)

// all takes a chunk, and waits for room as long as needed. It stops only between two offers, because the result
// of an interrupted offer would be unknown.
func (c *running) all(ctx context.Context, chunk []due) error {
	for len(chunk) > 0 {
		if err := c.ready(ctx); err != nil {
			return err
		}
		n := min(c.most, len(chunk))
		if c.pace.rate > 0 {
			var wait time.Duration
			if n, wait = c.pace.room(chunk[:n]); n == 0 {
				c.wait(ctx, wait)
				continue
			}
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
func (c *running) ready(ctx context.Context) error {
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
func (c *running) offer(ctx context.Context, some []due) (full []due, retry time.Duration, err error) {
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
			if c.pace.rate > 0 {
				c.pace.spend(some[i].rec.Job.Cost)
			}
			if c.Canary > 0 {
				c.canary.took(some[i])
			}
			if c.Taken != nil {
				c.Taken(some[i].rec)
			}
		default:
			c.done.Gone++
		}
	}
	return slices.Clip(full), retry, nil
}

func (c *running) wait(ctx context.Context, retry time.Duration) {
	wait := unknownWait
	if retry > 0 {
		wait = min(max(retry, leastWait), mostWait)
	}
	select {
	case <-c.Clock.After(wait):
	case <-ctx.Done():
	}
}

// Leave is what a gateway permits a replay now.
type Leave struct {
	// Stop says why nothing may be replayed now: the gateway is held or paused. Empty: continue.
	Stop string
	// Rate is how much cost may enter the queue, in units a second, spread evenly. Zero means no bound.
	Rate float64
}

// Halt is the error of a replay that stopped itself. What it took stays taken; a new run continues with what is
// still parked.
type Halt struct {
	Why string
	// Canary is the state of the jobs sent ahead, if they are the reason; nil if the gateway is.
	Canary *Canary
}

// Error implements error.
func (h *Halt) Error() string { return h.Why }

// watchEvery is how often a replay calls Watch.
const watchEvery = 200 * time.Millisecond

// watch calls Watch if the last result is old, and returns a Halt if the replay must stop.
func (c *running) watch(ctx context.Context) error {
	now := c.Clock.Now()
	if c.Watch == nil || (!c.watched.IsZero() && now.Sub(c.watched) < watchEvery) {
		return nil
	}
	leave, err := c.Watch(ctx)
	if err != nil {
		return err
	}
	c.watched = now
	if leave.Stop != "" {
		return &Halt{Why: leave.Stop}
	}
	if leave.Rate != c.pace.rate {
		c.pace.change(leave.Rate)
	}
	return nil
}

// jobs yields the jobs whose turn has come: those in Seen, then those read after the last of them.
func (c BulkRun) jobs(ctx context.Context, key decide) iter.Seq2[due, error] {
	return func(yield func(due, error) bool) {
		f, n := c.Filter, 0
		if c.Seen != nil {
			for d := range c.Seen.fresh(c.Store.gateway) {
				if n++; !yield(d, nil) {
					return
				}
				f.After = Cursor(d.rec)
			}
		}
		if f.Limit > 0 {
			if f.Limit -= n; f.Limit <= 0 {
				return
			}
		}
		for rec, err := range c.Store.List(ctx, f) {
			change, why := job.KeyChange(""), ""
			if err == nil {
				change, why = key(rec)
			}
			if !yield(due{rec, change, why}, err) || err != nil {
				return
			}
		}
	}
}
