package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/record"
)

// BatchStart is a batch that a gateway knows or has known; its totals may have expired.
type BatchStart struct {
	Name  string
	First time.Time // when its first job was accepted
}

// BatchStarts returns the batches of many gateways on one Redis, in the order of all, in one round trip.
func BatchStarts(ctx context.Context, all []*Books) ([][]BatchStart, error) {
	if len(all) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.ZSliceCmd, len(all))
	_, _ = all[0].c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, b := range all {
			cmds[i] = p.ZRangeWithScores(ctx, b.keys.Batches(), 0, -1)
		}
		return nil
	})
	starts := make([][]BatchStart, len(all))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return nil, fmt.Errorf("read the batches of %s: %w", all[i].cfg.Gateway, err)
		}
		for _, z := range cmd.Val() {
			name, _ := z.Member.(string)
			starts[i] = append(starts[i], BatchStart{name, record.Moment(int64(z.Score))})
		}
	}
	return starts, nil
}

// BatchOf names one batch at one gateway.
type BatchOf struct {
	*Books
	Name string
}

// Batches returns the totals of many batches on one Redis, in the order of all, in one round trip. Expired ones
// have no places.
func Batches(ctx context.Context, all []BatchOf) ([]record.Batch, error) {
	if len(all) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.MapStringStringCmd, len(all))
	_, _ = all[0].c.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, b := range all {
			cmds[i] = p.HGetAll(ctx, b.keys.Batch(b.Name))
		}
		return nil
	})
	books := make([]record.Batch, len(all))
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if err == nil {
			books[i], err = record.ParseBatch(fields)
		}
		if err != nil {
			return nil, fmt.Errorf("the books of batch %q at %s: %w", all[i].Name, all[i].cfg.Gateway, err)
		}
	}
	return books, nil
}
