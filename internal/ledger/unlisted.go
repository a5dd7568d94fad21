package ledger

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Waits says that a job in this place goes on by itself, or is under way.
func Waits(p record.Place) bool {
	switch p.State {
	case job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending:
		return true
	}
	return false
}

// WaitingMoney returns the money of the jobs that wait or are under way, as the books of the last batches have it: at most so many. Jobs without a batch have no
// sum, and are not counted.
func (b *Books) WaitingMoney(ctx context.Context, most int64) (sum job.Totals, err error) {
	names, err := b.c.ZRevRange(ctx, b.keys.Batches(), 0, most-1).Result()
	if err != nil || len(names) == 0 {
		return sum, err
	}
	cmds, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.HGetAll(ctx, b.keys.Batch(name))
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	for i, cmd := range cmds {
		batch, err := record.ParseBatch(cmd.(*redis.MapStringStringCmd).Val())
		if err != nil {
			return sum, fmt.Errorf("the books of batch %q at %s: %w", names[i], b.cfg.Gateway, err)
		}
		sum.Add(batch.Sum(Waits))
	}
	return sum, nil
}
