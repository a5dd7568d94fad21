package ledger_test

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// ahead is a bench with a batch whose first jobs go ahead.
func ahead(t *testing.T, first int64) (*bench, *deadletter.Store) {
	t.Helper()
	b, store := braking(t, usualBrake)
	if holds, err := b.books.SendAhead(b.ctx, "p", first); err != nil || !holds {
		t.Fatal(holds, err)
	}
	return b, store
}

// admitted readmits what waits for room.
func (b *bench) admitted() {
	b.t.Helper()
	waiting, err := b.rejected(100)
	b.must(err)
	b.now += 10e6
	_, _, err = b.books.Readmit(b.ctx, waiting)
	b.must(err)
}

func TestTheRestWaitsForTheFirstJobs(t *testing.T) {
	t.Parallel()
	b, store := ahead(t, 3)
	jobs := members("p", 1, 6)
	b.accept("park", jobs[0], member("x", "q"), jobs[1])
	if got := b.accept("fail", jobs[0], jobs[2], jobs[3]); !slices.Equal(got, []job.Admittance{job.Duplicate, job.Enqueued, job.ParkedNow}) {
		t.Errorf("the third is %v", got)
	}
	b.accept("park", jobs[4:]...)
	if r := b.record("p4"); r.Reason != job.Paused || r.Error != "its batch waits until its first 3 jobs are done" {
		t.Errorf("the fourth is parked as %s: %s", r.Reason, r.Error)
	}
	for range 3 { // p1, x and p2
		if _, opening := b.answers(store, true); opening != job.OpenGo {
			t.Fatalf("opened: %s", opening)
		}
	}
	if did := b.shelve(); did != nil {
		t.Errorf("two of three are done, and %v", did)
	}
	if id, _ := b.answers(store, true); id != "p3" {
		t.Errorf("%s was next", id)
	}
	if c := b.batch("p").Canary; c.Jobs != 3 || c.Done != 3 || !c.Waits {
		t.Errorf("the books say %+v", c)
	}
	if did := b.shelve(); !slices.Equal(did, []string{"release p 3"}) {
		t.Errorf("a dispatcher did %v", did)
	}
	if got := b.parkedAs(job.Rejected); !slices.Equal(got, []string{"p4", "p5", "p6"}) {
		t.Errorf("waiting for room are %v", got)
	}
	b.admitted()
	if got := b.pending(); !slices.Equal(got, []string{"p4", "p5", "p6"}) {
		t.Errorf("in the queue are %v", got)
	}
	if got := b.accept("park", member("p7", "p")); got[0] != job.Enqueued || b.batch("p").Canary.Waits {
		t.Errorf("then a newcomer is %v, and the books say %+v", got, b.batch("p").Canary)
	}
	if holds, err := b.books.SendAhead(b.ctx, "p", 3); err != nil || !holds {
		t.Errorf("said again: %v, %v", holds, err)
	}
	b.clean("let go")
}

// Between the end of the first jobs and the work of a dispatcher, and while that goes through the batch, newcomers stay behind those that wait.
func TestNewcomersDoNotOvertakeARelease(t *testing.T) {
	t.Parallel()
	b, store := ahead(t, 1)
	b.accept("park", members("p", 1, 2)...)
	b.answers(store, true)
	if got := b.accept("park", member("p3", "p")); got[0] != job.ParkedNow {
		t.Errorf("a newcomer is %v", got)
	}
	b.shelve()
	if got := b.accept("park", member("p4", "p")); got[0] != job.ParkedNow {
		t.Errorf("one behind those that wait for room is %v", got)
	}
	b.admitted()
	if got := b.pending(); !slices.Equal(got, []string{"p2", "p3", "p4"}) {
		t.Errorf("in the queue are %v", got)
	}
	b.clean("let go")
}

// At a gateway that accepts payments and pays them later, the first jobs have done their part when they are accepted: once each, even if a person settles one.
func TestTheFirstJobsMayBeAccepted(t *testing.T) {
	t.Parallel()
	b, store := ahead(t, 3)
	b.accept("park", members("p", 1, 5)...)
	accepted := func() string {
		id, generation := b.pull()
		a, _ := b.open(id, generation, id)
		b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 202, Verdict: job.VerdictAccepted, At: time.UnixMicro(b.now)}, job.UnknownOutcome))
		return id
	}
	first := accepted()
	accepted()
	b.took(store.Resolve(b.ctx, b.back(first), b.cfg.Dedupe, "po_1"))
	if did := b.shelve(); did != nil {
		t.Errorf("two of three are accepted, and %v", did)
	}
	b.answers(store, true)
	if did := b.shelve(); !slices.Equal(did, []string{"release p 2"}) {
		t.Errorf("a dispatcher did %v", did)
	}
	b.clean("let go")
}

func TestOneOfTheFirstJobsStopsTheRest(t *testing.T) {
	t.Parallel()
	const first = " of its first 3 jobs"
	for name, tc := range map[string]struct {
		end func(b *bench, store *deadletter.Store)
		why string
	}{
		"refused": {func(b *bench, s *deadletter.Store) { b.answers(s, false) }, "1" + first + " is parked as refused: HTTP 400"},
		"exhausted": {func(b *bench, s *deadletter.Store) {
			id, generation := b.pull()
			a, _ := b.open(id, generation, "o")
			b.must(s.Park(b.ctx, a, job.Ending{Called: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, job.Exhausted))
		}, "1" + first + " is parked as exhausted: HTTP 500"},
		"its worker dies": {func(b *bench, _ *deadletter.Store) {
			id, generation := b.pull()
			b.open(id, generation, "o")
			b.now += 48 * 3600e6
			_, err := b.books.Sweep(b.ctx)
			b.must(err)
		}, "1" + first + " is parked as unknown_outcome"},
		"a person parks it": {func(b *bench, _ *deadletter.Store) { b.took(b.books.Withdraw(b.ctx, b.back("p2"), "no")) }, "1" + first + " is parked as cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := ahead(t, 3)
			b.accept("park", members("p", 1, 5)...)
			tc.end(b, store)
			batch := b.batch("p")
			if batch.Why != tc.why || batch.Paused.IsZero() || !batch.Braked || batch.Canary.Waits {
				t.Fatalf("the books say %+v, want %q", batch, tc.why)
			}
			b.shelve()
			if got := b.pending(); len(got) != 0 || len(b.parkedAs(job.Paused)) != 4 {
				t.Errorf("in the queue are %v, paused %v", got, b.parkedAs(job.Paused))
			}
			b.clean("stopped")
			b.must(b.books.ResumeBatch(b.ctx, "p", noted))
			b.admitted()
			if got := b.pending(); len(got) != 4 {
				t.Errorf("resumed, in the queue are %v", got)
			}
			b.clean("resumed")
		})
	}
}

// A person who resumes, pauses or cancels the batch has decided: no job waits for the first ones any more.
func TestAPersonEndsTheWaitForTheFirstJobs(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"resume", "pause", "cancel"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b, store := ahead(t, 2)
			b.accept("park", members("p", 1, 4)...)
			want := map[job.Reason][]string{job.Rejected: {"p3", "p4"}}
			switch what {
			case "resume":
				b.must(b.books.ResumeBatch(b.ctx, "p", noted))
			case "pause":
				want = map[job.Reason][]string{job.Paused: {"p3", "p4", "p1", "p2"}}
				b.must(b.books.PauseBatch(b.ctx, "p", "me", "w", noted))
			case "cancel":
				want = map[job.Reason][]string{job.Cancelled: {"p1", "p2", "p3", "p4"}}
				b.must(b.books.CancelBatch(b.ctx, "p", "me", "w", 0, noted))
			}
			b.wantParked(what, want)
			if what == "resume" {
				b.answers(store, false)
			}
			if b.batch("p").Braked || b.batch("p").Canary.Waits || b.shelve() != nil {
				t.Errorf("the books say %+v", b.batch("p"))
			}
		})
	}
}

// A release that a person's pause has overtaken is not carried out, and is removed from the list.
func TestAPauseOvertakesARelease(t *testing.T) {
	t.Parallel()
	b, store := ahead(t, 1)
	b.accept("park", members("p", 1, 3)...)
	b.answers(store, true)
	b.c.HSet(b.ctx, b.keys.Batch("p"), "paused", b.now)
	if b.shelve(); b.c.Exists(b.ctx, b.keys.Shelving()).Val() != 0 {
		t.Error("it is to be done yet")
	}
	if got := b.parkedAs(job.Paused); !slices.Equal(got, []string{"p2", "p3"}) {
		t.Errorf("paused are %v", got)
	}
}

// It is too late for a batch that has jobs, and books without jobs expire.
func TestOnlyABatchThatIsToComeHasFirstJobs(t *testing.T) {
	t.Parallel()
	b, _ := ahead(t, 2)
	if ttl := b.c.PTTL(b.ctx, b.keys.Batch("p")).Val(); ttl < 29*24*time.Hour {
		t.Errorf("books without a job go in %v: an enqueue may wait that long for room, or they stay for good", ttl)
	}
	b.accept("park", member("p1", "p"), member("q1", "q"))
	if ttl := b.c.PTTL(b.ctx, b.keys.Batch("p")).Val(); ttl >= 0 {
		t.Errorf("a job came, and the books go in %v", ttl)
	}
	if holds, err := b.books.SendAhead(b.ctx, "q", 2); err != nil || holds {
		t.Errorf("of a batch that has a job: %v, %v", holds, err)
	}
	if b.batch("q").Canary.Jobs != 0 {
		t.Error("it was written down")
	}
}
