package ledger

import (
	"context"
	"slices"
	"time"

	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
)

// Withdraw parks jobs that wait for their call in the given generation: queued, scheduled, waiting for a
// back-off, or pending. They are parked as cancelled with this error, or as unknown_outcome if an earlier call
// may have charged, which includes pending jobs. It reports for each whether it was parked: a job that is in
// flight, parked or over is skipped. Keep chunks to a few hundred jobs.
func (b *Books) Withdraw(ctx context.Context, jobs []job.Return, why string) ([]bool, error) {
	return b.withdraw(ctx, jobs, "park", Discarding{Why: why})
}

// Discarding says how jobs are discarded.
type Discarding struct {
	Why string
	// Dedupe is how long they stay known.
	Dedupe time.Duration
	// MayBeCharged permits discarding jobs that an earlier call may have charged.
	MayBeCharged bool
}

// WithdrawForGood is like Withdraw, but discards the jobs in the same step. It skips jobs that may have been
// charged, unless permitted, and pending jobs always.
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
		_ = b.clearPapers(ctx) // a stale task is dropped when it is pulled
	}
	return taken, nil
}
