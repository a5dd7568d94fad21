package dispatch

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

const (
	replayMost   = 100 * time.Millisecond // the replayer tries at least so often while jobs are parked as rejected
	replayLeast  = 5 * time.Millisecond
	replayChunk  = 200
	expectedRoom = 20          // jobs for which the replayer lets room build up, if the burst allows
	lookAnew     = time.Minute // how often those that can never go in are looked at again: some may have been put before others meanwhile
)

// replay takes jobs parked as rejected in again, oldest first, as room appears.
func (u *unit) replay(ctx context.Context) time.Duration {
	if u.now().cfg.Replay != config.ReplayAuto {
		return -1
	}
	next, err := u.replayOnce(ctx)
	if err != nil {
		u.complain(ctx, "parked jobs not taken in, trying again", err)
		return loopBackoff
	}
	return next
}

// left is what a replayer knows of the jobs that can never go in, since admission was made smaller than they cost: they must not hold the others up.
type left struct {
	set   *set      // what they were found with: after a reload all are looked at again
	since time.Time // when they were looked at from the beginning
	upTo  int64     // up to this place of those parked there are no others
	cost  int64     // as much, and more, can never go in; MaxInt64: not known of any
	jobs  int       // found so far
	said  int       // as the log knows
	told  int64     // the place that the books know; -1: not known
}

// begin starts at the oldest again where that is due, and says whether it is.
func (u *unit) begin(now *set) bool {
	l := &u.left
	if l.set == now && time.Since(l.since) < lookAnew {
		return false
	}
	u.sayLeft()
	if l.set != now {
		l.said, l.told = 0, -1
	}
	l.set, l.since, l.upTo, l.cost, l.jobs = now, time.Now(), 0, math.MaxInt64, 0
	return true
}

// behind notes a job that can never go in. All before it have gone in, or can't either.
func (l *left) behind(r ledger.Rejected) {
	l.upTo, l.cost, l.jobs = r.Place, min(l.cost, r.Cost), l.jobs+1
}

// skip leaves behind those at the front that cost as much as one that can never go in.
func (l *left) skip(jobs []ledger.Rejected) []ledger.Rejected {
	for len(jobs) > 0 && jobs[0].Cost >= l.cost {
		l.behind(jobs[0])
		jobs = jobs[1:]
	}
	return jobs
}

// replayOnce takes in what there is room for and returns when to try again; negative when nothing is left that could go.
func (u *unit) replayOnce(ctx context.Context) (time.Duration, error) {
	now := u.now()
	anew := u.begin(now)
	if now.books.HasFlows() {
		return u.replayFlows(ctx, now.books, anew)
	}
	if u.sorted.Load() != now { // jobs that stand in lanes yet came before
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

// replayChunk takes in what there is room for of some jobs; more says that none of them is left that could go.
func (u *unit) replayChunk(ctx context.Context, books *ledger.Books, jobs []ledger.Rejected) (more bool, wait time.Duration, err error) {
	in := u.tools.traces.Replays(u.name, books)
	for jobs = u.left.skip(jobs); len(jobs) > 0; jobs = u.left.skip(jobs) {
		some := jobs
		if dear := slices.IndexFunc(jobs, func(r ledger.Rejected) bool { return r.Cost >= u.left.cost }); dear > 0 {
			some = jobs[:dear]
		}
		answers, retry, err := in.Readmit(ctx, returns(some))
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

func returns(jobs []ledger.Rejected) []job.Return {
	all := make([]job.Return, len(jobs))
	for i, r := range jobs {
		all[i] = r.Return
	}
	return all
}

// sayLeft says once for all of them how many jobs can never go in.
func (u *unit) sayLeft() {
	l := &u.left
	if l.jobs > l.said {
		u.log.Warn("parked jobs cost more than admission can ever grant, and others go in before them: raise admission's burst or its limits, or discard them",
			"jobs", l.jobs, "least_cost", l.cost)
	}
	l.said = l.jobs
}

// leave lets newcomers pass those that can never go in.
func (u *unit) leave(ctx context.Context, books *ledger.Books) error {
	if u.left.upTo == u.left.told {
		return nil
	}
	if err := books.LeaveBehind(ctx, u.left.upTo); err != nil {
		return err
	}
	u.left.told = u.left.upTo
	return nil
}

// roomIn is when to look for room again, if there is some for one job after retry.
func (u *unit) roomIn(retry time.Duration) time.Duration {
	room := max(1, min(expectedRoom, u.now().cfg.Admission.Burst/2))
	return max(replayLeast, min(retry*time.Duration(room), replayMost))
}
