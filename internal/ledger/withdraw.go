package ledger

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"spillway/internal/clock"
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

// retoldOnce is how many entries of the outcome feed are copied in one step.
const retoldOnce = 500

// Erase erases payload, error, reference and digest of jobs that are over. It reports for each whether it did
// so now: a job is skipped if it is erased already, not over, or admitted again. The outcome feed still
// contains the references, so EraseTold must follow. Keep chunks to a few hundred jobs.
func (b *Books) Erase(ctx context.Context, jobs []job.Record) ([]bool, error) {
	keys, args := []string{b.keys.Acts()}, []any{b.cfg.NowMicros.Now(), b.actPlace()}
	for _, r := range jobs {
		keys = append(keys, b.keys.Job(r.Job.ID), b.keys.Aside(r.Job.ID))
		args = append(args, record.Micros(r.Accepted))
	}
	answers, err := record.Erase.Act(ctx, b.c, keys, args...).Int64Slice()
	if err != nil {
		return nil, err
	}
	if len(answers) != len(jobs) {
		return nil, redisdb.BadReply("erase.lua", answers)
	}
	now := make([]bool, len(jobs))
	for i, a := range answers {
		now[i] = a == 1
	}
	return now, nil
}

// stillFor is how long another process's copy of the outcomes may make no progress before it counts as
// abandoned.
const stillFor = 2 * time.Second

// retoldByOther waits for another process's copy. It began later, so it lacks the same references. over reports
// whether it was completed.
func (b *Books) retoldByOther(ctx context.Context) (over bool, err error) {
	for size := int64(-1); ; {
		n, err := b.c.HExists(ctx, b.keys.Feed(), retelling).Result()
		if err != nil || !n {
			return err == nil, err
		}
		copied, err := b.c.XLen(ctx, b.keys.Retold()).Result()
		if err != nil || copied == size {
			return false, err
		}
		size = copied
		if err := clock.Wait(ctx, stillFor); err != nil {
			return false, err
		}
	}
}

// EraseTold removes the references of erased jobs from the stored outcomes. Readers notice nothing else: each
// outcome keeps its cursor. If killed, it can be repeated.
func (b *Books) EraseTold(ctx context.Context) error {
	return b.eraseTold(ctx, retoldOnce, func(context.Context, time.Duration) error { return nil })
}

// eraseTold is EraseTold with a step size, and a rest after each step.
func (b *Books) eraseTold(ctx context.Context, once int, rest func(context.Context, time.Duration) error) error {
	keys := []string{b.keys.Feed(), b.keys.Outcomes(), b.keys.Retold()}
	for whose, last := rand.Text(), ""; ; {
		begun := time.Now()
		reached, err := record.Retell.Run(ctx, b.c, keys, whose, last, once, b.keys.JobPrefix()).Text()
		switch {
		case err != nil || reached == "":
			return err
		case reached == "!":
			if over, err := b.retoldByOther(ctx); err != nil || over {
				return err
			}
			whose, last = rand.Text(), ""
		default:
			last = reached
			if err := rest(ctx, time.Since(begun)); err != nil {
				return err
			}
		}
	}
}
