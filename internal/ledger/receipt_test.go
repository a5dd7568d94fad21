package ledger_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// offer puts jobs before the books under a ticket.
func (b *bench) offer(ticket job.Ticket, mode string, jobs ...job.Job) ([]job.Admittance, job.Room, error) {
	chunk := make([]job.Newcomer, len(jobs))
	for i, j := range jobs {
		chunk[i] = job.Newcomer{Job: j, Digest: "d"}
	}
	return testkit.Accept(b.ctx, b.books, ticket, chunk, mode)
}

// The second answer is the same as the first, although every job is known by then and the bucket has filled up.
func TestAnOfferMadeAgainGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	for mode, noRoom := range map[string]job.Admittance{"park": job.ParkedNow, "wait": job.Full} {
		b := setup(t, 3, nil)
		b.accept("park", job.Job{ID: "other"}) // under another digest
		if _, _, err := b.offer(job.Ticket{Sequence: "x", Number: 1}, mode, numbered(1, 1)...); err != nil {
			t.Fatal(err)
		}
		jobs := append(numbered(1, 4), job.Job{ID: "other"})
		want := []job.Admittance{job.Duplicate, job.Enqueued, noRoom, noRoom, job.Conflict}
		first, room, err := b.offer(job.Ticket{Sequence: "x", Number: 2}, mode, jobs...)
		if err != nil || !slices.Equal(first, want) || room.Retry != 10*time.Millisecond || !slices.Equal(room.Left, []int64{0}) || room.Reset != 30*time.Millisecond {
			t.Errorf("%s: %v, room %+v, %v; want %v", mode, first, room, err, want)
		}
		b.now += 10_000_000
		again, same, err := b.offer(job.Ticket{Sequence: "x", Number: 2}, mode, jobs...)
		if err != nil || !reflect.DeepEqual(same, room) || !slices.Equal(again, want) {
			t.Errorf("%s, again: %v, room %+v, %v; want %v", mode, again, same, err, want)
		}
		if n := b.c.LLen(b.ctx, b.keys.Pending()).Val(); n != 3 {
			t.Errorf("%s: %d jobs in the queue, want 3", mode, n)
		}
	}
}

// A stalled connection may deliver an offer after its caller has made it again and gone on.
func TestAnOfferThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	jobs := numbered(1, 3)
	for n, j := range jobs[:2] {
		if got, _, err := b.offer(job.Ticket{Sequence: "x", Number: int64(n + 1)}, "park", j); err != nil || got[0] != job.Enqueued {
			t.Fatal(got, err)
		}
	}
	if got, _, err := b.offer(job.Ticket{Sequence: "x", Number: 1}, "park", jobs[2]); err == nil || !strings.HasPrefix(err.Error(), "SUPERSEDED") {
		t.Errorf("an offer of the past: %v, %v", got, err)
	}
	if got, _, err := b.offer(job.Ticket{Sequence: "y", Number: 1}, "park", jobs[2]); err != nil || got[0] != job.Enqueued {
		t.Errorf("another lane: %v, %v", got, err)
	}
	if n := b.c.LLen(b.ctx, b.keys.Pending()).Val(); n != 3 {
		t.Errorf("%d jobs in the queue, want 3", n)
	}
	if left := b.c.PTTL(b.ctx, b.keys.Receipt("x")).Val(); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("an answer is kept for %s", left)
	}
}

// An offer that must come behind another one changes nothing until that one was carried out.
func TestAnOfferDoesNotOvertakeTheOneBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, nil)
	jobs := numbered(1, 4)
	behind := func(lane string, number int64, before string, n int64) job.Ticket {
		return job.Ticket{Sequence: lane, Number: number, Behind: job.Place{Sequence: before, Number: n}}
	}
	early := func(when string, ticket job.Ticket, j job.Job) {
		t.Helper()
		if got, _, err := b.offer(ticket, "park", j); err == nil || !strings.HasPrefix(err.Error(), "EARLY") {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	in := func(when string, ticket job.Ticket, j job.Job) {
		t.Helper()
		if got, _, err := b.offer(ticket, "park", j); err != nil || got[0] != job.Enqueued {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	early("nothing was offered yet", behind("y", 1, "x", 1), jobs[1])
	if n := b.c.Exists(b.ctx, b.keys.Job("j2"), b.keys.Receipt("y")).Val(); n != 0 {
		t.Error("what came early has left something")
	}
	in("the first", job.Ticket{Sequence: "x", Number: 1}, jobs[0])
	in("behind the first", behind("y", 1, "x", 1), jobs[1])
	in("the same again, whose answer was lost", behind("y", 1, "x", 1), jobs[1])
	early("behind one that comes later", behind("y", 2, "x", 2), jobs[3])
	in("behind the second", behind("x", 2, "y", 1), jobs[2])
	in("behind the third", behind("y", 2, "x", 2), jobs[3])
	if got := b.c.LRange(b.ctx, b.keys.Pending(), 0, -1).Val(); !slices.Equal(got, []string{"j4~1", "j3~1", "j2~1", "j1~1"}) {
		t.Errorf("the queue has %v", got)
	}
}
