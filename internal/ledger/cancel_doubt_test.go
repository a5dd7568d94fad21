package ledger_test

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// lost pulls the next job, which must be this one, and the answer to its call is lost: it may have been charged. Then it waits out a back-off, or is at
// the head of the queue if there is none.
func (b *bench) lost(id string, wait time.Duration) {
	b.t.Helper()
	pulled, generation := b.pull()
	a, opening := b.open(pulled, generation, "w")
	if pulled != id || opening != job.OpenGo {
		b.t.Fatalf("%s opened: %s", pulled, opening)
	}
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, wait))
	b.finish(pulled, generation)
}

// Three calls were charged, and their answers were lost. Wherever their jobs wait, a cancel does not report them as not sent.
func TestACancelSaysWhatMayHaveBeenCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, func(c *ledger.Config) { c.Money = eurosOrMore })
	b.accept("park", member("retrying", "bad"), member("held", "bad"), member("flying", "bad"), member("new", "bad"), member("other", "good"))
	b.lost("retrying", time.Minute)
	id, generation := b.pull()
	held, _ := b.open(id, generation, "w2")
	id, generation = b.pull()
	flying, _ := b.open(id, generation, "w3")
	unsure := job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}
	b.must(b.books.Back(b.ctx, held, unsure, 0))
	b.finish("held", held.Generation)
	var sum ledger.Shelved
	b.must(b.books.CancelBatch(b.ctx, "bad", "me", "mistake", 0, func(s ledger.Shelved) error { sum.Add(s); return nil }))
	b.must(b.books.Back(b.ctx, flying, unsure, 0))
	b.finish("flying", flying.Generation)
	a := b.meets("flying", "its batch was cancelled: mistake")
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Cancelled))
	if got, want := b.parkedAs(job.UnknownOutcome), []string{"retrying", "held", "flying"}; !slices.Equal(got, want) {
		t.Errorf("of unknown outcome are %v, want %v", got, want)
	}
	if got, want := b.parkedAs(job.Cancelled), []string{"new"}; !slices.Equal(got, want) {
		t.Errorf("cancelled are %v, want %v", got, want)
	}
	if sum.Jobs != 3 || sum.Doubt.Jobs != 2 || sum.Doubt.Amount["EUR"].Int64() != 200 {
		t.Errorf("it did %+v", sum)
	}
	const says = "its batch was cancelled: mistake; an earlier call may have charged"
	for _, id := range []string{"retrying", "held", "flying"} {
		if r := b.record(id); r.Error != says || !r.Unsure {
			t.Errorf("%s: %q, may have charged %v", id, r.Error, r.Unsure)
		}
	}
	b.clean("cancelled")
}

// A pause leaves such jobs as they are: once resumed, they continue with their key. If the pause becomes a cancel, they don't.
func TestAPauseThatBecomesACancelSaysWhatMayHaveBeenCharged(t *testing.T) {
	t.Parallel()
	b := setup(t, 9, nil)
	b.accept("park", member("a", "p"), member("back", "p"), member("b", "p"), member("c", "p"))
	b.lost("a", time.Minute)
	id, generation := b.pull()
	back, _ := b.open(id, generation, "w2")
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "w", noted))
	b.must(b.books.Back(b.ctx, back, job.Ending{Called: true, Spent: true, Unsure: true, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, 0))
	b.finish("back", back.Generation)
	paused := b.meets("back", "its batch is paused: w")
	b.must(deadletter.New(b.c, b.name).Park(b.ctx, paused, job.Ending{Error: paused.LastError}, job.Paused))
	if got, want := b.parkedAs(job.Paused), []string{"a", "b", "c", "back"}; !slices.Equal(got, want) {
		t.Errorf("paused are %v, want %v", got, want)
	}
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "w", noted))
	var sum ledger.Shelved
	b.must(b.books.CancelBatch(b.ctx, "p", "me", "mistake", 0, func(s ledger.Shelved) error { sum.Add(s); return nil }))
	if got, want := b.parkedAs(job.UnknownOutcome), []string{"a", "back"}; !slices.Equal(got, want) {
		t.Errorf("of unknown outcome are %v, want %v", got, want)
	}
	if got, want := b.parkedAs(job.Cancelled), []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("cancelled are %v, want %v", got, want)
	}
	if sum.Jobs != 4 || sum.Doubt.Jobs != 2 {
		t.Errorf("it did %+v", sum)
	}
	b.clean("cancelled")
	if r := b.record("a"); r.Error != "its batch was cancelled: mistake; an earlier call may have charged" {
		t.Errorf("a: %q", r.Error)
	}
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	if got := b.parkedAs(job.UnknownOutcome); len(got) != 2 {
		t.Errorf("after the resume of unknown outcome are %v", got)
	}
}
