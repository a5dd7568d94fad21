package ledger_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// rejected returns up to n jobs that are parked as rejected, to be readmitted.
func (b *bench) rejected(n int) ([]job.Return, error) {
	found, err := b.books.OldestRejected(b.ctx, 0, n)
	all := make([]job.Return, len(found))
	for i, r := range found {
		all[i] = r.Return
	}
	return all, err
}

// returnsOf converts jobs for Readmit.
func returnsOf(jobs []ledger.Rejected) (all []job.Return) {
	for _, r := range jobs {
		all = append(all, r.Return)
	}
	return all
}

// bench is one gateway's books on a real Redis, with a clock that the test moves.
type bench struct {
	t     *testing.T
	ctx   context.Context
	c     redis.UniversalClient
	books *ledger.Books
	keys  redisdb.Keys
	name  string
	now   int64
	cfg   ledger.Config
}

// on takes the bench to another Redis.
func (b *bench) on(c redis.UniversalClient) { b.c, b.books = c, ledger.New(c, b.cfg) }

func keysOf(gateway string) redisdb.Keys { return redisdb.NewKeys(gateway) }

type tokens struct{ bucket.TokenBucket }

func (t tokens) Lua() string { return (bucket.TokenBucket{}).Lua() }

func setup(t *testing.T, burst int64, change func(*ledger.Config)) *bench {
	t.Helper()
	b := &bench{t: t, ctx: context.Background(), c: testkit.Client(t), name: testkit.Gateway(t), now: 1_700_000_000_000_000}
	b.keys = redisdb.NewKeys(b.name)
	cfg := ledger.Config{
		Gateway: b.name, InOrder: true, Keys: true, KeyLifetime: 24 * time.Hour, Attempts: 3, Dedupe: time.Hour,
		Bucket:    tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: burst}},
		Encode:    queue.NewEncoder(b.name).Encode,
		NowMicros: func() int64 { return b.now },
	}
	if change != nil {
		change(&cfg)
	}
	b.cfg = cfg
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
	if err != nil {
		b.t.Fatal(err)
	}
	return answers
}

func numbered(from, to int) []job.Job {
	var jobs []job.Job
	for i := from; i <= to; i++ {
		jobs = append(jobs, job.Job{ID: fmt.Sprintf("j%d", i), Payload: []byte(`{"n":1}`)})
	}
	return jobs
}

// pull does what dequeue.lua does when it is the turn of a job that was called before. It returns the job and generation pulled.
func (b *bench) pull() (string, int64) {
	b.t.Helper()
	var task string
	var err error = redis.Nil
	for _, line := range []string{b.keys.Retries(), b.keys.Replays(), b.keys.Due(), b.keys.Pending()} {
		if errors.Is(err, redis.Nil) {
			task, err = b.c.RPopLPush(b.ctx, line, b.keys.Active()).Result()
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.c.HSet(b.ctx, b.keys.Task(task), "state", "active")
	b.c.ZAdd(b.ctx, b.keys.Lease(), redis.Z{Score: float64(b.now/1e6 + 30), Member: task})
	id, generation, ok := job.ParseTaskID(task)
	if !ok {
		b.t.Fatalf("task %q is not ours", task)
	}
	return id, generation
}

// waiting returns the tasks in the queue: in all its lines.
func (b *bench) waiting() (tasks []string) {
	for _, line := range b.keys.Lines() {
		tasks = append(tasks, b.c.LRange(b.ctx, line, 0, -1).Val()...)
	}
	return tasks
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
	if err != nil {
		b.t.Fatal(err)
	}
	return a, o
}

func (b *bench) record(id string) job.Record {
	b.t.Helper()
	r, ok, err := b.books.Find(b.ctx, id)
	if err != nil || !ok {
		b.t.Fatalf("record of %s: found %v, error %v", id, ok, err)
	}
	return r
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

func TestAcceptGrantsWhatThereIsRoomForAndParksTheRestInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, nil)
	got := b.accept("park", numbered(1, 5)...)
	if w := []job.Admittance{job.Enqueued, job.Enqueued, job.Enqueued, job.ParkedNow, job.ParkedNow}; !slices.Equal(got, w) {
		t.Fatalf("got %v, want %v", got, w)
	}
	if got := b.accept("park", numbered(1, 5)...); !slices.Equal(got, slices.Repeat([]job.Admittance{job.Duplicate}, 5)) {
		t.Errorf("offered again: got %v, want duplicates", got)
	}
	other := job.Job{ID: "j1", Payload: []byte(`{"n":2}`)}
	if got := b.accept("park", other); got[0] != job.Conflict {
		t.Errorf("same id, other payload: got %v", got)
	}
	id, _ := b.pull()
	want(t, "pulled first", id, "j1")
	r := b.record("j5")
	want(t, "state", r.State, job.Parked)
	want(t, "reason", r.Reason, job.Rejected)
	if !b.record("j4").ParkedAt.Before(r.ParkedAt) {
		t.Error("j4 was not parked before j5")
	}
}

func TestNewcomersDoNotOvertakeParkedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, nil)
	b.accept("park", numbered(1, 2)...)
	b.now += 1e6 // room for one again
	want(t, "with a parked job waiting", b.accept("park", numbered(3, 3)...)[0], job.ParkedNow)
	want(t, "told to wait", b.accept("wait", numbered(4, 4)...)[0], job.Full)
	jobs, err := b.rejected(10)
	b.must(err)
	answers, retry, err := b.books.Readmit(b.ctx, jobs)
	b.must(err)
	if w := []job.Admittance{job.Enqueued, job.Full}; !slices.Equal(answers, w) {
		t.Errorf("readmitted: got %v, want %v", answers, w)
	}
	want(t, "time until room", retry, 10*time.Millisecond)
	again, _, err := b.books.Readmit(b.ctx, jobs)
	b.must(err)
	want(t, "readmitted twice", again[0], job.Gone)
	want(t, "state", b.record("j2").State, job.Queued)
}

func TestWithReplayManualNewcomersPass(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(c *ledger.Config) { c.InOrder = false })
	b.accept("park", numbered(1, 2)...)
	b.now += 1e6
	want(t, "newcomer", b.accept("park", numbered(3, 3)...)[0], job.Enqueued)
}

func TestFailLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, nil)
	got := b.accept("fail", numbered(1, 3)...)
	if w := []job.Admittance{job.Enqueued, job.Full, job.Full}; !slices.Equal(got, w) {
		t.Fatalf("got %v, want %v", got, w)
	}
	if _, ok, _ := b.books.Find(b.ctx, "j2"); ok {
		t.Error("a job that was told to stay out has a record")
	}
}

func TestScheduledJobsGoToTheHeadWhenDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 100, nil)
	at := time.UnixMicro(b.now + 5e6)
	b.accept("park", job.Job{ID: "later", At: at.Add(time.Second)}, job.Job{ID: "soon", At: at}, job.Job{ID: "now"})
	want(t, "state", b.record("soon").State, job.Scheduled)
	moved, next, err := b.books.MoveDue(b.ctx)
	b.must(err)
	want(t, "moved early", moved, 0)
	want(t, "next due", next, 5*time.Second)
	b.now += 7e6
	moved, _, err = b.books.MoveDue(b.ctx)
	b.must(err)
	want(t, "moved", moved, 2)
	var order []string
	for range 3 {
		id, _ := b.pull()
		order = append(order, id)
	}
	if w := []string{"soon", "later", "now"}; !slices.Equal(order, w) {
		t.Errorf("order %v, want %v", order, w)
	}
}

func TestAnAttemptIsOpenedOnceAndDoneOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j", Payload: []byte(`{"a":1}`), Batch: "nov"})
	id, g := b.pull()
	a, o := b.open(id, g, "w1")
	want(t, "opening", o, job.OpenGo)
	want(t, "payload", string(a.Job.Payload), `{"a":1}`)
	want(t, "key", a.Key(), "j")
	_, o = b.open(id, g, "w2")
	want(t, "delivered twice", o, job.OpenBusy)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	r := b.record(id)
	want(t, "state", r.State, job.Done)
	want(t, "status", r.Status, 200)
	want(t, "calls in the history", len(r.History), 1)
	s, err := b.books.Look(b.ctx)
	b.must(err)
	want(t, "done", s.Done, int64(1))
	_, o = b.open(id, g, "w3")
	want(t, "delivered after it was done", o, job.OpenStale)
	want(t, "the same job again", b.accept("park", job.Job{ID: "j", Payload: []byte(`{"a":1}`)})[0], job.Duplicate)
	if ttl := b.c.PTTL(b.ctx, b.keys.Job("j")).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("a finished job is known for %v, want the dedupe window", ttl)
	}
}

func TestACutOffCallGoesOnWithItsLivingKeyOnly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		keys  bool
		later time.Duration
		state job.State
		why   job.Reason
	}{
		{"living key", true, time.Minute, job.Queued, ""},
		{"forgotten key", true, 25 * time.Hour, job.Parked, job.UnknownOutcome},
		{"no key", false, time.Minute, job.Parked, job.UnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10, func(c *ledger.Config) { c.Keys = tc.keys })
			b.accept("park", job.Job{ID: "j"})
			id, g := b.pull()
			b.open(id, g, "dead")
			s, err := b.books.Sweep(b.ctx)
			b.must(err)
			want(t, "reclaimed before the deadline", s.Reclaimed, 0)
			b.now += tc.later.Microseconds()
			s, err = b.books.Sweep(b.ctx)
			b.must(err)
			want(t, "reclaimed", s.Reclaimed, 1)
			r := b.record(id)
			want(t, "state", r.State, tc.state)
			want(t, "reason", r.Reason, tc.why)
			want(t, "attempts", r.Spent, 1)
		})
	}
}

func TestACrashAtTheLastAttemptParksTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "poison"})
	for range 3 {
		id, g := b.pull()
		b.open(id, g, "dies")
		b.now += 60e6
		_, err := b.books.Sweep(b.ctx)
		b.must(err)
	}
	want(t, "reason", b.record("poison").Reason, job.Exhausted)
}

func TestASuccessThatComesLateIsNotForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	a, _ := b.open(id, g, "stalled")
	b.now += 60e6
	_, err := b.books.Sweep(b.ctx)
	b.must(err)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	want(t, "state", b.record(id).State, job.Done)
	id, g = b.pull()
	_, o := b.open(id, g, "w2")
	want(t, "the task that the sweep queued", o, job.OpenStale)
}

func TestBackGoesToTheHeadAndRetriesGoNext(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 3)...)
	id1, g1 := b.pull()
	a1, _ := b.open(id1, g1, "w1")
	b.must(b.books.Back(b.ctx, a1, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now), Unsure: true}, time.Second))
	b.finish(id1, g1)
	want(t, "state", b.record(id1).State, job.Retrying)
	id2, g2 := b.pull()
	a2, _ := b.open(id2, g2, "w1")
	b.must(b.books.Back(b.ctx, a2, job.Ending{}, 0))
	b.finish(id2, g2)
	b.now += 1e6
	_, _, err := b.books.MoveDue(b.ctx)
	b.must(err)
	var order []string
	for range 3 {
		id, _ := b.pull()
		order = append(order, id)
	}
	if w := []string{"j1", "j2", "j3"}; !slices.Equal(order, w) {
		t.Errorf("order %v, want %v", order, w)
	}
	want(t, "spent by the failed call", b.record("j1").Spent, 1)
	want(t, "spent by the one given back", b.record("j2").Spent, 0)
	if !b.record("j2").FirstCall.IsZero() {
		t.Error("a job given back unsent counts as called")
	}
}

func TestAnExpiredJobIsNotOpened(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j", Expires: time.UnixMicro(b.now + 1e6)})
	b.now += 2e6
	id, g := b.pull()
	_, o := b.open(id, g, "w")
	want(t, "opening", o, job.OpenExpired)
}

func TestASecondCallThatNoKeyCoversIsNotOpened(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	a, _ := b.open(id, g, "w")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true, At: time.UnixMicro(b.now)}, time.Second))
	b.now += (25 * time.Hour).Microseconds()
	_, _, err := b.books.MoveDue(b.ctx)
	b.must(err)
	id, g = b.pull()
	_, o := b.open(id, g, "w")
	want(t, "opening", o, job.OpenUnknown)
}

func TestATaskPulledByAWorkerThatDiedComesBack(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 2)...)
	b.pull()
	s, err := b.books.Sweep(b.ctx)
	b.must(err)
	want(t, "requeued while the lease lives", s.Requeued, 0)
	task := job.TaskID("j1", 1)
	b.c.ZRem(b.ctx, b.keys.Lease(), task) // active without a lease: asynq would never look at it again
	b.c.Del(b.ctx, b.keys.Task(task))     // and its message is gone too
	s, err = b.books.Sweep(b.ctx)
	b.must(err)
	want(t, "requeued", s.Requeued, 1)
	id, g := b.pull()
	want(t, "pulled next", id, "j1")
	_, o := b.open(id, g, "w")
	want(t, "opening", o, job.OpenGo)
}

func TestTheSweepTakesTasksOutOfAsynqsRetrySet(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	task := job.TaskID(id, g)
	b.finish(id, g)
	b.c.HSet(b.ctx, b.keys.Task(task), "msg", "as asynq's recoverer leaves it", "state", "retry")
	b.c.ZAdd(b.ctx, b.keys.AsynqRetry(), redis.Z{Score: float64(b.now / 1e6), Member: task})
	s, err := b.books.Sweep(b.ctx)
	b.must(err)
	want(t, "requeued", s.Requeued, 1)
	want(t, "left in the retry set", b.c.ZCard(b.ctx, b.keys.AsynqRetry()).Val(), int64(0))
}

// Copies of books that register their gateway share what is registered.
func TestCopiesOfBooksRegisterTheirGateway(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(cfg *ledger.Config) { cfg.Registers = true })
	for i, books := range []*ledger.Books{b.books.On(b.c), b.books.For(func() string { return "" })} {
		id := fmt.Sprint("j", i)
		if _, _, err := testkit.Accept(b.ctx, books, job.Ticket{Sequence: id, Number: 1}, []job.Newcomer{{Job: job.Job{ID: id, Gateway: b.name}, Digest: "d"}}, "park"); err != nil {
			t.Fatal(err)
		}
	}
	if !b.c.SIsMember(b.ctx, redisdb.Gateways, b.name).Val() {
		t.Error("the gateway is not registered")
	}
}
