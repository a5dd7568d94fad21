package dispatch

import (
	"context"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/ledger"
)

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
	in := u.tools.traces.Replays(u.name, books)
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
		answers, retry, err := in.Readmit(ctx, returns(turns.Jobs))
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
