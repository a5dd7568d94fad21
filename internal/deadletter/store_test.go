package deadletter_test

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func TestParkKeepsTheWholeJobAndTwiceIsAsGoodAsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.accept(b.books, job.Job{ID: "a", Payload: []byte(`{"n":1}`), Batch: "b1"})
	a := b.call("a", job.Refused, refused("HTTP 402: {}"))
	before := b.record("a")
	b.now.Add(1000)
	b.must(b.store.Park(b.ctx, a, timedOut(), job.UnknownOutcome))
	r := b.record("a")
	want(t, "state", r.State, job.Parked)
	want(t, "reason", r.Reason, job.Refused)
	want(t, "error", r.Error, "HTTP 402: {}")
	want(t, "payload", string(r.Job.Payload), `{"n":1}`)
	want(t, "batch", r.Job.Batch, "b1")
	want(t, "attempts", r.Spent, 1)
	want(t, "calls", len(r.History), 1)
	want(t, "parked at", r.ParkedAt, before.ParkedAt)
	want(t, "parked", ids(b.list(deadletter.Filter{})), "a ")
	want(t, "lifetime", b.c.PTTL(b.ctx, b.keys.Job("a")).Val(), time.Duration(-1))
}

func TestUnreadableIsParkedUnderAnIDOfItsOwnWhereItsIsTaken(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.accept(b.books, job.Job{ID: "a"})
	for range 2 {
		b.must(b.store.ParkUnreadable(b.ctx, "a", []byte("hello"), "foreign"))
		b.must(b.store.ParkUnreadable(b.ctx, "free", []byte("hello"), "foreign"))
		b.must(b.store.ParkUnreadable(b.ctx, "no id", []byte("hello"), "foreign"))
	}
	want(t, "state of the job that has the id", b.record("a").State, job.Queued)
	found := b.list(deadletter.Filter{Reasons: []job.Reason{job.Unreadable}})
	want(t, "parked", len(found), 3)
	for _, r := range found {
		want(t, "content of "+r.Job.ID, string(r.Job.Payload), "hello")
		if r.Job.ID != "free" && !strings.HasPrefix(r.Job.ID, "unreadable-") {
			t.Errorf("parked under the id %q", r.Job.ID)
		}
	}
	want(t, "accepted", b.counter("accepted"), 4)
}

func TestDiscardKeepsTheRecordForTheDedupeWindow(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a"}, job.Refused, refused("no"))
	b.park(job.Job{ID: "b"}, job.Refused, refused("no"))
	b.park(job.Job{ID: "c"}, job.Refused, refused("no"))
	jobs := []job.Return{
		{ID: "a", Generation: 1, Reason: job.Refused},
		{ID: "b", Generation: 2, Reason: job.Refused}, // has moved on
		{ID: "c", Generation: 1, Reason: job.Expired},
	}
	taken, err := b.store.Discard(b.ctx, jobs, time.Hour)
	b.must(err)
	if len(taken) != 3 || !taken[0] || taken[1] || taken[2] {
		t.Errorf("taken %v, want the first alone", taken)
	}
	r := b.record("a")
	want(t, "state", r.State, job.Discarded)
	want(t, "finished", r.Finished.UnixMicro(), b.now.Load())
	want(t, "still parked", ids(b.list(deadletter.Filter{})), "b c ")
	want(t, "discarded", b.counter("discarded"), 1)
	if ttl := b.c.PTTL(b.ctx, b.keys.Job("a")).Val(); ttl <= 59*time.Minute || ttl > time.Hour {
		t.Errorf("known for %v, want an hour", ttl)
	}
	want(t, "offered again", b.accept(b.books, job.Job{ID: "a"})[0], job.Duplicate)
}

func TestResolveDoneIsDoneAsIfTheCallHadSaidSo(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.park(job.Job{ID: "a", Payload: []byte(`{"n":1}`)}, job.UnknownOutcome, timedOut())
	b.park(job.Job{ID: "b"}, job.Refused, refused("no"))
	b.park(job.Job{ID: "c"}, job.UnknownOutcome, timedOut())
	run := deadletter.BulkRun{Store: b.store, Clock: b, Filter: deadletter.Filter{IDs: []string{"a", "b"}}}
	done, err := run.Done(b.ctx, b.rules(), time.Hour, "")
	b.must(err)
	want(t, "done", done, deadletter.BulkResult{Taken: 1, HeldBack: 1})
	r := b.record("a")
	want(t, "state", r.State, job.Done)
	want(t, "payload", string(r.Job.Payload), "")
	want(t, "reason", r.Reason, "")
	want(t, "unsure", r.Unsure, false)
	want(t, "calls", len(r.History), 1)
	want(t, "counted", b.counter("done"), 1)
	if ttl := b.c.PTTL(b.ctx, b.keys.Job("a")).Val(); ttl <= 59*time.Minute || ttl > time.Hour {
		t.Errorf("known for %v, want an hour", ttl)
	}
	want(t, "still parked", ids(b.list(deadletter.Filter{})), "b c ")
	jobs := []job.Return{{ID: "a", Generation: 1}, {ID: "b", Generation: 1}, {ID: "c", Generation: 9}, {ID: "c", Generation: 1}}
	taken, err := b.store.Resolve(b.ctx, jobs, time.Hour, "")
	b.must(err)
	if len(taken) != 4 || taken[0] || taken[1] || taken[2] || !taken[3] {
		t.Errorf("taken %v, want the last alone", taken)
	}
	want(t, "offered again", b.accept(b.books, job.Job{ID: "a"})[0], job.Duplicate)
}
