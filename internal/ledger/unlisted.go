package ledger

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// Waits reports whether a job in this place continues by itself, or is in flight.
func Waits(p record.Place) bool {
	switch p.State {
	case job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending:
		return true
	}
	return false
}

// WaitingMoney returns the money of jobs that wait or are in flight, from the totals of up to most of the
// latest batches. Jobs without a batch are not counted, because they have no totals.
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
