package deadletter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// doubtful are the reasons for parking a job that may have been charged.
var doubtful = []job.Reason{job.Paused, job.Rejected, job.Refused, job.Exhausted, job.UnknownOutcome, job.Expired, job.Cancelled}

// inDoubt parks a job for each reason that may have been charged, and one each that can't have been.
func (b *bench) inDoubt() {
	b.t.Helper()
	for _, r := range doubtful {
		b.park(job.Job{ID: string(r), Batch: "b1", Expires: b.Now().Add(100 * time.Hour)}, r, timedOut())
		b.park(job.Job{ID: "sure-" + string(r)}, job.Refused, refused("HTTP 402"))
	}
}

func TestWhateverIsInDoubtIsResolvedAsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	b.inDoubt()
	entry := b.store.Entry(deadletter.Act{At: b.Now(), Who: "kim@desk", What: "resolve --done", Why: "settlement file"})
	b.must(entry.Begin(b.ctx))
	c := b.bulkRun(deadletter.Filter{InDoubt: true})
	c.Store = b.store.For(entry)
	done, err := c.Done(b.ctx, b.rules(), time.Hour, "")
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: len(doubtful)})
	settled := b.store.Settlements()
	for _, reason := range doubtful {
		r := b.record(string(reason))
		want(t, string(reason), r.State, job.Done)
		want(t, "may have charged", r.Unsure, false)
		s, err := settled(b.ctx, r)
		b.must(err)
		if s == nil || *s != (deadletter.Settled{As: "done", At: b.Now().UTC(), Who: "kim@desk", Why: "settlement file"}) {
			t.Errorf("%s was settled %+v", reason, s)
		}
		for _, set := range []string{b.keys.Parked(string(reason)), b.keys.ParkedBatch(string(reason), "b1"), b.keys.Again()} {
			if b.c.ZScore(b.ctx, set, string(reason)).Err() == nil {
				t.Errorf("%s is still in %s", reason, set)
			}
		}
	}
	want(t, "counted", b.counter("done"), int64(len(doubtful)))
	want(t, "of the act", b.c.HGet(b.ctx, b.keys.Acts(), "0").Val(), fmt.Sprint(len(doubtful)))
	nobody, err := settled(b.ctx, b.record("sure-refused"))
	b.must(err)
	if nobody != nil {
		t.Errorf("nobody settled it, and yet: %+v", nobody)
	}
}

func TestWhateverIsInDoubtIsResolvedAsNotDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	b.inDoubt()
	var held []string
	c := b.bulkRun(deadletter.Filter{})
	c.HeldBack = func(r job.Record, why string) {
		if !strings.HasPrefix(why, "it can't have been charged") {
			t.Errorf("%s is held back: %s", r.Job.ID, why)
		}
		held = append(held, r.Job.ID)
	}
	done, err := c.NotDone(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: len(doubtful), HeldBack: len(doubtful)})
	for _, reason := range doubtful {
		r, state := b.record(string(reason)), job.Queued
		if reason == job.Expired {
			state = job.Parked
		}
		want(t, string(reason), r.State, state)
		want(t, "may have charged", r.Unsure, false)
		want(t, "key", r.KeyGeneration, 2)
		want(t, "settled as done", r.Settled.Done, false)
		want(t, "settled", r.Settled.At, b.Now().UTC())
		if kn := b.c.HGet(b.ctx, b.keys.Job(string(reason)), "kn").Val(); kn != fmt.Sprint(b.now.Load()) {
			t.Errorf("%s: known since %q", reason, kn)
		}
	}
	want(t, "held back", len(held), len(doubtful))
}

// A job in doubt that has expired is no longer called. It can still be settled, and otherwise stays as expired.
func TestAnExpiredJobInDoubtIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	b.settlesExpired(t)
	inside := setup(t, 50) // the Redis in the process is another program
	db, err := redisdb.Open(b.ctx, redisdb.Embedded, redisdb.Options{})
	b.must(err)
	t.Cleanup(func() { _ = db.Close() })
	inside.on(db.Client)
	inside.settlesExpired(t)
}

func (b *bench) settlesExpired(t *testing.T) {
	for _, reason := range doubtful {
		b.park(job.Job{ID: string(reason), Batch: "b1", Expires: b.Now().Add(time.Hour)}, reason, timedOut())
	}
	b.now.Add((2 * time.Hour).Microseconds())
	done, err := b.bulkRun(deadletter.Filter{InDoubt: true}).NotDone(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: len(doubtful)})
	want(t, "parked as expired", len(b.list(deadletter.Filter{Reasons: []job.Reason{job.Expired}, Batch: "b1"})), len(doubtful))
	for _, r := range b.list(deadletter.Filter{}) {
		want(t, r.Job.ID+" may have charged", r.InDoubt(), false)
		want(t, r.Job.ID, r.Reason, job.Expired)
		want(t, "settled", r.Settled.At, b.Now().UTC())
	}
	again, err := b.bulkRun(deadletter.Filter{InDoubt: true}).NotDone(b.ctx, b.books, b.rules())
	b.must(err)
	want(t, "again", again, deadletter.BulkResult{})
	discarded, err := b.bulkRun(deadletter.Filter{}).Discard(b.ctx, b.rules(), time.Hour)
	b.must(err)
	want(t, "discarded", discarded, deadletter.BulkResult{Taken: len(doubtful)})
	b.park(job.Job{ID: "charged"}, job.Exhausted, timedOut())
	resolved, err := b.bulkRun(deadletter.Filter{InDoubt: true}).Done(b.ctx, b.rules(), time.Hour, "")
	b.must(err)
	want(t, "resolved as done", resolved, deadletter.BulkResult{Taken: 1})
}

func TestTheReferenceThatAPersonFoundIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	b.park(job.Job{ID: "a"}, job.UnknownOutcome, timedOut())
	done, err := b.bulkRun(deadletter.Filter{IDs: []string{"a"}}).Done(b.ctx, b.rules(), time.Hour, "ch_3K")
	b.must(err)
	want(t, "done", done.Taken, 1)
	want(t, "reference", b.record("a").Reference, "ch_3K")
}

// Jobs that may have been charged stay parked, unless the rules say otherwise.
func TestADiscardLeavesWhatMayHaveBeenCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	b.inDoubt()
	done, err := b.bulkRun(deadletter.Filter{}).Discard(b.ctx, b.rules(), time.Hour)
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: len(doubtful), HeldBack: len(doubtful)})
	all := b.rules()
	all.MayBeCharged = true
	done, err = b.bulkRun(deadletter.Filter{}).Discard(b.ctx, all, time.Hour)
	b.must(err)
	want(t, "said so", done, deadletter.BulkResult{Taken: len(doubtful)})
}
