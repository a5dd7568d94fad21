package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"spillway/internal/audit"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// errand is occasional work. While there is none, no goroutine waits for it: a gateway has several errands, and
// a process may serve thousands of gateways. Only one run of it is active at a time. An errand is safe for
// concurrent use.
type errand struct {
	ctx  context.Context
	runs *sync.WaitGroup
	// do does the work and returns when to run next: 0 means at once, negative means only when nudged.
	do func(context.Context) time.Duration

	mu    sync.Mutex
	begun bool
	over  bool
	busy  bool
	again bool // nudged while it could not run
	timer *time.Timer
}

func (u *unit) errand(do func(context.Context) time.Duration) *errand {
	e := &errand{ctx: u.ctx, runs: &u.loops, do: do}
	u.errands = append(u.errands, e)
	return e
}

// begin enables it. It runs at once if it was nudged before, and otherwise after first; negative means only
// when nudged.
func (e *errand) begin(first time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun = true
	if e.again {
		first = 0
	}
	e.comesUp(first)
}

// nudge runs it now, or once more if it is running.
func (e *errand) nudge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun || e.busy {
		e.again = true
		return
	}
	e.comesUp(0)
}

// end disables it. A run in progress is not interrupted.
func (e *errand) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// comesUp starts it, or sets its timer.
func (e *errand) comesUp(in time.Duration) {
	if e.timer != nil {
		e.timer.Stop()
	}
	switch {
	case e.over || in < 0:
	case in > 0 && e.timer == nil:
		e.timer = time.AfterFunc(in, e.nudge)
	case in > 0:
		e.timer.Reset(in)
	default:
		e.busy, e.again = true, false
		e.runs.Go(e.run)
	}
}

func (e *errand) run() {
	for next := time.Duration(0); next == 0; {
		next = e.do(e.ctx)
		e.mu.Lock()
		switch {
		case e.ctx.Err() != nil || e.over:
			e.over, next = true, -1
		case e.again:
			e.again, next = false, 0
		}
		if e.busy = next == 0; !e.busy {
			e.comesUp(next)
		}
		e.mu.Unlock()
	}
}

// shelve parks the jobs of batches that stopped themselves or await approval, and admits those of batches whose
// first jobs are done, that were approved, or whose resume was broken off.
func (u *unit) shelve(ctx context.Context) time.Duration {
	err := u.now().books.Shelve(ctx, u.resumes, func(batch, what string, jobs int64) {
		level, text := slog.LevelInfo, "the first jobs of a batch are done: the rest goes in"
		switch what {
		case "pause":
			level, text = slog.LevelWarn, "a batch has stopped itself: see \"dispatcher batch NAME\""
		case "await":
			text = "the jobs of a batch that awaits approval are parked"
		case "approve":
			text = "the jobs of an approved batch go in"
		case "resume":
			text = "a resume of a batch was broken off: the rest goes in"
		}
		u.log.Log(ctx, level, text, "batch", batch, "jobs", jobs)
	})
	if err != nil {
		u.complain(ctx, "jobs of a batch not parked or readmitted, trying again", err)
		return loopBackoff
	}
	return -1
}

// totalsFirst is when the totals are checked for the first time, and how soon after a failure.
const totalsFirst = 2 * time.Second

// totals checks the totals of all gateways in one round trip, so that idle ones cost next to nothing, and
// repairs gateways whose totals don't add up, until ctx ends.
func (d *Dispatcher) totals(ctx context.Context) {
	for next := totalsFirst; await(ctx, next); {
		units := d.units()
		books := make([]*ledger.Books, len(units))
		for i, u := range units {
			books[i] = u.now().books
		}
		odd, err := ledger.Odd(ctx, d.p.DB.Client, books)
		if next = audit.CalmLook; err != nil {
			next = totalsFirst
			if ctx.Err() == nil {
				d.p.Log.Warn("totals not looked at, trying again", "error", err)
			}
			continue
		}
		for i, u := range units {
			if odd[i] {
				u.mender.nudge()
			}
		}
	}
}

// mend returns the errand that repairs what foreign writes, evictions and lost writes have corrupted. It
// examines a gateway when its totals don't add up, until they do.
func (u *unit) mend(books *ledger.Books) func(context.Context) time.Duration {
	m := audit.New(u.redis, u.name, books).Mender()
	return func(ctx context.Context) time.Duration {
		did, next, err := m.Look(ctx)
		if err != nil {
			u.complain(ctx, "totals not looked at, trying again", err)
		}
		if did != (audit.Mended{}) {
			u.log.Error("jobs were lost or out of place and are put right: find out who else writes to this Redis, or whether it evicts or lost writes",
				"queued_again", did.Requeued, "placed", did.Placed, "entries_removed", did.Removed)
		}
		if next >= audit.CalmLook {
			return -1
		}
		return next
	}
}

// recallEvery is how often it is checked that Redis still has what was set at run time for lanes and routes.
const recallEvery = 5 * time.Second

// recall follows what is set at run time for lanes and routes, and restores what Redis has lost.
func (u *unit) recall(ctx context.Context) time.Duration {
	if !Laned(u.now().cfg) {
		return -1
	}
	told, err := u.pacer.Recall(ctx, &u.setLive)
	if told > 0 {
		u.log.Warn("Redis had lost what was set live for lanes or routes: restored as this process last saw it", "lanes_and_routes", told,
			"hint", "look whether it holds as you want it: dispatcher lane list")
	}
	if err != nil {
		u.complain(ctx, "what was set live for lanes and routes not looked at, trying again", err)
	}
	return recallEvery
}

const (
	// sortEvery is how often jobs are checked for a class or lane that is not configured: a process with
	// another configuration may admit more.
	sortEvery = time.Minute
	// sortSoon is the interval while another dispatcher still has lanes, and in the first sortEvery after a
	// reload that removed classes or lanes.
	sortSoon = 5 * time.Second
)

// sort moves jobs whose class is no longer configured behind those of the default class, and jobs in lanes, if
// none are configured, into the queue's lines. Otherwise they would never be pulled.
func (u *unit) sort(ctx context.Context) time.Duration {
	now := u.now()
	s, err := now.books.Sort(ctx)
	if s.Others {
		u.sorted.Store(nil)
	} else {
		u.sorted.Store(now)
	}
	if s.Unclassed > 0 {
		u.log.Info("jobs of classes that the file has no more stand behind the others now", "jobs", s.Unclassed)
	}
	if s.Unlaned > 0 {
		u.log.Info("jobs that stood in lanes are in the queue's lines again, as the file has no lanes any more", "jobs", s.Unlaned)
	}
	switch {
	case err != nil:
		u.complain(ctx, "jobs of classes or lanes that the file has no more not put where they belong, trying again", err)
		return loopBackoff
	case s.Unclassed+s.Unlaned > 0:
		u.pacer.Wake()
	}
	return now.sortAgain(s.Others, time.Now())
}

// sortAgain returns when to check again. others: another dispatcher still has lanes.
func (s *set) sortAgain(others bool, now time.Time) time.Duration {
	if others || s.sheds && now.Sub(s.began) < sortEvery {
		return sortSoon
	}
	return sortEvery
}

// sheds reports whether jobs may have classes or lanes that the gateway no longer has: jobs that wait for room
// or are in flight enter the queue later.
func sheds(was, is config.Gateway) bool {
	if Laned(was) && !Laned(is) {
		return true
	}
	return slices.ContainsFunc(was.Priority.List(), func(c job.Class) bool {
		return !c.Usual && !slices.ContainsFunc(is.Priority.List(), func(other job.Class) bool { return other.Name == c.Name })
	})
}

const (
	eraseEvery = 10 * time.Minute // longest time between two scans for jobs to erase, over all processes
	eraseLeast = time.Second      // shortest time
	erasePart  = 4                // if that is sooner, the next scan comes after this part of the erase time
	eraseRest  = 20 * time.Millisecond
	eraseShare = 9 // share of the time, in tenths, that is left to calls
)

// erase removes personal data from the records of jobs that have been over for erase.payload, until ctx ends.
// It leaves Redis alone most of the time, and costs nothing if no gateway has such a setting.
func (d *Dispatcher) erase(ctx context.Context) {
	for await(ctx, d.eraseAgain()) {
		if err := d.eraseEnded(ctx); err != nil && ctx.Err() == nil {
			d.p.Log.Warn("jobs that are over not erased, trying again", "error", err)
		}
	}
}

// eraseAgain returns how long until the next scan.
func (d *Dispatcher) eraseAgain() time.Duration {
	next := eraseEvery
	for _, u := range d.units() {
		if after := u.now().cfg.EraseAfter; after > 0 {
			next = min(next, eraseNext(after))
		}
	}
	return next
}

func eraseNext(after time.Duration) time.Duration {
	return min(max(after/erasePart, eraseLeast), eraseEvery)
}

// eraseEnded makes one scan. For each gateway, only one process does it at a time.
func (d *Dispatcher) eraseEnded(ctx context.Context) error {
	var mine []ledger.Ended
	for _, u := range d.units() {
		after := u.now().cfg.EraseAfter
		if after == 0 || u.ailing.Load() {
			continue
		}
		first, err := u.redis.SetNX(ctx, redisdb.NewKeys(u.name).Erase(), "1", eraseNext(after)*9/10).Result() // the clocks of processes differ
		if err != nil {
			return err
		}
		if first {
			mine = append(mine, ledger.Ended{Books: u.now().books, After: after})
		}
	}
	if len(mine) == 0 {
		return nil
	}
	erased, err := ledger.EraseEnded(ctx, mine, func(ctx context.Context, took time.Duration) error {
		return clock.Wait(ctx, max(eraseRest, took*eraseShare))
	})
	for gateway, n := range erased {
		d.p.Log.Info("what was left of people is erased from jobs that have been over for erase.payload", "gateway", gateway, "jobs", n)
	}
	return err
}
