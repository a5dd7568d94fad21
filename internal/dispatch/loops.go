package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

const (
	moveIdle     = 500 * time.Millisecond // the mover looks at least so often: another process may have written a back-off down
	replayIdle   = 250 * time.Millisecond // the replayer looks so often while nothing is parked as rejected
	replayMost   = 100 * time.Millisecond // and at least so often while there is something
	replayLeast  = 5 * time.Millisecond
	replayChunk  = 200
	sweepEvery   = 2 * time.Second
	loopBackoff  = time.Second // after an error
	expectedRoom = 20          // jobs for which the replayer lets room build up, if the burst allows
)

// mover puts due retries and scheduled jobs at the head of the queue until ctx ends.
func (u *unit) mover(ctx context.Context) {
	for {
		_, next, err := u.books.MoveDue(ctx)
		wait := moveIdle
		switch {
		case err != nil:
			u.complain(ctx, "due jobs not moved, trying again", err)
			wait = loopBackoff
		case next >= 0:
			wait = min(next, moveIdle)
		}
		if !u.sleep(ctx, wait, u.nudge) {
			return
		}
	}
}

// replayer takes jobs parked as rejected in again, oldest first, as room appears.
func (u *unit) replayer(ctx context.Context) {
	if u.cfg.Replay != config.ReplayAuto {
		return
	}
	for {
		wait, err := u.replayOnce(ctx)
		if err != nil {
			u.complain(ctx, "parked jobs not taken in, trying again", err)
			wait = loopBackoff
		}
		if !u.sleep(ctx, wait, nil) {
			return
		}
	}
}

func (u *unit) replayOnce(ctx context.Context) (time.Duration, error) {
	jobs, err := u.books.OldestRejected(ctx, replayChunk)
	if err != nil || len(jobs) == 0 {
		return replayIdle, err
	}
	answers, retry, err := u.books.Readmit(ctx, jobs)
	if err != nil {
		return 0, err
	}
	if answers[len(answers)-1] != job.Full {
		return 0, nil
	}
	if retry == ledger.NoRetry {
		return replayMost, nil
	}
	room := max(1, min(expectedRoom, u.cfg.Admission.Burst/2))
	return max(replayLeast, min(retry*time.Duration(room), replayMost)), nil
}

// sweeper takes up what dead workers left. The processes take turns by chance.
func (u *unit) sweeper(ctx context.Context) {
	for {
		swept, err := u.books.Sweep(ctx)
		if err != nil {
			u.complain(ctx, "sweep failed, trying again", err)
		}
		if swept != (ledger.Swept{}) {
			u.log.Warn("took up what a dead or stalled worker left", "calls_cut_off", swept.Reclaimed,
				"put_back", swept.Requeued, "old_tasks_removed", swept.Removed)
		}
		if !u.sleep(ctx, sweepEvery/2+rand.N(sweepEvery), nil) {
			return
		}
	}
}

func (u *unit) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		u.log.Warn(what, "error", err)
	}
}

// sleep waits for d, a nudge, or the end; it reports whether to go on.
func (u *unit) sleep(ctx context.Context, d time.Duration, nudge <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-nudge:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
