package dispatch

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

const (
	replayMost   = 100 * time.Millisecond // the replayer's interval while jobs are parked as rejected
	replayLeast  = 5 * time.Millisecond
	replayChunk  = 200
	expectedRoom = 20          // jobs for which the replayer lets room accumulate, if the burst allows it
	lookAnew     = time.Minute // how often jobs that can never be admitted are checked again: others may have been inserted before them
)

// replay admits jobs parked as rejected, oldest first, as room appears.
func (u *unit) replay(ctx context.Context) time.Duration {
	if u.now().cfg.Replay != config.ReplayAuto {
		return -1
	}
	next, err := u.replayOnce(ctx)
	if err != nil {
		u.complain(ctx, "parked jobs not readmitted, trying again", err)
		return loopBackoff
	}
	return next
}

// left is what a replayer knows of jobs that can never be admitted, because admission was made smaller than
// their cost: they must not block others.
type left struct {
	set    *set      // the configuration they were found with: a reload checks all again
	since  time.Time // when the check from the beginning started
	upTo   int64     // all parked jobs up to this place are among them
	cost   int64     // jobs with this cost or more can never be admitted; MaxInt64: unknown
	jobs   int       // found so far
	said   int       // as logged
	stored int64     // the place stored in Redis; -1: unknown
}

// begin restarts at the oldest job if that is due, and reports whether it is.
func (u *unit) begin(now *set) bool {
	l := &u.left
	if l.set == now && time.Since(l.since) < lookAnew {
		return false
	}
	u.sayLeft()
	if l.set != now {
		l.said, l.stored = 0, -1
	}
	l.set, l.since, l.upTo, l.cost, l.jobs = now, time.Now(), 0, math.MaxInt64, 0
	return true
}

// behind records a job that can never be admitted. All before it were admitted, or can't be either.
func (l *left) behind(r ledger.Rejected) {
	l.upTo, l.cost, l.jobs = r.Place, min(l.cost, r.Cost), l.jobs+1
}

// skip skips the jobs at the front that cost as much as one that can never be admitted.
func (l *left) skip(jobs []ledger.Rejected) []ledger.Rejected {
	for len(jobs) > 0 && jobs[0].Cost >= l.cost {
		l.behind(jobs[0])
		jobs = jobs[1:]
	}
	return jobs
}

// replayOnce admits what there is room for. It returns when to try again; negative if nothing is left that
// could be admitted.
func (u *unit) replayOnce(ctx context.Context) (time.Duration, error) {
	now := u.now()
	anew := u.begin(now)
	if now.books.HasFlows() {
		return u.replayFlows(ctx, now.books, anew)
	}
	if u.sorted.Load() != now { // jobs still in old lanes came before
		return replayMost, nil
	}
	for {
		jobs, err := now.books.OldestRejected(ctx, u.left.upTo, replayChunk)
		if err != nil {
			return -1, err
		}
		if len(jobs) == 0 {
			u.sayLeft()
			return -1, u.leave(ctx, now.books)
		}
		more, wait, err := u.replayChunk(ctx, now.books, jobs)
		if err != nil || !more {
			return wait, cmp.Or(err, u.leave(ctx, now.books))
		}
	}
}

// replayChunk admits those of some jobs for which there is room. more says that none of them is left that could
// be admitted.
func (u *unit) replayChunk(ctx context.Context, books *ledger.Books, jobs []ledger.Rejected) (more bool, wait time.Duration, err error) {
	for jobs = u.left.skip(jobs); len(jobs) > 0; jobs = u.left.skip(jobs) {
		some := jobs
		if dear := slices.IndexFunc(jobs, func(r ledger.Rejected) bool { return r.Cost >= u.left.cost }); dear > 0 {
			some = jobs[:dear]
		}
		answers, retry, err := u.readmit(ctx, books, returns(some))
		if err != nil {
			return false, 0, err
		}
		first := slices.Index(answers, job.Full)
		switch {
		case first < 0:
			jobs = jobs[len(some):]
		case retry != ledger.NoRetry:
			return false, u.roomIn(retry), nil
		default:
			u.left.behind(jobs[first])
			jobs = jobs[first+1:]
		}
	}
	return true, 0, nil
}

// readmit admits parked jobs again, and records that in their traces.
func (u *unit) readmit(ctx context.Context, books *ledger.Books, jobs []job.Return) ([]job.Admittance, time.Duration, error) {
	begun := time.Now()
	answers, retry, err := books.Readmit(ctx, jobs)
	u.tools.traces.Replayed(ctx, u.name, jobs, answers, begun)
	return answers, retry, err
}

func returns(jobs []ledger.Rejected) []job.Return {
	all := make([]job.Return, len(jobs))
	for i, r := range jobs {
		all[i] = r.Return
	}
	return all
}

// sayLeft logs once, for all of them together, how many jobs can never be admitted.
func (u *unit) sayLeft() {
	l := &u.left
	if l.jobs > l.said {
		u.log.Warn("parked jobs cost more than admission can ever grant, and others go in before them: raise admission's burst or its limits, or discard them",
			"jobs", l.jobs, "least_cost", l.cost)
	}
	l.said = l.jobs
}

// leave lets new jobs pass those that can never be admitted.
func (u *unit) leave(ctx context.Context, books *ledger.Books) error {
	if u.left.upTo == u.left.stored {
		return nil
	}
	if err := books.LeaveBehind(ctx, u.left.upTo); err != nil {
		return err
	}
	u.left.stored = u.left.upTo
	return nil
}

// roomIn returns when to try again, if there is room for one job after retry.
func (u *unit) roomIn(retry time.Duration) time.Duration {
	room := max(1, min(expectedRoom, u.now().cfg.Admission.Burst/2))
	return max(replayLeast, min(retry*time.Duration(room), replayMost))
}

// againEvery is how often jobs parked as exhausted are checked for automatic replay.
const againEvery = 2 * time.Second

// recoverDue replays jobs parked as exhausted that are due for it, if this is configured and the gateway is
// healthy.
func (u *unit) recoverDue(ctx context.Context) time.Duration {
	if u.now().cfg.Exhausted == config.ReplayRecovery {
		if err := u.recoverOnce(ctx); err != nil {
			u.complain(ctx, "exhausted jobs not readmitted, trying again", err)
		}
	}
	return againEvery
}

// recoverOnce replays the due jobs that find room. Any number of processes may run it at once: the script takes
// each job only once.
func (u *unit) recoverOnce(ctx context.Context) error {
	s := u.now()
	now, err := s.books.Look(ctx)
	if err != nil || now.Parked[job.Exhausted] == 0 {
		return err
	}
	well, err := u.well(ctx)
	if err != nil || !well {
		return err
	}
	rules, err := Rules(ctx, u.redis, s.cfg)
	if err != nil {
		return err
	}
	jobs, left, err := deadletter.New(u.redis, u.name).Again(ctx, rules, replayChunk)
	if left > 0 {
		u.log.Warn("exhausted jobs are left to a person: a replay would hold them back, see dlq show", "jobs", left)
	}
	if err != nil || len(jobs) == 0 {
		return err
	}
	answers, _, err := u.readmit(ctx, s.books.For(deadletter.ByItself), jobs)
	taken := 0
	for _, a := range answers {
		if a == job.Enqueued {
			taken++
		}
	}
	if taken > 0 {
		u.log.Info("exhausted jobs go in again: the gateway is well", "jobs", taken)
	}
	return err
}

// well reports whether nothing holds the gateway's calls back, not even a pending probe.
func (u *unit) well(ctx context.Context) (bool, error) {
	s, err := Hold(ctx, u.redis, u.now().cfg)
	return err == nil && !s.Paused && s.HeldUntil.IsZero() && !s.Probing && !s.Circuit, err
}

// reflow is how far a replayer has verified that every job parked as rejected has a turn among the gateway's
// flows.
type reflow struct {
	upTo  int64     // jobs up to this place have a turn
	whole time.Time // when all were verified from the beginning
}

// replayFlows admits what there is room for at a gateway with flows. It returns when to try again; negative if
// nothing is left that could be admitted. anew: check again those that could never be admitted.
func (u *unit) replayFlows(ctx context.Context, books *ledger.Books, anew bool) (time.Duration, error) {
	if anew {
		u.reflow = reflow{}
		if err := books.Refit(ctx); err != nil {
			return -1, err
		}
	}
	for {
		turns, err := books.NextRejected(ctx, replayChunk)
		if err == nil && !turns.Whole {
			err = u.giveTurns(ctx, books)
		}
		switch {
		case err != nil:
			return -1, err
		case len(turns.Jobs) > 0:
		case turns.More || !turns.Whole:
			return replayLeast, nil
		default:
			u.sayLeft()
			return -1, nil
		}
		answers, retry, err := u.readmit(ctx, books, returns(turns.Jobs))
		if err != nil {
			return -1, err
		}
		first := slices.Index(answers, job.Full)
		if first >= 0 && retry != ledger.NoRetry {
			return u.roomIn(retry), nil
		}
		if first >= 0 {
			err = u.leaveBehind(ctx, books, turns.Jobs, turns.Jobs[first].Cost)
		}
		if err != nil {
			return -1, err
		}
	}
}

// giveTurns gives turns to jobs that were parked without flows.
func (u *unit) giveTurns(ctx context.Context, books *ledger.Books) error {
	last, whole, err := books.Reflow(ctx, u.reflow.upTo)
	if u.reflow.upTo = last; err != nil || whole || time.Since(u.reflow.whole) < lookAnew {
		return err
	}
	u.reflow.whole = time.Now()
	if u.reflow.upTo, whole, err = books.Reflow(ctx, 0); err != nil || whole {
		return err
	}
	return books.Unflow(ctx)
}

// leaveBehind takes out of turn the jobs that cost as much as one that can never be admitted, so that they
// block no others.
func (u *unit) leaveBehind(ctx context.Context, books *ledger.Books, jobs []ledger.Rejected, cost int64) error {
	unfit := slices.DeleteFunc(slices.Clone(jobs), func(r ledger.Rejected) bool { return r.Cost < cost })
	u.left.jobs, u.left.cost = u.left.jobs+len(unfit), min(u.left.cost, cost)
	return books.SetUnfit(ctx, unfit)
}
