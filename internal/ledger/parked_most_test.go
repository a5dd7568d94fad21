package ledger_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// The bound is on all parked jobs, but it turns away only newcomers: a job that was called is parked even beyond it.
func TestTheBoundIsForNewcomersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, func(cfg *ledger.Config) { cfg.Parked.Jobs, cfg.InOrder = 2, false })
	b.accept("park", numbered(1, 3)...)
	store := deadletter.New(b.c, b.name)
	for range 3 {
		id, generation := b.pull()
		a, _ := b.open(id, generation, "w")
		b.must(store.Park(b.ctx, a, job.Ending{Error: "declined"}, job.Refused))
	}
	if n := b.c.ZCard(b.ctx, b.keys.Parked(string(job.Refused))).Val(); n != 3 {
		t.Errorf("%d were parked", n)
	}
	want(t, "a newcomer without room", b.accept("park", numbered(4, 4)...)[0], job.Full)
	b.now += 10_000
	want(t, "a newcomer with room", b.accept("park", numbered(4, 4)...)[0], job.Enqueued)
	b.took(store.Discard(b.ctx, b.back("j1"), time.Hour))
	b.took(store.Discard(b.ctx, b.back("j2"), time.Hour))
	want(t, "a newcomer when some were discarded", b.accept("park", numbered(5, 5)...)[0], job.ParkedNow)
	want(t, "one more", b.accept("park", numbered(6, 6)...)[0], job.Full)
}

// The bound of bytes is on the payloads as they are stored, whole or in pieces. A replaced payload of a parked job counts, too. Calls
// and parking meanwhile leave the sum exact.
func TestTheBytesOfWhatIsParkedAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(cfg *ledger.Config) { cfg.Parked.Bytes, cfg.InOrder = 3000, false })
	parked := func(want int64) {
		t.Helper()
		s, err := b.books.Look(b.ctx)
		if b.must(err); s.ParkedBytes != want {
			t.Errorf("%d bytes are parked, not %d", s.ParkedBytes, want)
		}
		b.clean("with bytes counted")
	}
	long := func(n, size int) job.Job {
		return job.Job{ID: fmt.Sprintf("j%d", n), Payload: fmt.Appendf(nil, `{"n":%0*d}`, size-6, 0)}
	}
	want(t, "with room", b.accept("park", long(1, 500))[0], job.Enqueued)
	parked(0)
	for i, size := range []int{20, 64, 65, 512, 513} { // one piece, several, and whole
		want(t, "without room", b.accept("park", long(2+i, size))[0], job.ParkedNow)
	}
	parked(1174)
	if got, room, err := b.offer(job.Ticket{Sequence: "x", Number: 1}, "park", long(8, 1000), long(9, 827), long(10, 1)); err != nil || got[0] != job.ParkedNow || got[1] != job.Full || got[2] != job.Full || room.Parked.Bytes != 3000 || room.Parked.Jobs != 0 {
		t.Error("beyond the bound:", got, room, err)
	}
	parked(2174)
	want(t, "up to the bound", b.accept("park", long(11, 826))[0], job.ParkedNow)
	parked(3000)
	store := deadletter.New(b.c, b.name)
	b.took(store.Discard(b.ctx, b.back("j11"), time.Hour))
	parked(2174)
	id, generation := b.pull()
	a, _ := b.open(id, generation, "w")
	b.must(store.Park(b.ctx, a, job.Ending{Error: "declined"}, job.Refused))
	parked(2674)
	b.now += 10_000_000
	answers, _, err := b.books.Readmit(b.ctx, b.back("j8"))
	b.must(err)
	want(t, "with room again", answers[0], job.Enqueued)
	parked(1674)
}

// However many offers come at once, there are never more parked jobs than allowed.
func TestTheBoundHoldsForManyProducersAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, func(cfg *ledger.Config) { cfg.Parked.Jobs = 1000 })
	var all sync.WaitGroup
	var mu sync.Mutex
	told := map[job.Admittance]int{}
	for p := range 8 {
		all.Go(func() {
			for n := range 10 {
				from := 1000*p + 100*n
				jobs := numbered(from+1, from+77)
				if n%2 == 1 {
					jobs[5].Cost = 1 + int64(p%2)
				}
				answers := b.accept("park", jobs...)
				mu.Lock()
				for _, a := range answers {
					told[a]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if n := b.c.ZCard(b.ctx, b.keys.Parked(string(job.Rejected))).Val(); n != 1000 || told[job.ParkedNow] != 1000 || told[job.Enqueued] != 1 || told[job.Full] != 8*10*77-1001 {
		t.Errorf("%d are parked; told %v", n, told)
	}
}

// An offer behind one whose jobs could not be parked changes nothing, even if there is room by then.
func TestNothingOvertakesWhatCouldNotBeParked(t *testing.T) {
	t.Parallel()
	for _, bound := range []job.ParkedBound{{Jobs: 1}, {Bytes: 10}} {
		t.Run(fmt.Sprintf("%+v", bound), func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1, func(cfg *ledger.Config) { cfg.Parked, cfg.InOrder = bound, false })
			if got, room, err := b.offer(job.Ticket{Sequence: "x", Number: 1}, "park", numbered(1, 3)...); err != nil || got[2] != job.Full || room.Parked != bound {
				t.Fatal(got, room, err)
			}
			b.now += 10_000_000
			behind := job.Ticket{Sequence: "y", Number: 1, Behind: job.Place{Sequence: "x", Number: 1}}
			if got, _, err := b.offer(behind, "park", numbered(4, 4)...); err == nil {
				t.Errorf("what overtakes: %v", got)
			}
			if _, there, err := b.books.Find(b.ctx, "j4"); there || err != nil {
				t.Error("it is in", err)
			}
		})
	}
}
