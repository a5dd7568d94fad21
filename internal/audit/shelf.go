package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/record"
)

// reshelved is how many jobs one script checks.
const reshelved = 500

// shelves compares the sets of a batch's parked jobs, which answer queries by batch, with its totals. Both change
// in the same scripts, so a single read of both is exact.
func (c *batchCheck) shelves(ctx context.Context, name string) error {
	if c.told == name {
		return nil // wrong totals are no basis
	}
	wrong, err := c.unequal(ctx, name)
	if err == nil && len(wrong) > 0 && c.repair {
		if err = c.reshelve(ctx, name); err == nil {
			wrong, err = c.unequal(ctx, name)
		}
	}
	if len(wrong) > 0 {
		c.tell(name, strings.Join(wrong, ", "))
	}
	return err
}

// unequal says where the sets and the totals have different numbers of jobs.
func (c *batchCheck) unequal(ctx context.Context, name string) (wrong []string, err error) {
	reasons, k := job.Reasons(), c.g.keys
	books, sets := make([]*redis.StringCmd, len(reasons)), make([]*redis.IntCmd, len(reasons))
	if _, err = c.g.c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for i, r := range reasons {
			place := record.Place{State: job.Parked, Reason: r}
			books[i], sets[i] = tx.HGet(ctx, k.Batch(name), "n:"+place.Field()), tx.ZCard(ctx, k.ParkedBatch(string(r), name))
		}
		return nil
	}); err != nil && err != redis.Nil { // the totals have no such place
		return nil, err
	}
	for i, r := range reasons {
		n, err := books[i].Int64()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		if is := sets[i].Val(); n != is {
			wrong = append(wrong, fmt.Sprintf("%d jobs are listed as parked for %s, and its books have %d", is, r, n))
		}
	}
	return wrong, nil
}

// reshelve puts the jobs of a batch into its sets as their records say, and removes what does not belong there.
func (c *batchCheck) reshelve(ctx context.Context, name string) error {
	for from := int64(0); ; from += reshelved {
		ids, err := c.g.c.LRange(ctx, c.g.keys.BatchIDs(name), from, from+reshelved-1).Result()
		if err != nil {
			return err
		}
		if err := c.put(ctx, name, ids); err != nil {
			return err
		}
		if len(ids) < reshelved {
			break
		}
	}
	for _, r := range job.Reasons() {
		put := func(ids []string) error { return c.put(ctx, name, ids) } // some may be no jobs of the batch, or no longer parked
		if err := c.g.members(ctx, c.g.keys.ParkedBatch(string(r), name), put); err != nil {
			return err
		}
	}
	return nil
}

func (c *batchCheck) put(ctx context.Context, name string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	keys, args := make([]string, len(ids)), []any{name, len(job.Reasons())}
	for _, r := range job.Reasons() {
		args = append(args, string(r))
	}
	for i, id := range ids {
		keys[i] = c.g.keys.Job(id)
		args = append(args, id)
	}
	if err := reshelveScript.Run(ctx, c.g.c, keys, args...).Err(); err != nil && err != redis.Nil {
		return err
	}
	return c.step(ctx)
}
