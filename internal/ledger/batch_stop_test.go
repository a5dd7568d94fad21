package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// back makes jobs parked as cancelled ready to be readmitted.
func (b *bench) back(ids ...string) (jobs []job.Return) {
	for _, id := range ids {
		r := b.record(id)
		jobs = append(jobs, job.Return{ID: id, Generation: r.Generation, Reason: r.Reason, Key: job.KeepKey})
	}
	return jobs
}

// meets pulls the next job, which must find its batch stopped.
func (b *bench) meets(id, stopped string) job.Attempt {
	b.t.Helper()
	pulled, generation := b.pull()
	a, opening := b.open(pulled, generation, "w")
	want := job.OpenCancelled
	if strings.HasPrefix(stopped, "its batch is paused") {
		want = job.OpenPaused
	}
	if pulled != id || opening != want || a.LastError != stopped {
		b.t.Fatalf("%s opened: %s, %q", pulled, opening, a.LastError)
	}
	b.finish(pulled, generation)
	return a
}

// A wrong file is cancelled while enqueue is still reading it, and while one of its calls is in flight whose worker dies.
func TestWhatComesAfterACancelIsCancelledToo(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, nil)
	b.accept("park", member("flying", "bad"), member("a", "bad"), member("x", "good"))
	id, generation := b.pull()
	flying, _ := b.open(id, generation, "o")
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "wrong file", 0, noted))
	for _, mode := range []string{"park", "wait", "fail"} {
		if got := b.accept(mode, member("new-"+mode, "bad"), member("other-"+mode, "good")); !slices.Equal(got, []job.Admittance{job.ParkedNow, job.Enqueued}) {
			t.Errorf("newcomers, %s: %v", mode, got)
		}
	}
	b.must(b.books.Back(b.ctx, flying, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, 0))
	a := b.meets("flying", "its batch was cancelled: wrong file")
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Cancelled))
	if got, want := b.parkedAs(job.Cancelled), []string{"a", "new-park", "new-wait", "new-fail", "flying"}; !slices.Equal(got, want) {
		t.Errorf("cancelled are %v, want %v", got, want)
	}
	b.clean("cancelled")
	batch, _, err := b.books.Batch(b.ctx, "bad")
	b.must(err)
	if batch.Cancelled.IsZero() || !batch.Paused.IsZero() || batch.Who != "me" || batch.Why != "wrong file" {
		t.Errorf("the books say %+v", batch)
	}

	b.must(b.books.ResumeBatch(b.ctx, "bad", noted))
	if got := b.accept("park", member("right", "bad")); got[0] != job.Enqueued || len(b.parkedAs(job.Cancelled)) != 5 {
		t.Errorf("resumed, a newcomer is %v, and cancelled are %v", got, b.parkedAs(job.Cancelled))
	}
	b.clean("resumed")
}

// A job of a cancelled batch that a person readmits is called, even after a back-off. Jobs that go in by themselves are not, and neither is any job after another cancel.
func TestAReplayOutOfACancelledBatchIsCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, nil)
	b.accept("park", member("a", "bad"), member("b", "bad"))
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "wrong file", 0, noted))
	_, _, err := b.books.Readmit(b.ctx, b.back("a", "b"))
	b.must(err)
	id, generation := b.pull()
	a, opening := b.open(id, generation, "o")
	if opening != job.OpenGo {
		t.Fatalf("replayed, %s opened: %s", id, opening)
	}
	failed := job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}
	b.must(b.books.Back(b.ctx, a, failed, 0))
	b.finish(id, generation)
	id, generation = b.pull()
	if a, opening = b.open(id, generation, "o"); opening != job.OpenGo {
		t.Fatalf("after a back-off, %s opened: %s", id, opening)
	}
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "no, it is wrong", 0, noted))
	b.must(b.books.Back(b.ctx, a, failed, 0))
	b.finish(id, generation)
	a = b.meets("a", "its batch was cancelled: no, it is wrong")
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Exhausted))
	_, _, err = b.books.For(deadletter.ByItself).Readmit(b.ctx, b.back("a"))
	b.must(err)
	b.meets("a", "its batch was cancelled: no, it is wrong")
	if got := b.record("b"); got.Reason != job.Cancelled || got.Error != "its batch was cancelled: no, it is wrong" {
		t.Errorf("b is %s %s: %s", got.State, got.Reason, got.Error)
	}
	b.clean("cancelled twice")
}

// A worker finds the batch paused, and parks the job when the batch is resumed already: the job would never go in again.
func TestAJobParkedJustAfterAResumeGoesIn(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, func(c *ledger.Config) { c.Money = eurosOrMore })
	b.accept("park", member("a", "p"))
	id, generation := b.pull()
	a, _ := b.open(id, generation, "o")
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "bank closed", noted))
	b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
	b.finish(id, generation)
	a = b.meets("a", "its batch is paused: bank closed")
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Paused))
	if got := b.parkedAs(job.Rejected); !slices.Equal(got, []string{"a"}) {
		t.Errorf("waiting for room are %v; a is %+v", got, b.record("a"))
	}
	b.clean("parked late")
	money, err := b.books.ParkedMoney(b.ctx)
	b.must(err)
	if money[job.Rejected].Amount["EUR"].Int64() != 100 {
		t.Errorf("the money parked is %s", text(money))
	}
}

// between runs something before the nth run of shelve.lua.
type between struct {
	redis.UniversalClient
	left int
	do   func()
}

func (c *between) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(keys) == 11 && len(args) == 9 {
		if c.left--; c.left == 0 {
			c.do()
		}
	}
	return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Two people act on a batch at once. The last act counts for all of its jobs, and the other person is told.
func TestTheLastActUponABatchCounts(t *testing.T) {
	t.Parallel()
	pause := func(books *ledger.Books, b *bench) error { return books.PauseBatch(b.ctx, "p", "me", "w", noted) }
	resume := func(books *ledger.Books, b *bench) error { return books.ResumeBatch(b.ctx, "p", noted) }
	cancel := func(books *ledger.Books, b *bench) error {
		return books.CancelBatch(b.ctx, "p", "me", "w", 0, noted)
	}
	for name, tc := range map[string]struct {
		before, first, then func(*ledger.Books, *bench) error
		paused              int // parked as paused, at the end
	}{
		"a resume in a pause":  {nil, pause, resume, 0},
		"a pause in a resume":  {pause, resume, pause, 450},
		"a cancel in a pause":  {nil, pause, cancel, 0},
		"a pause in a cancel":  {nil, cancel, pause, 250},
		"a cancel in a resume": {pause, resume, cancel, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1000, nil)
			var jobs []job.Job
			for _, j := range numbered(1, 450) {
				jobs = append(jobs, member(j.ID, "p"))
			}
			b.accept("park", jobs...)
			if tc.before != nil {
				b.must(tc.before(b.books, b))
			}
			var then error
			c := &between{UniversalClient: b.c, left: 2}
			c.do = func() { c.left = -1; then = tc.then(ledger.New(b.c, b.cfg), b) }
			first := tc.first(ledger.New(c, b.cfg), b)
			if then != nil || !errors.Is(first, ledger.ErrOvertaken) {
				t.Errorf("the first one ends with %v, the second with %v", first, then)
			}
			if paused := len(b.parkedAs(job.Paused)); paused != tc.paused {
				t.Errorf("%d jobs are parked as paused, not %d", paused, tc.paused)
			}
			b.clean("at the end")
		})
	}
}

// The embedded Redis is another program. Everything that is done to a batch works there, too.
func TestABatchInTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	b := setup(t, 6, func(c *ledger.Config) { c.Money = eurosOrMore })
	db, err := redisdb.Open(b.ctx, redisdb.Embedded, redisdb.Options{})
	b.must(err)
	t.Cleanup(func() { _ = db.Close() })
	b.on(db.Client)
	odd := "a:b~{2}"
	b.accept("park", member("{1}~2", odd), member("b:1", odd), member("x", "good"), member("c", odd))
	id, generation := b.pull()
	flying, _ := b.open(id, generation, "o")
	b.must(b.books.PauseBatch(b.ctx, odd, "me", "bank closed", noted))
	b.accept("fail", member("new", odd))
	b.must(b.books.Back(b.ctx, flying, job.Ending{}, 0))
	b.finish(id, generation)
	a := b.meets("{1}~2", "its batch is paused: bank closed")
	b.must(b.books.ResumeBatch(b.ctx, odd, noted))
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Paused))
	if got, want := b.parkedAs(job.Rejected), []string{"b:1", "c", "new", "{1}~2"}; !slices.Equal(got, want) {
		t.Errorf("waiting for room are %v, want %v", got, want)
	}
	b.clean("resumed")
	b.must(b.books.CancelBatch(b.ctx, odd, "me", "wrong file", 0, noted))
	if got := len(b.parkedAs(job.Cancelled)); got != 4 {
		t.Errorf("cancelled are %d", got)
	}
	_, _, err = b.books.Readmit(b.ctx, b.back("b:1"))
	b.must(err)
	b.pull() // x
	id, generation = b.pull()
	if _, opening := b.open(id, generation, "o"); id != "b:1" || opening != job.OpenGo {
		t.Errorf("%s opened: %s", id, opening)
	}
	b.c.HSet(b.ctx, b.keys.Money(), "m:parked:cancelled:EUR", 5)
	b.c.HSet(b.ctx, b.keys.Batch(odd), "n:queued", 5)
	b.audit(true)
	if money, err := b.books.ParkedMoney(b.ctx); err != nil || money[job.Cancelled].Amount["EUR"].Int64() != 300 {
		t.Errorf("the money parked is %s, %v", text(money), err)
	}
}

// A process is killed after a step that it had not noted yet. The trail has the right count all the same.
func TestAnActUponABatchThatIsKilledHasTheRightCount(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000, nil)
	var jobs []job.Job
	for _, j := range numbered(1, 250) {
		jobs = append(jobs, member(j.ID, "p"))
	}
	b.accept("park", jobs...)
	killed := errors.New("killed")
	store := deadletter.New(b.c, b.name)
	entry := store.Entry(deadletter.Act{Who: "me", What: "batch cancel"})
	b.must(entry.Begin(b.ctx))
	if err := b.books.For(entry.Place).CancelBatch(b.ctx, "p", "me", "w", 0, func(ledger.Shelved) error { return killed }); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	for a, err := range store.Acts(b.ctx) {
		b.must(err)
		if a.Jobs != 200 {
			t.Errorf("the trail says %d jobs, and 200 are cancelled", a.Jobs)
		}
	}
}

func TestABatchThatNobodyKnowsIsNotStopped(t *testing.T) {
	t.Parallel()
	b := setup(t, 5, nil)
	for what, err := range map[string]error{
		"cancel": b.books.CancelBatch(b.ctx, "nobody's", "me", "mistake", 0, noted),
		"pause":  b.books.PauseBatch(b.ctx, "nobody's", "me", "wait", noted),
		"resume": b.books.ResumeBatch(b.ctx, "nobody's", noted),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := b.c.Exists(b.ctx, b.keys.Batch("nobody's")).Val(); n != 0 {
		t.Error("a batch came about")
	}
}
