package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// A call counts once, whichever process finds its end: its worker, the one that takes the job over, or the sweep. A success that comes late belongs to a
// call that counts already. What was never written does not count.
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

// A success that comes while another call of the job is in flight belongs to the call that was given up.
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

// Each call counts once in the hour of its end, by its answer and verdict; look-ups, and what was never written, do not. The 24 hours before the present one are kept.
func TestCallsAreCountedByTheHourAndTheirAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	b.now = 1_795_000_000_000_000/3_600_000_000*3_600_000_000 + 30e6 // half a minute into an hour
	counted := func(when string, wanted ...string) {
		t.Helper()
		all, err := b.books.Answers(b.ctx, time.UnixMicro(b.now))
		b.must(err)
		var got []string
		for _, of := range all {
			got = append(got, fmt.Sprintf("%d hours ago: %d %s %d", time.UnixMicro(b.now).Truncate(time.Hour).Sub(of.Hour)/time.Hour, of.Status, of.Verdict, of.Calls))
		}
		slices.Sort(got)
		want(t, when, strings.Join(got, ", "), strings.Join(wanted, ", "))
	}
	call := func(id string, e job.Ending, wait time.Duration) {
		t.Helper()
		pulled, g := b.pull()
		want(t, "pulled", pulled, id)
		a, _ := b.open(pulled, g, "w")
		e.Called, e.At = true, time.UnixMicro(b.now)
		if e.Verdict == job.VerdictDone {
			b.must(b.books.Done(b.ctx, a, e))
		} else {
			b.must(b.books.Back(b.ctx, a, e, wait))
		}
	}
	b.accept("park", job.Job{ID: "a"}, job.Job{ID: "b"}, job.Job{ID: "c"}, job.Job{ID: "d"})
	counted("before")
	call("a", job.Ending{Status: 200, Verdict: job.VerdictDone}, 0)
	call("b", job.Ending{Status: 503, Verdict: job.VerdictRetry}, 48*time.Hour)
	counted("the first hour", "0 hours ago: 200 done 1", "0 hours ago: 503 retry 1")
	b.must(b.c.Set(b.ctx, redisdb.NewKeys(b.name).Hours(), "somebody else's", 0).Err())
	call("c", job.Ending{Status: 200, Verdict: job.VerdictDone}, 0)
	counted("rubbish in its place", "0 hours ago: 200 done 1")
	b.now += 3600e6
	id, g := b.pull()
	a, _ := b.open(id, g, "stalls")
	b.now += 60e6
	_, err := b.books.Sweep(b.ctx)
	b.must(err)
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	counted("given up, and done after all: once", "0 hours ago: 0 cut_off 1", "1 hours ago: 200 done 1")
	b.now += 24 * 3600e6
	counted("what is older is not shown", "24 hours ago: 0 cut_off 1")
	b.pull() // what the sweep put back of d
	b.accept("park", job.Job{ID: "e"})
	call("e", job.Ending{Status: 200, Verdict: job.VerdictDone}, 0)
	counted("nor kept", "0 hours ago: 200 done 1", "24 hours ago: 0 cut_off 1")
	kept, err := b.c.HLen(b.ctx, redisdb.NewKeys(b.name).Hours()).Result()
	b.must(err)
	want(t, "fields", kept, 2)
}
