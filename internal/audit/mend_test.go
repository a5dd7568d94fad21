package audit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/audit"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// mend calls Look until the mender has gone through the records, and returns what it did.
func (b *bench) mend(m *audit.Mender) audit.Mended {
	b.t.Helper()
	for i := 1; ; i++ {
		did, next, err := m.Look(b.ctx)
		b.must(err)
		if next != 2*time.Second {
			if did != (audit.Mended{}) {
				want(b.t, "looks before it went through the records", i, 3)
			}
			return did
		}
	}
}

// clean audits the books and expects no fault.
func (b *bench) clean(when string) audit.Report {
	b.t.Helper()
	a, err := b.g.Audit(b.ctx, audit.Params{Most: 100})
	b.must(err)
	for _, f := range a.Faults.List {
		b.t.Errorf("%s: job %q: %s", when, f.ID, f.Describe())
	}
	want(b.t, when+": faults", a.Faults.Total, 0)
	return a
}

// stock makes a job in every state, with j1 and j2 in the queue.
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

// pending makes the next job be called without an answer: its outcome is being asked for.
func (b *bench) pending() {
	b.t.Helper()
	id, g := b.pull()
	a, _ := b.open(id, g, "w")
	store := deadletter.New(b.c, b.name)
	store.Asks = job.Asks{Unknown: time.Hour}
	b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, At: time.UnixMicro(b.now), Unsure: true}, job.UnknownOutcome))
}

// Everything that can get lost or out of place, one at a time: it is noticed, found and repaired.
func TestWhatIsOutOfPlaceIsPutRight(t *testing.T) {
	t.Parallel()
	first := job.TaskID("j1", 1)
	for what, tc := range map[string]struct {
		breaks func(b *bench)
		did    audit.Mended
	}{
		"a task that asynq's inspector deleted": {func(b *bench) {
			b.c.LRem(b.ctx, b.keys.Pending(), 0, first)
			b.c.Del(b.ctx, b.keys.Task(first))
		}, audit.Mended{Requeued: 1}},
		"a task that the list has lost": {func(b *bench) { b.c.LRem(b.ctx, b.keys.Pending(), 0, first) }, audit.Mended{Requeued: 1}},
		"the whole list":                {func(b *bench) { b.c.Del(b.ctx, b.keys.Pending()) }, audit.Mended{Requeued: 2}},
		"a task that was pulled": {func(b *bench) {
			b.c.Del(b.ctx, b.keys.Active(), b.keys.Lease(), b.keys.Task(job.TaskID("pulled", 1)))
		}, audit.Mended{Requeued: 1}},
		"the entry of a scheduled job": {func(b *bench) { b.c.Del(b.ctx, b.keys.Scheduled()) }, audit.Mended{Placed: 1}},
		"the entry of a retrying job":  {func(b *bench) { b.c.Del(b.ctx, b.keys.Retrying()) }, audit.Mended{Placed: 1}},
		"the entry of an attempt":      {func(b *bench) { b.c.Del(b.ctx, b.keys.Open()) }, audit.Mended{Placed: 1}},
		"the entry of a parked job":    {func(b *bench) { b.c.Del(b.ctx, b.keys.Parked("rejected")) }, audit.Mended{Placed: 1}},
		"a job parked for two reasons": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Parked("refused"), redis.Z{Score: 1, Member: "rejected"})
		}, audit.Mended{Placed: 1}},
		"a queued job that is scheduled too": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Scheduled(), redis.Z{Score: float64(b.now + 1e9), Member: "j2"})
		}, audit.Mended{Placed: 1}},
		"a job that is done and retrying": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Retrying(), redis.Z{Score: float64(b.now + 1e9), Member: "done"})
		}, audit.Mended{Placed: 1}},
		"the entry of a pending job": {func(b *bench) {
			b.pending()
			b.c.Del(b.ctx, b.keys.Asking())
		}, audit.Mended{Placed: 1}},
		"a job that is done and pending": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Asking(), redis.Z{Score: 1, Member: "done"})
		}, audit.Mended{Placed: 1}},
		"an entry without a record": {func(b *bench) {
			b.c.ZAdd(b.ctx, b.keys.Parked("refused"), redis.Z{Score: 1, Member: "ghost"})
		}, audit.Mended{Removed: 1}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 12)
			b.stock()
			b.clean("before")
			before, err := b.books.Look(b.ctx)
			b.must(err)
			m := b.g.Mender()
			want(t, "did while all was well", b.mend(m), audit.Mended{})
			tc.breaks(b)
			b.now++
			want(t, "did", b.mend(m), tc.did)
			a := b.clean("mended")
			b.now++
			want(t, "jobs waiting", a.Queued+a.InFlight+a.Scheduled+a.Retrying+a.Pending, before.Queued+before.InFlight+before.Scheduled+before.Retrying)
			want(t, "jobs parked", a.Parked[job.Rejected], before.Parked[job.Rejected])
		})
	}
}

// A job that was requeued because its task seemed lost is called once, even if the task turns up after all.
func TestALostTaskThatTurnsUpIsStale(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.accept("park", job.Job{ID: "j", Cost: 3})
	b.c.LRem(b.ctx, b.keys.Pending(), 0, "j~1")
	b.now++
	want(t, "did", b.mend(b.g.Mender()), audit.Mended{Requeued: 1})
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

// One of three processes does the work. If it found nothing to repair, no process looks again for a while.
func TestOneProcessMendsAndDoesNotDoItForEver(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.accept("park", numbered(1, 1)...)
	b.c.HIncrBy(b.ctx, b.keys.Counters(), "accepted", 1) // can't be repaired
	first, second := b.g.Mender(), b.g.Mender()
	want(t, "did", b.mend(first), audit.Mended{})
	for _, m := range []*audit.Mender{first, second} {
		b.c.Del(b.ctx, b.keys.Pending())
		b.now++
		want(t, "did within the rest", b.mend(m), audit.Mended{})
	}
	if rest := b.c.PTTL(b.ctx, b.keys.Mend()).Val(); rest < 14*time.Minute || rest > 15*time.Minute {
		t.Errorf("the next look is in %v", rest)
	}
	b.c.Del(b.ctx, b.keys.Mend())
	want(t, "did afterwards", b.mend(second), audit.Mended{Requeued: 1})
	if rest := b.c.PTTL(b.ctx, b.keys.Mend()).Val(); rest < time.Second || rest > 30*time.Second {
		t.Errorf("after a repair the next look is in %v", rest)
	}
}

// There are more jobs than one step reads, half of them lost, while others come in and are worked on.
func TestMendingWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, 10_000)
	const n = 1500
	b.accept("park", numbered(1, n)...)
	for i := 1; i <= n; i += 2 {
		b.c.LRem(b.ctx, b.keys.Pending(), 1, job.TaskID(fmt.Sprint("j", i), 1))
	}
	b.now++
	mended := make(chan audit.Mended)
	go func() {
		m := b.g.Mender()
		for range 3 {
			did, _, err := m.Look(b.ctx)
			if err != nil || did != (audit.Mended{}) {
				mended <- did
				return
			}
		}
		close(mended)
	}()
	accepted, did := 0, audit.Mended{}
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
	b := setup(t, 12)
	db, err := redisdb.Open(b.ctx, redisdb.Embedded, redisdb.Options{})
	b.must(err)
	t.Cleanup(func() { _ = db.Close() })
	b.on(db.Client)
	b.stock()
	b.clean("before")
	b.c.Del(b.ctx, b.keys.Pending(), b.keys.Retrying())
	b.now++
	want(t, "did", b.mend(b.g.Mender()), audit.Mended{Requeued: 2, Placed: 1})
	b.clean("mended")
}
