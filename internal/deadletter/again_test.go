package deadletter_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

func failing() job.Ending {
	return job.Ending{Called: true, Spent: true, Status: 503, Verdict: job.VerdictRetry, Error: "HTTP 503"}
}

// dueAgain moves the clock to just before the automatic replay of the job, and then to it.
func (b *bench) dueAgain(after time.Duration) []job.Return {
	b.t.Helper()
	parked := b.record("x").ParkedAt
	b.now.Store(parked.Add(after).UnixMicro() - 1)
	early, _, err := b.store.Again(b.ctx, b.rules(), 10)
	b.must(err)
	want(b.t, fmt.Sprintf("due before %v", after), len(early), 0)
	b.now.Add(1)
	due, left, err := b.store.Again(b.ctx, b.rules(), 10)
	b.must(err)
	want(b.t, fmt.Sprintf("due after %v", after), len(due), 1)
	want(b.t, "left to a person", left, 0)
	return due
}

func TestExhaustedJobsGoInAgainLaterEachTimeAndNotForEver(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	b.park(job.Job{ID: "x", Batch: "b1", Payload: []byte("{}")}, job.Exhausted, failing())
	b.park(job.Job{ID: "refused", Payload: []byte("{}")}, job.Refused, refused("HTTP 402"))
	round := func() {
		for i := range 5 {
			due := b.dueAgain(time.Minute << i)
			answers, _, err := b.books.For(deadletter.ByItself).Readmit(b.ctx, due)
			b.must(err)
			want(t, "answer", answers[0], job.Enqueued)
			b.call("x", job.Exhausted, failing())
		}
		b.now.Add((1000 * time.Hour).Microseconds())
		rules := b.rules()
		rules.KeyLifetime = 10_000 * time.Hour
		due, _, err := b.store.Again(b.ctx, rules, 10)
		b.must(err)
		want(t, "due after five times", len(due), 0)
	}
	round()
	want(t, "replays", b.record("x").Replays, 5)
	_, _, err := b.books.Readmit(b.ctx, []job.Return{{ID: "x", Generation: b.record("x").Generation, Reason: job.Exhausted, Key: job.ForgetKey}})
	b.must(err)
	b.call("x", job.Exhausted, failing())
	round() // a person's replay restarts the count
	want(t, "jobs that may go in again", b.c.Exists(b.ctx, b.keys.Again()).Val(), 0)
}

// A job whose key has expired, and one that a person replayed or discarded meanwhile, are not replayed automatically.
func TestWhatARuleHoldsBackIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	b := setup(t, 1_000_000)
	for _, id := range []string{"forgotten", "replayed", "discarded"} {
		b.park(job.Job{ID: id, Payload: []byte("{}")}, job.Exhausted, failing())
	}
	back := func(id string) []job.Return {
		return []job.Return{{ID: id, Generation: b.record(id).Generation, Reason: job.Exhausted, Key: job.KeepKey}}
	}
	_, _, err := b.books.Readmit(b.ctx, back("replayed"))
	b.must(err)
	_, err = b.store.Discard(b.ctx, back("discarded"), time.Hour)
	b.must(err)
	want(t, "jobs that may go in again", b.c.ZCard(b.ctx, b.keys.Again()).Val(), 1)
	b.now.Add((25 * time.Hour).Microseconds())
	due, left, err := b.store.Again(b.ctx, b.rules(), 10)
	b.must(err)
	want(t, "due", len(due), 0)
	want(t, "left to a person", left, 1)
	want(t, "state", b.record("forgotten").State, job.Parked)
	_, left, err = b.store.Again(b.ctx, b.rules(), 10)
	b.must(err)
	want(t, "left once more", left, 0)
}
