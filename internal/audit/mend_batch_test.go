package audit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// restful counts how often a mender holds on to the records while it reads the ids of a batch.
type restful struct {
	redis.UniversalClient
	reads, rests int
}

func (c *restful) LRange(ctx context.Context, key string, from, to int64) *redis.StringSliceCmd {
	if strings.Contains(key, ":batch-ids:") {
		c.reads++
	}
	return c.UniversalClient.LRange(ctx, key, from, to)
}

func (c *restful) Expire(ctx context.Context, key string, d time.Duration) *redis.BoolCmd {
	if c.reads > 0 {
		c.rests++
	}
	return c.UniversalClient.Expire(ctx, key, d)
}

// Counting a batch of a million jobs takes longer than a process holds its lock on the records.
func TestAMenderRestsWhileItCountsABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000)
	var jobs []job.Job
	for _, j := range numbered(1, 2100) {
		jobs = append(jobs, member(j.ID, "x"))
	}
	b.accept("park", jobs...)
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", 1)
	c := &restful{UniversalClient: b.c}
	b.on(c)
	b.mend(b.g.Mender())
	// All ids at once to find what stands there twice, and again for the records, of which there are five pages.
	if c.reads != 2 || c.rests < 5 {
		t.Errorf("it read %d times, and rested %d times", c.reads, c.rests)
	}
}

// If a set loses an entry, so does the part of it that belongs to one batch.
func TestALostRecordLeavesNoEntryInItsBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 1).withMoney()
	b.accept("park", member("a", "x"), member("b", "x"), member("c", "x"), member("d", "y"))
	b.c.Del(b.ctx, b.keys.Job("b"))
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", 1)
	if did := b.mend(b.g.Mender()); did.Removed != 1 {
		t.Errorf("it did %+v", did)
	}
	for batch, ids := range map[string]string{"x": "c", "y": "d"} {
		if got := strings.Join(b.c.ZRange(b.ctx, b.keys.ParkedBatch("rejected", batch), 0, -1).Val(), " "); got != ids {
			t.Errorf("of batch %s there are %s", batch, got)
		}
	}
	money, err := b.books.ParkedMoney(b.ctx)
	b.must(err)
	if got := money[job.Rejected].Amount["EUR"].Int64(); got != 200 {
		t.Errorf("the money parked is %d, of two jobs", got)
	}
}
