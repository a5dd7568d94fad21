package ledger_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// offer puts jobs before the books under a ticket.
func (b *bench) offer(ticket job.Ticket, mode string, jobs ...job.Job) ([]job.Admittance, job.Room, error) {
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d"}
	}
	return b.books.Accept(b.ctx, ticket, chunk, mode)
}

// What the first answer said, the second says too, although every job is known by then and the bucket has filled up.
func TestAnOfferMadeAgainGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	for mode, noRoom := range map[string]job.Admittance{"park": job.ParkedNow, "wait": job.Full} {
		b := setup(t, 3, nil)
		b.accept("park", job.Job{ID: "other"}) // under another digest
		if _, _, err := b.offer(job.Ticket{Lane: "x", Number: 1}, mode, numbered(1, 1)...); err != nil {
			t.Fatal(err)
		}
		jobs := append(numbered(1, 4), job.Job{ID: "other"})
		want := []job.Admittance{job.Duplicate, job.Enqueued, noRoom, noRoom, job.Conflict}
		first, room, err := b.offer(job.Ticket{Lane: "x", Number: 2}, mode, jobs...)
		if err != nil || !slices.Equal(first, want) || room.Retry != 10*time.Millisecond || !slices.Equal(room.Left, []int64{0}) || room.Reset != 30*time.Millisecond {
			t.Errorf("%s: %v, room %+v, %v; want %v", mode, first, room, err, want)
		}
		b.now += 10_000_000
		again, same, err := b.offer(job.Ticket{Lane: "x", Number: 2}, mode, jobs...)
		if err != nil || !reflect.DeepEqual(same, room) || !slices.Equal(again, want) {
			t.Errorf("%s, again: %v, room %+v, %v; want %v", mode, again, same, err, want)
		}
		if n := b.c.LLen(b.ctx, b.keys.Pending()).Val(); n != 3 {
			t.Errorf("%s: %d jobs in the queue, want 3", mode, n)
		}
	}
}

// A stalled connection may bring an offer in after its caller has made it again, and gone on.
func TestAnOfferThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	jobs := numbered(1, 3)
	for n, j := range jobs[:2] {
		if got, _, err := b.offer(job.Ticket{Lane: "x", Number: int64(n + 1)}, "park", j); err != nil || got[0] != job.Enqueued {
			t.Fatal(got, err)
		}
	}
	if got, _, err := b.offer(job.Ticket{Lane: "x", Number: 1}, "park", jobs[2]); err == nil || !strings.HasPrefix(err.Error(), "SUPERSEDED") {
		t.Errorf("an offer of the past: %v, %v", got, err)
	}
	if got, _, err := b.offer(job.Ticket{Lane: "y", Number: 1}, "park", jobs[2]); err != nil || got[0] != job.Enqueued {
		t.Errorf("another lane: %v, %v", got, err)
	}
	if n := b.c.LLen(b.ctx, b.keys.Pending()).Val(); n != 3 {
		t.Errorf("%d jobs in the queue, want 3", n)
	}
	if left := b.c.PTTL(b.ctx, b.keys.Receipt("x")).Val(); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("an answer is kept for %s", left)
	}
}
