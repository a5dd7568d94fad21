package ledger

import (
	"context"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Withdraw parks jobs that wait for their call, in the generation given: queued, scheduled, waiting out a back-off, or pending. They are parked as
// cancelled with this error, and as unknown_outcome where an earlier call may have charged, as that of a pending one may. It says of each whether it was taken: one that is
// in flight, parked or over by now is left alone. Keep chunks to a few hundred jobs.
func (b *Books) Withdraw(ctx context.Context, jobs []job.Return, why string) ([]bool, error) {
	return b.withdraw(ctx, jobs, "park", Discarding{Why: why})
}

// Discarding is how jobs are discarded.
type Discarding struct {
	Why string
	// Dedupe is how long they stay known.
	Dedupe time.Duration
	// MayBeCharged lets those be discarded of which an earlier call may have charged.
	MayBeCharged bool
}

// WithdrawForGood is Withdraw of jobs that are discarded in the same step. One that may have been charged by now is not taken, unless that is allowed,
// and a pending one never.
func (b *Books) WithdrawForGood(ctx context.Context, jobs []job.Return, d Discarding) ([]bool, error) {
	return b.withdraw(ctx, jobs, "discard", d)
}

func (b *Books) withdraw(ctx context.Context, jobs []job.Return, what string, d Discarding) ([]bool, error) {
	k := b.keys
	keys := []string{k.Counters(), k.Scheduled(), k.Retrying(), k.Costs(), k.Parked(string(job.Cancelled)), k.Parked(string(job.UnknownOutcome)), k.Acts(), k.Asking()}
	args := []any{b.cfg.NowMicros.Now(), what, d.Why, d.Dedupe.Milliseconds(), b.actPlace(), redisdb.Flag(d.MayBeCharged)}
	for _, j := range jobs {
		keys = append(keys, k.Job(j.ID))
		args = append(args, j.ID, j.Generation)
	}
	answers, err := record.Withdraw.For(b.cfg.Feed).Act(ctx, b.c, keys, args...).Int64Slice()
	if err != nil {
		return nil, err
	}
	if len(answers) != len(jobs) {
		return nil, redisdb.BadReply("withdraw.lua", answers)
	}
	taken := make([]bool, len(jobs))
	for i, a := range answers {
		taken[i] = a > 0
	}
	if slices.Contains(answers, 2) {
		_ = b.clearPapers(ctx) // a task that stays is dropped when its turn comes
	}
	return taken, nil
}
