package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
)

// What is shown of look-ups: the next one, the oldest call in doubt, and the job whose look-ups have failed for longest.
func TestWhatIsKnownOfLookups(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	if a, err := b.books.Asking(b.ctx); err != nil || a != (ledger.Asking{}) {
		t.Errorf("without pending jobs: %+v, %v", a, err)
	}
	var ended []int64
	for _, id := range []string{"a", "b", "c"} {
		b.accept("park", job.Job{ID: id, Payload: []byte(`{}`), Batch: "of-" + id})
		b.inDoubt(store)
		ended = append(ended, b.now)
		b.pass(time.Second)
	}
	at := func(us int64, more time.Duration) time.Time { return record.Moment(us).Add(more) }
	asking := func(want ledger.Asking) {
		t.Helper()
		if a, err := b.books.Asking(b.ctx); err != nil || a != want {
			t.Errorf("got  %+v, %v\nwant %+v", a, err, want)
		}
	}
	asking(ledger.Asking{Next: at(ended[0], firstLook), Oldest: at(ended[0], 0)})
	b.pass(firstLook)
	failed := func(l job.Look, why string) {
		t.Helper()
		if came := b.came(l, job.Finding{Failed: true, Error: why}, time.Minute); came != "pending" {
			t.Fatal(came)
		}
	}
	failed(b.claim("o1"), "HTTP 500")
	first := b.now
	b.pass(time.Second)
	failed(b.claim("o2"), "HTTP 503")
	b.pass(time.Second)
	asking(ledger.Asking{Next: at(ended[2], firstLook), Oldest: at(ended[0], 0), Failing: at(first, 0), FailingJob: "a", FailingWhy: "HTTP 500"})
	b.pass(time.Minute)
	if came := b.came(b.claim("o3"), job.Finding{Verdict: job.LookDone}, -1); came != "done" { // that of c, which waits for longest
		t.Fatal(came)
	}
	if came := b.came(b.claim("o4"), job.Finding{Verdict: job.LookLater, Error: "processing"}, time.Hour); came != "pending" {
		t.Fatal(came)
	}
	asking(ledger.Asking{Next: at(first, time.Second+time.Minute), Oldest: at(ended[0], 0), Failing: at(first, time.Second), FailingJob: "b", FailingWhy: "HTTP 503"})
}

// The next look-up of a batch is that of its own jobs, even behind many others. Behind more than some thousand it is unknown.
func TestTheNextLookupOfABatch(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	for _, id := range []string{"a", "b"} {
		b.accept("park", job.Job{ID: id, Payload: []byte(`{}`), Batch: "of-" + id})
		b.inDoubt(store)
		b.pass(time.Second)
	}
	want := record.Moment(b.now).Add(firstLook - time.Second)
	next := func(batch string, want time.Time) {
		t.Helper()
		if at, err := b.books.NextLook(b.ctx, batch); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", batch, at, err, want)
		}
	}
	next("of-b", want)
	next("of-nobody", time.Time{})
	others := func(n int) {
		for i := range n {
			b.c.ZAdd(b.ctx, b.keys.Asking(), redis.Z{Score: float64(i + 1), Member: fmt.Sprint("other-", i)})
		}
	}
	others(600)
	next("of-b", want)
	others(1000)
	next("of-b", time.Time{})
}
