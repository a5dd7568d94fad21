package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// the same task comes again after its attempt was cut off (asynq's Requeue at the end of a shutdown): exhausted or not
// sent, the record must remember that the first call may have charged.
func TestATakeoverRemembersThatTheCallMayHaveCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) { c.Attempts = 1; c.KeyLifetime = 24 * time.Hour })
	store := deadletter.New(b.c, b.name)
	store.NowMicros = func() int64 { return b.now }
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	b.open(id, g, "A") // A dies with the call written
	b.now += (41 * time.Second).Microseconds()
	a, o := b.open(id, g, "B")
	want(t, "opening", o, job.OpenExhausted)
	b.must(store.Park(b.ctx, a, job.Ending{Error: "as worker.parkUnsent does"}, job.Exhausted))
	r := b.record(id)
	_, why := deadletter.Rules{Keys: true, KeyLifetime: 24 * time.Hour, Now: time.UnixMicro(b.now).Add(30 * 24 * time.Hour)}.Key(r)
	if why == "" {
		t.Errorf("a cut-off call is replayed a month later with a key that the gateway has forgotten")
	}
}

func TestATakeoverThatWasNotSentRemembersTheCallBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) { c.Attempts = 6; c.KeyLifetime = time.Hour })
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	b.open(id, g, "A") // dies with the call written
	b.now += (41 * time.Second).Microseconds()
	a, o := b.open(id, g, "B")
	want(t, "opening", o, job.OpenGo)
	b.must(b.books.Back(b.ctx, a, job.Ending{Verdict: job.VerdictRetry}, 2*time.Second)) // connection refused
	b.now += (2 * time.Hour).Microseconds()                                              // the outage outlasts the key
	if _, _, err := b.books.MoveDue(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.finish(id, g)
	id, g = b.pull()
	_, o = b.open(id, g, "C")
	want(t, "opening two hours later, key_lifetime 1h", o, job.OpenUnknown)
}

// A succeeds but can't write it down in time; B has the job in flight; B's answer is a no.
func TestASuccessIsKeptWhileAnotherAttemptIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	store := deadletter.New(b.c, b.name)
	store.NowMicros = func() int64 { return b.now }
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	a, _ := b.open(id, g, "A")
	b.now += (41 * time.Second).Microseconds()
	if _, err := b.books.Sweep(b.ctx); err != nil {
		t.Fatal(err)
	}
	id, g = b.pull()
	second, o := b.open(id, g, "B")
	want(t, "opening", o, job.OpenGo)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone})) // A: it was paid
	b.must(store.Park(b.ctx, second, job.Ending{Called: true, Status: 422, Verdict: job.VerdictRefused, Error: "HTTP 422: duplicate payment"}, job.Refused))
	r := b.record(id)
	change, _ := deadletter.Rules{Keys: true, KeyLifetime: 24 * time.Hour, Now: time.UnixMicro(b.now)}.Key(r)
	if r.State != job.Done && change == job.NextKey {
		t.Errorf("the gateway said 200 to this job; it is %s as %s and a replay sends it with a new key", r.State, r.Reason)
	}
}

// a retry whose first call may have charged meets its expiry
func TestAnExpiredJobThatMayHaveBeenChargedIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "x1", Payload: []byte(`{}`), Expires: time.UnixMicro(b.now).Add(time.Minute)})
	id, g := b.pull()
	a, _ := b.open(id, g, "A")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry}, 2*time.Second))
	b.now += (2 * time.Minute).Microseconds()
	if _, _, err := b.books.MoveDue(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.finish(id, g)
	id, g = b.pull()
	_, o := b.open(id, g, "B")
	want(t, "opening of a job that may have been charged", o, job.OpenUnknown)
}

// Open's answer is lost, it runs again for the same owner, and then nothing is sent.
func TestOpenedTwiceAndNotSentIsNoCall(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	b.open(id, g, "A")
	b.now += 3_000_000
	a, _ := b.open(id, g, "A")
	want(t, "key sent before", a.KeySent, false)
	b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
	want(t, "first call", b.record(id).FirstCall.IsZero(), true)
}

// ID~2 is job ID's second idempotency key: a job of that id would be taken for it by the gateway and never be paid.
func TestTwoJobsNeverShareAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 100, nil)
	store := deadletter.New(b.c, b.name)
	store.NowMicros = func() int64 { return b.now }
	refuse := func(id string) {
		t.Helper()
		b.accept("park", job.Job{ID: id})
		for {
			pulled, g := b.pull()
			a, _ := b.open(pulled, g, "w")
			b.finish(pulled, g)
			if pulled != id {
				continue
			}
			b.must(store.Park(b.ctx, a, job.Ending{Called: true, Status: 402, Verdict: job.VerdictRefused}, job.Refused))
			_, _, err := b.books.Readmit(b.ctx, []job.Return{{ID: id, Generation: g, Reason: job.Refused, Key: job.NextKey}})
			b.must(err)
			return
		}
	}
	refuse("inv-7")
	want(t, "second key", b.record("inv-7").KeyGeneration, 2)
	want(t, "a job with that key as its id", b.accept("park", job.Job{ID: "inv-7~2"})[0], job.KeyTaken)
	want(t, "one with a key to come", b.accept("park", job.Job{ID: "inv-7~3"})[0], job.Enqueued)
	b.accept("park", job.Job{ID: "inv-8~2"})
	refuse("inv-8")
	want(t, "key past the other job's id", b.record("inv-8").KeyGeneration, 3)
}

// first call timed out after the write; then the job can't be made into a request (the configuration changed): refused
func TestRefusedBeforeItWasWrittenIsNoAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	store := deadletter.New(b.c, b.name)
	store.NowMicros = func() int64 { return b.now }
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	a, _ := b.open(id, g, "A")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry}, 0))
	b.finish(id, g)
	id, g = b.pull()
	a, _ = b.open(id, g, "B")
	b.must(store.Park(b.ctx, a, job.Ending{Spent: true, Verdict: job.VerdictRefused, Error: "not a request"}, job.Refused))
	r := b.record(id)
	change, _ := deadletter.Rules{Keys: true, KeyLifetime: 24 * time.Hour, Now: time.UnixMicro(b.now)}.Key(r)
	if r.Unsure && change == job.NextKey {
		t.Errorf("unsure %v, never refused by the gateway, and a replay sends key 2", r.Unsure)
	}
}

func TestDueJobsBeyondOneChunkKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000, nil)
	at := time.UnixMicro(b.now).Add(time.Minute)
	for i := 1; i <= 250; i++ {
		b.accept("park", job.Job{ID: fmt.Sprintf("s%03d", i), Payload: []byte(`{}`), At: at.Add(time.Duration(i) * time.Microsecond)})
	}
	b.now += (2 * time.Minute).Microseconds()
	for {
		n, _, err := b.books.MoveDue(b.ctx)
		b.must(err)
		if n == 0 {
			break
		}
	}
	id, _ := b.pull()
	want(t, "first job pulled", id, "s001")
}

// the record is gone (or says something else), its id still stands in parked:rejected
func TestAGhostAmongTheRejectedDoesNotBlockTheLine(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.c.ZAdd(b.ctx, b.keys.Parked("rejected"), redis.Z{Score: 1, Member: "ghost"})
	jobs, err := b.rejected(200)
	b.must(err)
	_, _, err = b.books.Readmit(b.ctx, jobs)
	b.must(err)
	want(t, "still parked", b.c.ZCard(b.ctx, b.keys.Parked("rejected")).Val(), 0)
	want(t, "a newcomer is", b.accept("park", numbered(1, 1)...)[0], job.Enqueued)
}

// the id comes again after dedupe; then an outcome of its earlier life arrives
func TestALateSuccessOfAnEarlierLifeIsNotThisOnes(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	id, g := b.pull()
	a, _ := b.open(id, g, "A")
	b.finish(id, g)
	b.c.Del(b.ctx, b.keys.Job("j1")) // done by another attempt, dedupe over
	b.c.ZRem(b.ctx, b.keys.Open(), "j1")
	b.now += 3_600_000_000
	b.accept("park", numbered(1, 1)...)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone}))
	want(t, "state of the new life, never called", b.record("j1").State, job.Queued)
}

// a worker dies between finding a job expired and parking it: nothing was sent, and nobody may take the outcome for unknown.
func TestAJobFoundExpiredIsNotTakenForCalled(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*bench, string, int64) (string, int64){
		"swept": func(b *bench, id string, g int64) (string, int64) {
			_, err := b.books.Sweep(b.ctx)
			b.must(err)
			b.finish(id, g)
			return b.pull()
		},
		"delivered again": func(_ *bench, id string, g int64) (string, int64) { return id, g },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10, func(c *ledger.Config) { c.Keys = false })
			j := numbered(1, 1)
			j[0].Expires = time.UnixMicro(b.now).Add(-time.Second)
			b.accept("park", j...)
			id, g := b.pull()
			_, o := b.open(id, g, "A")
			want(t, "opening", o, job.OpenExpired)
			b.now += (41 * time.Second).Microseconds()
			id, g = next(b, id, g)
			_, o = b.open(id, g, "B")
			want(t, "opening after the crash", o, job.OpenExpired)
			r := b.record(id)
			want(t, "attempts spent", r.Spent, 0)
			want(t, "lines of history", len(r.History), 0)
		})
	}
}

// The books took such a job's money out of a place as -0, which Redis does not take for a number: the script failed, and what became of
// the call could not be written down.
func TestAJobOfNoMoneyOrOfARoundThousandMillionIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) { c.Money = eurosOrMore })
	for i, amount := range []string{"0", "1000000000", "-2000000000"} {
		id := fmt.Sprint("a", i)
		b.accept("park", job.Job{ID: id, Batch: "x", Payload: []byte(`{"amount":` + amount + `,"currency":"EUR"}`)})
		_, generation := b.pull()
		a, opening := b.open(id, generation, "w1")
		want(t, "opening of "+amount, opening, job.OpenGo)
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone}))
	}
	batch, _, err := b.books.Batch(b.ctx, "x")
	b.must(err)
	done := batch.Places[record.Place{State: job.Done}]
	want(t, "jobs done", done.Jobs, 3)
	want(t, "their money", done.Amount["EUR"].String(), "-1000000000")
}
