package audit_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// bench is one gateway's books on a real Redis, with a clock that the test moves, and what audits them.
type bench struct {
	t     *testing.T
	ctx   context.Context
	c     redis.UniversalClient
	books *ledger.Books
	g     *audit.Gateway
	keys  redisdb.Keys
	name  string
	now   int64
	cfg   ledger.Config
}

// on takes the bench to another Redis.
func (b *bench) on(c redis.UniversalClient) {
	b.c, b.books = c, ledger.New(c, b.cfg)
	b.g = audit.New(c, b.name, b.books)
	b.g.NowMicros = b.cfg.NowMicros
}

func setup(t *testing.T, burst int64) *bench {
	t.Helper()
	b := &bench{t: t, ctx: context.Background(), name: testkit.Gateway(t), now: 1_700_000_000_000_000}
	b.keys = redisdb.NewKeys(b.name)
	b.cfg = ledger.Config{
		Gateway: b.name, InOrder: true, Keys: true, KeyLifetime: 24 * time.Hour, Attempts: 3, Dedupe: time.Hour,
		Bucket:    bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: burst},
		Encode:    queue.NewEncoder(b.name).Encode,
		NowMicros: func() int64 { return b.now },
	}
	b.on(testkit.Client(t))
	return b
}

// withMoney has the gateway's jobs carry an amount.
func (b *bench) withMoney() *bench {
	b.cfg.Money = func(payload []byte) string { return job.MoneyField(payload, "amount", "currency") }
	b.on(b.c)
	return b
}

func (b *bench) accept(mode string, jobs ...job.Job) []job.Admittance {
	b.t.Helper()
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d:" + string(j.Payload)}
	}
	answers, _, err := testkit.Accept(b.ctx, b.books, job.Ticket{Sequence: rand.Text(), Number: 1}, chunk, mode)
	b.must(err)
	return answers
}

func numbered(from, to int) []job.Job {
	var jobs []job.Job
	for i := from; i <= to; i++ {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte(`{"n":1}`)})
	}
	return jobs
}

// member is a job of a batch.
func member(id, batch string) job.Job {
	return job.Job{ID: id, Batch: batch, Payload: []byte(`{"amount":100,"currency":"EUR"}`)}
}

// pull does what dequeue.lua does with jobs that were never called.
func (b *bench) pull() (string, int64) {
	b.t.Helper()
	task, err := b.c.RPopLPush(b.ctx, b.keys.Due(), b.keys.Active()).Result()
	if err != nil {
		task, err = b.c.RPopLPush(b.ctx, b.keys.Pending(), b.keys.Active()).Result()
	}
	b.must(err)
	b.c.HSet(b.ctx, b.keys.Task(task), "state", "active")
	b.c.ZAdd(b.ctx, b.keys.Lease(), redis.Z{Score: float64(b.now/1e6 + 30), Member: task})
	id, generation, _ := job.ParseTaskID(task)
	return id, generation
}

// finish does what asynq's done does.
func (b *bench) finish(id string, generation int64) {
	task := job.TaskID(id, generation)
	b.c.LRem(b.ctx, b.keys.Active(), 0, task)
	b.c.ZRem(b.ctx, b.keys.Lease(), task)
	b.c.Del(b.ctx, b.keys.Task(task))
}

func (b *bench) open(id string, generation int64, owner string) (job.Attempt, job.Opening) {
	b.t.Helper()
	a, o, err := b.books.Open(b.ctx, id, generation, owner, 40*time.Second)
	b.must(err)
	return a, o
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// text is sums in words, without those that are zero.
func text[K comparable](all map[K]job.Totals) string {
	var lines []string
	for place, s := range all {
		line := fmt.Sprintf("%v: %d jobs, %d unread", place, s.Jobs, s.NoAmount)
		for _, c := range slices.Sorted(maps.Keys(s.Amount)) {
			if s.Amount[c].Sign() != 0 {
				line += fmt.Sprintf(", %s %s", c, s.Amount[c])
			}
		}
		if s.Jobs > 0 || s.NoAmount > 0 || line != fmt.Sprintf("%v: 0 jobs, 0 unread", place) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}
