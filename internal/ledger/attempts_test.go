package ledger_test

import (
	"testing"
	"time"

	"spillway/internal/job"
)

// A call counts once, whoever finds its end: its worker, the one that takes the job over, or the sweep; and a success that comes late is that of a
// call which counts already. What was never written does not count.
func TestACallCountsOnceWhoeverFindsItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j"})
	called := job.Ending{Called: true, Status: 500, Verdict: job.VerdictRetry}
	counts := func(when string, attempts, lines int) {
		t.Helper()
		want(t, when+": attempts", b.record("j").Attempts, attempts)
		want(t, when+": calls in the history", len(b.record("j").History), lines)
	}
	next := func(owner string, before int) job.Attempt {
		t.Helper()
		id, g := b.pull()
		a, o := b.open(id, g, owner)
		want(t, "opening for "+owner, o, job.OpenGo)
		want(t, "calls before that of "+owner, a.Calls, before)
		return a
	}
	b.must(b.books.Back(b.ctx, next("skips", 0), job.Ending{}, 0))
	counts("given back uncalled", 0, 0)
	b.must(b.books.Back(b.ctx, next("calls", 0), called, 0))
	counts("called", 1, 1)
	first := next("stalls", 1)
	b.now += 60e6
	over, o := b.open("j", first.Generation, "takes over")
	want(t, "opening of who takes over", o, job.OpenGo)
	want(t, "calls before that of who takes over", over.Calls, 2)
	counts("taken over", 2, 2)
	b.must(b.books.Back(b.ctx, over, job.Ending{}, 0))
	second := next("stalls too", 2)
	b.now += 60e6
	_, err := b.books.Sweep(b.ctx)
	b.must(err)
	counts("swept", 3, 3)
	b.must(b.books.Done(b.ctx, second, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	want(t, "state", b.record("j").State, job.Done)
	counts("done late", 3, 4)
}

// A success that comes while another call of the job is under way is that of the call that was given up.
func TestALateSuccessIsNoCallMore(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	late, _ := b.open(id, g, "stalls")
	b.now += 60e6
	over, _ := b.open(id, g, "takes over")
	b.must(b.books.Done(b.ctx, late, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	want(t, "attempts while the other call is under way", b.record(id).Attempts, 1)
	b.must(b.books.Back(b.ctx, over, job.Ending{Called: true, Status: 409, Verdict: job.VerdictRetry}, time.Minute))
	want(t, "state", b.record(id).State, job.Done)
	want(t, "attempts in the end", b.record(id).Attempts, 2)
}
