package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// One script takes a chunk in: jobs of two batches and of none, parked for two reasons, with small, large and unreadable amounts, each
// several times. What it moves together is what their records say, job for job.
func TestAChunkThatIsTakenInMovesAllOfItsMoney(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(c *ledger.Config) { c.Money = eurosOrMore })
	var ids []string
	for i := range 6 * len(payloads) {
		id := fmt.Sprintf("j%d", i)
		ids = append(ids, id)
		b.accept("park", job.Job{ID: id, Cost: 2, Batch: []string{"", "a:b", "c"}[i/len(payloads)%3], Payload: payloads[i%len(payloads)]})
	}
	b.must(b.books.CancelBatch(b.ctx, "c", "me", "mistake", 0, noted))
	b.clean("parked")
	b.cfg.Bucket = tokens{bucket.TokenBucket{Limits: []bucket.Limit{{N: 100, Window: time.Second}}, Burst: 1_000_000}}
	b.on(b.c)
	for _, chunk := range [][]string{ids[:30], ids[30:]} {
		answers, _, err := b.books.Readmit(b.ctx, b.back(chunk...))
		b.must(err)
		for i, a := range answers {
			want(t, "answer for "+chunk[i], a, job.Enqueued)
		}
		b.clean("taken in")
	}
	left, err := b.books.ParkedMoney(b.ctx)
	b.must(err)
	want(t, "money still parked", text(left), "[]")
}
