package ledger_test

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// waiters are jobs that wait in every possible way, and the generation of each.
func (b *bench) waiters() []job.Return {
	b.t.Helper()
	later := member("scheduled", "w")
	later.At = time.UnixMicro(b.now + 60e6)
	dear := member("dear", "w")
	dear.Cost = 3
	b.accept("park", member("retrying", "w"), member("unsure", "w"), member("back", "w"), member("queued", "w"), dear, later, member("other", "w"))
	id, generation := b.pull()
	a, _ := b.open(id, generation, "o")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 429, Verdict: job.VerdictRetry, At: time.UnixMicro(b.now)}, time.Minute))
	b.finish(id, generation)
	b.lost("unsure", time.Minute)
	b.lost("back", 0)
	return b.back("retrying", "unsure", "back", "queued", "dear", "scheduled")
}

// A person takes jobs out of the queue by hand, wherever they wait. They come back by a replay, and are not called before.
func TestJobsThatWaitAreParkedByHand(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*bench){"a server": func(*bench) {}, "the Redis inside": (*bench).inside} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 20, func(c *ledger.Config) { c.Money = eurosOrMore })
			on(b)
			b.parksByHand(t)
		})
	}
}

func (b *bench) parksByHand(t *testing.T) {
	jobs := b.waiters()
	for _, want := range []bool{true, false} {
		taken, err := b.books.Withdraw(b.ctx, jobs, "parked by me: wrong customer")
		b.must(err)
		if slices.Contains(taken, !want) || len(taken) != 6 {
			t.Fatalf("taken %v, want %v for all", taken, want)
		}
	}
	if got, want := b.parkedAs(job.Cancelled), []string{"retrying", "queued", "dear", "scheduled"}; !slices.Equal(got, want) {
		t.Errorf("cancelled are %v, want %v", got, want)
	}
	if got, want := b.parkedAs(job.UnknownOutcome), []string{"unsure", "back"}; !slices.Equal(got, want) {
		t.Errorf("of unknown outcome are %v, want %v", got, want)
	}
	if got := b.pending(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("in the queue are %v", got)
	}
	if n := b.c.HLen(b.ctx, b.keys.Costs()).Val(); n != 0 {
		t.Errorf("%d costs are left", n)
	}
	if r := b.record("queued"); r.Error != "parked by me: wrong customer" || !r.Due.IsZero() {
		t.Errorf("queued: %+v", r)
	}
	if r := b.record("unsure"); r.Error != "parked by me: wrong customer; an earlier call may have charged" {
		t.Errorf("unsure: %q", r.Error)
	}
	b.clean("parked by hand")
	got, _, err := b.books.Readmit(b.ctx, b.back("queued", "dear", "scheduled"))
	b.must(err)
	if !slices.Equal(got, []job.Admittance{job.Enqueued, job.Enqueued, job.Enqueued}) || b.record("scheduled").State != job.Scheduled {
		t.Errorf("replayed: %v", got)
	}
	b.clean("replayed")
}

// A task that a worker pulled before its job was taken out is stale: it is not called.
func TestAJobParkedByHandUnderAWorkersHandsIsNotCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, 20, nil)
	b.accept("park", member("a", ""))
	id, generation := b.pull()
	taken, err := b.books.Withdraw(b.ctx, b.back("a"), "parked by me: w")
	b.must(err)
	if _, opening := b.open(id, generation, "w"); !taken[0] || opening != job.OpenStale {
		t.Errorf("taken %v, and opened: %s", taken, opening)
	}
	b.finish(id, generation)
	b.clean("pulled")
}

// A job that is in flight, parked or over is left alone, and so is a job that has gone in again since it was looked at.
func TestOnlyJobsThatWaitAreTakenOut(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, nil)
	b.accept("park", member("flying", ""), member("done", ""), member("moved", ""), member("parked", ""))
	jobs := b.back("flying", "done", "moved", "parked")
	jobs[2].Generation++
	id, generation := b.pull()
	b.open(id, generation, "w")
	id, generation = b.pull()
	a, _ := b.open(id, generation, "w2")
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now)}))
	taken, err := b.books.WithdrawForGood(b.ctx, jobs, ledger.Discarding{Why: "w", Dedupe: time.Hour})
	b.must(err)
	if slices.Contains(taken, true) || b.record("flying").State != job.InFlight || b.record("moved").State != job.Queued || b.record("parked").Reason != job.Rejected {
		t.Errorf("taken %v", taken)
	}
}

func TestJobsThatWaitAreDiscardedInOneStep(t *testing.T) {
	t.Parallel()
	b := setup(t, 20, func(c *ledger.Config) { c.Money = eurosOrMore })
	jobs := b.waiters()
	entry := deadletter.New(b.c, b.name).Entry(deadletter.Act{Who: "me", What: "discard"})
	b.must(entry.Begin(b.ctx))
	taken, err := b.books.For(entry.Place).WithdrawForGood(b.ctx, jobs, ledger.Discarding{Why: "discarded by me: w", Dedupe: time.Hour, MayBeCharged: true})
	b.must(err)
	if slices.Contains(taken, false) {
		t.Fatalf("taken %v", taken)
	}
	for _, j := range jobs {
		r := b.record(j.ID)
		if ttl := b.c.PTTL(b.ctx, b.keys.Job(j.ID)).Val(); r.State != job.Discarded || r.Error == "" || ttl <= 59*time.Minute {
			t.Errorf("%s is %s (%q), known for %v", j.ID, r.State, r.Error, ttl)
		}
	}
	if a := b.clean("discarded"); a.Discarded != 6 {
		t.Errorf("%d are discarded", a.Discarded)
	}
	if n := b.c.HGet(b.ctx, b.keys.Acts(), "0").Val(); n != "6" {
		t.Errorf("the act has %s jobs", n)
	}
}

// A person who looked at a job before its call knows nothing of that call. A discard takes no job that may have been charged since, unless told to.
func TestAJobThatMayBeChargedByNowIsNotDiscardedUnasked(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		b := setup(t, 20, nil)
		jobs := b.waiters()
		doubtful := []bool{false, true, true, false, false, false}
		taken, err := b.books.WithdrawForGood(b.ctx, jobs, ledger.Discarding{Why: "w", Dedupe: time.Hour, MayBeCharged: allowed})
		b.must(err)
		for i, j := range jobs {
			want := allowed || !doubtful[i]
			if r := b.record(j.ID); taken[i] != want || (r.State == job.Discarded) != want || !want && !r.Unsure {
				t.Errorf("allowed %v: %s taken %v, it is %s, unsure %v", allowed, j.ID, taken[i], r.State, r.Unsure)
			}
		}
		b.clean("discarded")
	}
}

// The success of a call that stalled counts even if a person has taken its job out of the queue meanwhile, or has settled it.
func TestALateSuccessCountsAfterItsJobWasTakenOut(t *testing.T) {
	t.Parallel()
	taken := func(_ []bool, err error) error { return err }
	for name, act := range map[string]func(*bench) error{
		"parked": func(b *bench) error { return taken(b.books.Withdraw(b.ctx, b.back("a"), "x")) },
		"discarded": func(b *bench) error {
			return taken(b.books.WithdrawForGood(b.ctx, b.back("a"), ledger.Discarding{Dedupe: time.Hour, MayBeCharged: true}))
		},
		"cancelled": func(b *bench) error {
			return b.books.CancelBatch(b.ctx, "w", "me", "x", time.Second, func(ledger.Shelved) error { return nil })
		},
		"settled": func(b *bench) error {
			b.must(taken(b.books.Withdraw(b.ctx, b.back("a"), "x")))
			r := b.record("a")
			_, _, err := b.books.Readmit(b.ctx, []job.Return{{ID: "a", Generation: r.Generation, Reason: r.Reason, Key: job.SettleKey}})
			return err
		},
	} {
		for _, wait := range []time.Duration{0, time.Minute} {
			b := setup(t, 20, nil)
			b.accept("park", member("a", "w"))
			id, generation := b.pull()
			stalled, _ := b.open(id, generation, "o1")
			b.now += 3600e6
			second, _ := b.open(id, generation, "o2")
			b.must(b.books.Back(b.ctx, second, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true, At: time.UnixMicro(b.now)}, wait))
			b.must(act(b))
			b.clean(name)
			b.must(b.books.Done(b.ctx, stalled, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now), Reference: "ch"}))
			if r := b.record("a"); r.State != job.Done {
				t.Errorf("%s, back-off %v: %s %s", name, wait, r.State, r.Reason)
			}
			b.clean(name + ", late success")
		}
	}
}
