package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/redisdb"
)

// mend lets a mender look until it has gone through the records, and returns what it did.
func (b *bench) mend(m *ledger.Mender) ledger.Mended {
	b.t.Helper()
	for i := 1; ; i++ {
		did, next, err := m.Look(b.ctx)
		b.must(err)
		if next != 2*time.Second {
			if did != (ledger.Mended{}) {
				want(b.t, "looks before it went through the records", i, 3)
			}
			return did
		}
	}
}

// clean audits the books and wants no fault.
func (b *bench) clean(when string) ledger.Audit {
	b.t.Helper()
	a, err := b.books.Audit(b.ctx, ledger.AuditParams{Most: 100})
	b.must(err)
	for _, f := range a.Faults.List {
		b.t.Errorf("%s: job %q: %s", when, f.ID, f.Describe())
	}
	want(b.t, when+": faults", a.Faults.Total, 0)
	return a
}

// stock puts a job into every state, with j1 and j2 in the queue.
func (b *bench) stock() {
	b.t.Helper()
	b.accept("park", job.Job{ID: "scheduled", At: time.UnixMicro(b.now).Add(time.Hour)})
	for _, id := range []string{"done", "retrying", "in-flight", "pulled"} {
		b.accept("park", job.Job{ID: id, Cost: 2})
		_, g := b.pull()
		if id == "pulled" {
			break
		}
		a, _ := b.open(id, g, "w")
		e := job.Ending{Called: true, Spent: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}
		switch id {
		case "done":
			b.must(b.books.Done(b.ctx, a, e))
			b.finish(id, g)
		case "retrying":
			b.must(b.books.Back(b.ctx, a, e, time.Minute))
			b.finish(id, g)
		}
	}
	b.accept("park", numbered(1, 2)...)
	b.accept("park", job.Job{ID: "rejected", Cost: 90})
}

// Everything that can get lost or out of place, one at a time: it is noticed, found and put right.
func TestWhatIsOutOfPlaceIsPutRight(t *testing.T) {
	t.Parallel()
	first := job.TaskID("j1", 1)
	for what, tc := range map[string]struct {
		breaks func(b *bench)
		did    ledger.Mended
	}{
		"a task that asynq's inspector deleted": {func(b *bench) {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, first)
			b.c.Del(b.ctx, b.keys.Task(first))
		}, ledger.Mended{Requeued: 1}},
		"a task that the list has lost": {func(b *bench) { b.c.LRem(b.ctx, b.keys.Pending(), 0, first) }, ledger.Mended{Requeued: 1}},
		"the whole list":                {func(b *bench) { b.c.Del(b.ctx, b.keys.Pending()) }, ledger.Mended{Requeued: 2}},
		"a task that was pulled": {func(b *bench) {
			b.c.Del(b.ctx, b.keys.Active(), b.keys.Lease(), b.keys.Task(job.TaskID("pulled", 1)))
		}, ledger.Mended{Requeued: 1}},
		"the entry of a scheduled job": {func(b *bench) { b.c.Del(b.ctx, b.keys.Scheduled()) }, ledger.Mended{Placed: 1}},
		"the entry of a retrying job":  {func(b *bench) { b.c.Del(b.ctx, b.keys.Retrying()) }, ledger.Mended{Placed: 1}},
		"the entry of an attempt":      {func(b *bench) { b.c.Del(b.ctx, b.keys.Open()) }, ledger.Mended{Placed: 1}},
		"the entry of a parked job":    {func(b *bench) { b.c.Del(b.ctx, b.keys.Parked("rejected")) }, ledger.Mended{Placed: 1}},
		"a job parked for two reasons": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Parked("refused"), redis.Z{Score: 1, Member: "rejected"})
		}, ledger.Mended{Placed: 1}},
		"a queued job that is scheduled too": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Scheduled(), redis.Z{Score: float64(b.now + 1e9), Member: "j2"})
		}, ledger.Mended{Placed: 1}},
		"a job that is done and retrying": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Retrying(), redis.Z{Score: float64(b.now + 1e9), Member: "done"})
		}, ledger.Mended{Placed: 1}},
		"an entry without a record": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Parked("refused"), redis.Z{Score: 1, Member: "ghost"})
		}, ledger.Mended{Removed: 1}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 12, nil)
			b.stock()
			b.clean("before")
			before, err := b.books.Look(b.ctx)
			b.must(err)
			m := ledger.NewMender(b.books)
			want(t, "did while all was well", b.mend(m), ledger.Mended{})
			tc.breaks(b)
			b.now++
			want(t, "did", b.mend(m), tc.did)
			a := b.clean("mended")
			b.now++
			want(t, "jobs waiting", a.Queued+a.InFlight+a.Scheduled+a.Retrying, before.Queued+before.InFlight+before.Scheduled+before.Retrying)
			want(t, "jobs parked", a.Parked[job.Rejected], before.Parked[job.Rejected])
		})
	}
}

// A job that was requeued because its task seemed lost is called once, should the task turn up after all.
func TestALostTaskThatTurnsUpIsStale(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j", Cost: 3})
	b.c.LRem(b.ctx, b.keys.Pending(), 0, "j~1")
	b.now++
	want(t, "did", b.mend(ledger.NewMender(b.books)), ledger.Mended{Requeued: 1})
	want(t, "cost of the new task", b.c.HGet(b.ctx, b.keys.Costs(), "j~2").Val(), "3")
	want(t, "cost of the old task", b.c.HExists(b.ctx, b.keys.Costs(), "j~1").Val(), false)
	b.c.RPush(b.ctx, b.keys.Due(), "j~1")
	id, g := b.pull()
	_, o := b.open(id, g, "w")
	want(t, "opening of the old one", o, job.OpenStale)
	id, g = b.pull()
	a, o := b.open(id, g, "w")
	want(t, "opening of the new one", o, job.OpenGo)
	want(t, "its cost", a.Job.Cost, 3)
}

// Two of three processes leave the work to the third; when nothing was found to mend, nobody looks again for a while.
func TestOneProcessMendsAndDoesNotDoItForEver(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", numbered(1, 1)...)
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", 1) // what nobody can mend
	first, second := ledger.NewMender(b.books), ledger.NewMender(b.books)
	want(t, "did", b.mend(first), ledger.Mended{})
	for _, m := range []*ledger.Mender{first, second} {
		b.c.Del(b.ctx, b.keys.Pending())
		b.now++
		want(t, "did within the rest", b.mend(m), ledger.Mended{})
	}
	if rest := b.c.PTTL(b.ctx, b.keys.Mend()).Val(); rest < 14*time.Minute || rest > 15*time.Minute {
		t.Errorf("somebody looks again in %v", rest)
	}
	b.c.Del(b.ctx, b.keys.Mend())
	want(t, "did afterwards", b.mend(second), ledger.Mended{Requeued: 1})
	if rest := b.c.PTTL(b.ctx, b.keys.Mend()).Val(); rest < time.Second || rest > 30*time.Second {
		t.Errorf("after something was mended somebody looks again in %v", rest)
	}
}

// More jobs than one step reads, half of them lost, while others come in and are worked on.
func TestMendingWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000, nil)
	const n = 1500
	b.accept("park", numbered(1, n)...)
	for i := 1; i <= n; i += 2 {
		b.c.LRem(b.ctx, b.keys.Pending(), 1, job.TaskID(fmt.Sprint("j", i), 1))
	}
	b.now++
	mended := make(chan ledger.Mended)
	go func() {
		m := ledger.NewMender(b.books)
		for range 3 {
			did, _, err := m.Look(b.ctx)
			if err != nil || did != (ledger.Mended{}) {
				mended <- did
				return
			}
		}
		close(mended)
	}()
	accepted, did := 0, ledger.Mended{}
	for under := true; under; accepted++ {
		b.accept("park", job.Job{ID: fmt.Sprint("new-", accepted)})
		id, g := b.pull()
		if a, o := b.open(id, g, "w"); o == job.OpenGo {
			b.must(b.books.Back(b.ctx, a, job.Ending{}, 0))
		}
		b.finish(id, g)
		select {
		case did = <-mended:
			under = false
		default:
		}
	}
	if did.Requeued < n/2 || did.Placed+did.Removed != 0 {
		t.Errorf("%+v, want %d requeued", did, n/2)
	}
	a := b.clean("mended")
	want(t, "jobs", a.Queued+a.InFlight, int64(n+accepted))
	want(t, "missing", a.Missing(), 0)
}

func TestMendingOnTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	b := setup(t, 12, nil)
	db, err := redisdb.Open(b.ctx, redisdb.Embedded, redisdb.Options{})
	b.must(err)
	t.Cleanup(func() { _ = db.Close() })
	b.on(db.Client)
	b.stock()
	b.clean("before")
	b.c.Del(b.ctx, b.keys.Pending(), b.keys.Retrying())
	b.now++
	want(t, "did", b.mend(ledger.NewMender(b.books)), ledger.Mended{Requeued: 2, Placed: 1})
	b.clean("mended")
}

// One round trip finds the gateways whose totals don't add up, and one that can't be read hides no other.
func TestOddTotalsAreFoundAmongManyGateways(t *testing.T) {
	t.Parallel()
	calm, lost, broken := setup(t, 10, nil), setup(t, 10, nil), setup(t, 10, nil)
	for _, b := range []*bench{calm, lost, broken} {
		b.on(calm.c)
		b.accept("park", numbered(1, 3)...)
	}
	all := []*ledger.Books{calm.books, broken.books, lost.books, calm.books}
	odd, err := ledger.Odd(calm.ctx, calm.c, all)
	if calm.must(err); slices.Contains(odd, true) {
		t.Errorf("odd: %v, want none", odd)
	}
	lost.c.RPop(lost.ctx, lost.keys.Pending())
	broken.c.Set(broken.ctx, broken.keys.Retrying(), "not a set", 0)
	if odd, err = ledger.Odd(calm.ctx, calm.c, all); err != nil || !slices.Equal(odd, []bool{false, true, true, false}) {
		t.Errorf("odd: %v, %v", odd, err)
	}
	if _, err = ledger.Odd(calm.ctx, calm.c, []*ledger.Books{broken.books}); err == nil {
		t.Error("no error where nothing could be read")
	}
}
