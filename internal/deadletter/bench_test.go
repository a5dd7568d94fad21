package deadletter_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// bench is one gateway's dead letters on a real Redis, with a clock that the test moves.
type bench struct {
	t     *testing.T
	ctx   context.Context
	c     redis.UniversalClient
	name  string
	burst int64
	keys  redisdb.Keys
	books *ledger.Books
	store *deadletter.Store
	now   atomic.Int64
}

type tokens struct{ bucket.TokenBucket }

func (tokens) Lua() string { return (bucket.TokenBucket{}).Lua() }

// setup makes a gateway of 100/s whose admission has room for burst jobs.
func setup(t *testing.T, burst int64) *bench {
	t.Helper()
	b := &bench{t: t, ctx: t.Context(), name: testkit.Gateway(t), burst: burst}
	b.now.Store(1_700_000_000_000_000)
	b.keys = redisdb.NewKeys(b.name)
	b.on(testkit.Client(t))
	return b
}

// on moves the bench to a Redis.
func (b *bench) on(c redis.UniversalClient) {
	b.c, b.store = c, deadletter.New(c, b.name)
	b.books, b.store.NowMicros = b.withBurst(b.burst), b.now.Load
}

func (b *bench) withBurst(burst int64) *ledger.Books {
	return ledger.New(b.c, ledger.Config{
		Gateway: b.name, Keys: true, KeyLifetime: 24 * time.Hour, Attempts: 3, Dedupe: time.Hour,
		Bucket: tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: burst}},
		Encode: queue.NewEncoder(b.name).Encode, NowMicros: b.now.Load,
	})
}

// Now and After implement a clock on which every wait is over at once.
func (b *bench) Now() time.Time { return time.UnixMicro(b.now.Load()) }

func (b *bench) After(d time.Duration) <-chan time.Time {
	b.now.Add(d.Microseconds())
	fired := make(chan time.Time, 1)
	fired <- b.Now()
	return fired
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

// accept offers jobs to admission, which parks those that it has no room for.
func (b *bench) accept(books *ledger.Books, jobs ...job.Job) []job.Admittance {
	b.t.Helper()
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d"}
	}
	answers, _, err := testkit.Accept(b.ctx, books, job.Ticket{Sequence: rand.Text(), Number: 1}, chunk, "park")
	b.must(err)
	return answers
}

// reject parks jobs as rejected: none of them fits.
func (b *bench) reject(jobs ...job.Job) {
	b.t.Helper()
	for i := range jobs {
		jobs[i].Cost = 2
	}
	for _, a := range b.accept(b.withBurst(1), jobs...) {
		want(b.t, "answer", a, job.ParkedNow)
	}
}

func numbered(from, to int) []job.Job {
	var jobs []job.Job
	for i := from; i <= to; i++ {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte(`{"n":1}`)})
	}
	return jobs
}

// park opens a job's attempt and parks it with an ending.
func (b *bench) park(j job.Job, reason job.Reason, e job.Ending) {
	b.t.Helper()
	b.now.Add(1000)
	b.accept(b.withBurst(1_000_000), j)
	b.call(j.ID, reason, e)
}

// call makes one call of the next job in the queue, which must be id, and parks it.
func (b *bench) call(id string, reason job.Reason, e job.Ending) job.Attempt {
	b.t.Helper()
	a := b.open(id)
	if e.Called {
		e.At = b.Now()
	}
	b.must(b.store.Park(b.ctx, a, e, reason))
	return a
}

// open pulls the next job of the queue, which must be id, and opens its attempt.
func (b *bench) open(id string) job.Attempt {
	b.t.Helper()
	b.now.Add(1000)
	pulled, generation, _ := job.ParseTaskID(testkit.Pop(b.t, b.c, b.keys.Lines()))
	want(b.t, "job in the queue", pulled, id)
	a, opening, err := b.books.Open(b.ctx, id, generation, "w1", time.Minute)
	b.must(err)
	want(b.t, "opening of "+id, opening, job.OpenGo)
	return a
}

func refused(text string) job.Ending {
	return job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, Error: text}
}

func timedOut() job.Ending {
	return job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, Error: "timed out", Unsure: true}
}

func (b *bench) record(id string) job.Record {
	b.t.Helper()
	r, ok, err := b.books.Find(b.ctx, id)
	if err != nil || !ok {
		b.t.Fatalf("record of %s: found %v, error %v", id, ok, err)
	}
	return r
}

func (b *bench) list(f deadletter.Filter) []job.Record {
	b.t.Helper()
	var found []job.Record
	for r, err := range b.store.List(b.ctx, f) {
		b.must(err)
		found = append(found, r)
	}
	return found
}

func ids(records []job.Record) string {
	text := ""
	for _, r := range records {
		text += r.Job.ID + " "
	}
	return text
}

// queued returns the ids in the queue, of each line the next one first. Jobs that were called before come first.
func (b *bench) queued() (found []string) {
	b.t.Helper()
	for _, line := range []string{b.keys.Replays(), b.keys.Retries(), b.keys.Due(), b.keys.Pending()} {
		tasks, err := b.c.LRange(b.ctx, line, 0, -1).Result()
		b.must(err)
		for _, task := range slices.Backward(tasks) {
			id, _, _ := job.ParseTaskID(task)
			found = append(found, id)
		}
	}
	return found
}

func (b *bench) rules() deadletter.Rules {
	return deadletter.Rules{Keys: true, KeyLifetime: 24 * time.Hour, Now: b.Now()}
}

func (b *bench) counter(name string) int64 {
	b.t.Helper()
	n, err := b.c.HGet(b.ctx, b.keys.Counters(), name).Int64()
	if err != nil && err != redis.Nil {
		b.t.Fatal(err)
	}
	return n
}
