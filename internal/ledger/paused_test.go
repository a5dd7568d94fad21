package ledger_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// parkedBy returns the parked jobs by reason.
func (b *bench) parkedBy() map[job.Reason][]string {
	all := map[job.Reason][]string{}
	for _, r := range job.Reasons() {
		if ids := b.parkedAs(r); len(ids) > 0 {
			all[r] = ids
		}
	}
	return all
}

func (b *bench) wantParked(when string, want map[job.Reason][]string) {
	b.t.Helper()
	got := b.parkedBy()
	for _, r := range job.Reasons() {
		if !slices.Equal(got[r], want[r]) {
			b.t.Errorf("%s: %s are %v, want %v", when, r, got[r], want[r])
		}
	}
	b.clean(when)
}

// A job of a paused batch says so by its reason, and not by its error, in whichever way it comes to be parked: queued, scheduled, in a back-off, without room, new
// in a chunk of its own or among others, in any mode, or back from a call. Texts that people type decide nothing.
func TestWhateverAPauseParksHasItsReason(t *testing.T) {
	t.Parallel()
	const odd = "its batch was cancelled: no, its batch is paused: "
	b := setup(t, 6, func(c *ledger.Config) { c.Money = eurosOrMore })
	later := member("later", "p")
	later.At = time.UnixMicro(b.now + 60e6)
	b.accept("park", member("flying", "p"), member("again", "p"), member("queued", "p"), member("lone", "p"), later, member("x", "q"), member("full", "p"))
	id, generation := b.pull()
	flying, _ := b.open(id, generation, "o")
	id, generation = b.pull()
	again, _ := b.open(id, generation, "o2")
	b.must(b.books.Back(b.ctx, again, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, time.Minute))
	taken, err := b.books.Withdraw(b.ctx, b.back("lone"), "its batch is paused")
	if b.must(err); !taken[0] {
		t.Fatal("a job that waits was not parked by hand")
	}
	b.must(b.books.PauseBatch(b.ctx, "p", "me", odd, noted))
	b.accept("park", member("plain", "p"))
	b.accept("fail", member("mixed", "p"), member("y", "q"))
	b.must(b.books.Back(b.ctx, flying, job.Ending{}, 0))
	b.finish(flying.Job.ID, flying.Generation)
	id, generation = b.pull()
	b.finish(id, generation)
	a, opening := b.open(id, generation, "w")
	if id != "flying" || opening != "paused" {
		t.Fatalf("%s opened: %s", id, opening)
	}
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Paused))
	b.wantParked("paused", map[job.Reason][]string{job.Paused: {"again", "queued", "later", "full", "plain", "mixed", "flying"}, job.Cancelled: {"lone"}})

	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.wantParked("resumed", map[job.Reason][]string{job.Rejected: {"flying", "again", "queued", "later", "full", "plain", "mixed"}, job.Cancelled: {"lone"}})
}

// Older versions parked the jobs of a paused batch as cancelled. Each act on the batch still knows those jobs.
func TestWhatAnOlderVersionHasPausedIsTakenIn(t *testing.T) {
	t.Parallel()
	act := map[string]func(b *bench) error{
		"resume": func(b *bench) error { return b.books.ResumeBatch(b.ctx, "p", noted) },
		"pause":  func(b *bench) error { return b.books.PauseBatch(b.ctx, "p", "me", "still", noted) },
		"cancel": func(b *bench) error { return b.books.CancelBatch(b.ctx, "p", "me", "mistake", 0, noted) },
	}
	for what, want := range map[string]map[job.Reason][]string{
		"resume": {job.Rejected: {"a", "b"}, job.Cancelled: {"gone"}},
		"pause":  {job.Paused: {"a", "b"}, job.Cancelled: {"gone"}},
		"cancel": {job.Cancelled: {"gone", "a", "b"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 6, func(c *ledger.Config) { c.Money = eurosOrMore })
			b.accept("park", member("gone", "p"), member("a", "p"), member("b", "p"))
			old := func(why string, ids ...string) {
				taken, err := b.books.Withdraw(b.ctx, b.back(ids...), why)
				if b.must(err); slices.Contains(taken, false) {
					t.Fatal("not parked")
				}
			}
			old("its batch was cancelled: its batch is paused: no", "gone")
			old("its batch is paused: bank closed", "a", "b")
			b.must(act[what](b))
			b.wantParked(what, want)
		})
	}
}

// A resume that was broken off is finished by a dispatcher, and one that goes on is left to its operator.
func TestABrokenOffResumeIsFinished(t *testing.T) {
	t.Parallel()
	b := setup(t, 10, func(c *ledger.Config) { c.Money = eurosOrMore })
	b.accept("park", members("p", 1, 450)...)
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "a look", noted))
	left := func() int { return len(b.parkedAs(job.Paused)) }
	resumes, took := ledger.Resumes{}, int64(0)
	look := func(times int) {
		for range times {
			b.must(b.books.Shelve(b.ctx, resumes, func(batch, what string, jobs int64) {
				if took += jobs; batch != "p" || what != "resume" {
					t.Errorf("%s of %s", what, batch)
				}
			}))
		}
	}
	killed := errors.New("killed")
	b.must(b.books.ResumeBatch(b.ctx, "p", func(ledger.Shelved) error {
		look(9)
		return nil
	}))
	if left() != 0 || took != 0 || b.c.Exists(b.ctx, b.keys.Shelving()).Val() != 0 {
		t.Errorf("after a resume of its own: %d jobs are paused still, %d were taken over, or an entry is left", left(), took)
	}

	b.must(b.books.PauseBatch(b.ctx, "p", "me", "another look", noted))
	if err := b.books.ResumeBatch(b.ctx, "p", func(ledger.Shelved) error { return killed }); !errors.Is(err, killed) || left() != 250 {
		t.Fatalf("broken off with %v, %d left", err, left())
	}
	if look(9); left() != 250 || took != 0 {
		t.Fatalf("%d left, %d taken over: too early", left(), took)
	}
	if look(1); left() != 0 || took != 250 || b.c.Exists(b.ctx, b.keys.Shelving()).Val() != 0 {
		t.Errorf("%d left, %d taken over, or an entry is left", left(), took)
	}
	b.clean("at the end")

	b.must(b.books.PauseBatch(b.ctx, "p", "me", "a third look", noted))
	if err := b.books.ResumeBatch(b.ctx, "p", func(ledger.Shelved) error { return killed }); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "no, stay", noted))
	if look(20); left() != 450 {
		t.Errorf("%d are paused after the pause that came behind: a resume of before went on", left())
	}
}
