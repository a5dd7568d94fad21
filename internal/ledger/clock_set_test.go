package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// A gateway counts the life of a key by its own clock, whatever happens to Redis's.
func TestAKeyIsNoYoungerByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, back, after int64 // minutes before the clock is set back, by how much, and after it
		pulses              bool  // pulses see it
		late                bool  // the first call is made after it
		want                job.Opening
	}{
		"the key is over":                      {before: 1, back: 30, after: 60, pulses: true, want: job.OpenUnknown},
		"the key lives":                        {before: 1, back: 30, after: 20, pulses: true, want: job.OpenGo},
		"nobody saw it yet, the key is over":   {before: 61, back: 30, want: job.OpenUnknown},
		"nobody saw it yet, the key lives":     {before: 50, back: 30, want: job.OpenGo},
		"first called since":                   {back: 30, after: 50, pulses: true, late: true, want: job.OpenGo},
		"first called since, and over by now":  {back: 30, after: 61, pulses: true, late: true, want: job.OpenUnknown},
		"set back by more than the key's life": {before: 1, back: 600, after: 1, pulses: true, want: job.OpenUnknown},
		"set back further, and not yet seen":   {before: 59, back: 600, want: job.OpenGo},
		"set back further, over, not yet seen": {before: 61, back: 600, want: job.OpenUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			age := &ledger.Age{Version: "7"}
			b := watched(t, age, func(c *ledger.Config) { c.KeyLifetime, c.Attempts = time.Hour, 9 })
			call := func() {
				id, g := b.pull()
				a, o := b.open(id, g, "w1")
				want(t, "the first call", o, job.OpenGo)
				b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true}, 0))
				b.finish(id, g)
			}
			b.accept("park", job.Job{ID: "j"})
			if !tc.late {
				call()
			}
			b.now += tc.before * minute
			b.must(b.c.HSet(b.ctx, b.keys.Alive(), "at", b.now).Err()) // as pulses since then have written it
			b.now -= tc.back * minute
			if tc.pulses {
				b.pulse()
			}
			if tc.late {
				call()
			}
			b.now += tc.after * minute
			id, g := b.pull()
			_, o := b.open(id, g, "w2")
			want(t, "the second call", o, tc.want)
		})
	}
}

// Scripts that judge a key after a call, and not before the next one, count what Redis's clock was set back, too.
func TestNoScriptTakesAKeyForYoungerByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(*bench, *deadletter.Store, job.Attempt) // what comes before the clock is set back
		want func(*bench) string                          // what comes of the job an hour later
		came string
		most int // attempts allowed
	}{
		"a retry is due": { // the next opening finds that no key covers it
			func(b *bench, _ *deadletter.Store, a job.Attempt) {
				b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 500, Verdict: job.VerdictRetry, Unsure: true, Failed: time.UnixMicro(b.now)}, time.Second))
			},
			func(b *bench) string {
				_, _, err := b.books.MoveDue(b.ctx)
				b.must(err)
				return string(b.record("j").State)
			}, string(job.Queued), 1,
		},
		"its worker died": {
			func(*bench, *deadletter.Store, job.Attempt) {},
			func(b *bench) string {
				b.live(time.Minute, nil)
				return string(b.record("j").Reason)
			}, string(job.UnknownOutcome), 1,
		},
		"look-ups found nothing": {
			func(b *bench, s *deadletter.Store, a job.Attempt) {
				b.must(s.Park(b.ctx, a, job.Ending{Called: true, Verdict: job.VerdictUnknown, At: time.UnixMicro(b.now), Unsure: true}, job.UnknownOutcome))
			},
			func(b *bench) string {
				for _, owner := range []string{"one", "two"} {
					b.came(b.claim(owner), absent(time.Minute), firstLook)
					b.pass(firstLook)
				}
				return fmt.Sprint(b.record("j").State, b.record("j").KeyGeneration)
			}, fmt.Sprint(job.Queued, 2), 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := watched(t, &ledger.Age{Version: "7"}, func(c *ledger.Config) { c.KeyLifetime, c.Attempts = time.Hour, tc.most })
			store := deadletter.New(b.c, b.name)
			store.NowMicros, store.Asks = b.cfg.NowMicros, job.Asks{Unknown: firstLook}
			b.accept("park", job.Job{ID: "j"})
			id, g := b.pull()
			a, _ := b.open(id, g, "w")
			tc.then(b, store, a)
			b.setBack(30 * minute)
			b.now += 60 * minute
			want(t, "it is", tc.want(b), tc.came)
		})
	}
}

// setBack sets Redis's clock back a minute later, and a pulse sees it.
func (b *bench) setBack(by int64) {
	b.now += minute
	b.must(b.c.HSet(b.ctx, b.keys.Alive(), "at", b.now).Err())
	b.now -= by
	b.pulse()
}

// A job whose back-off began before the clock was set back is due when it would have been.
func TestABackOffIsNoLongerByAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	b := watched(t, &ledger.Age{Version: "7"}, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	a, _ := b.open(id, g, "w")
	b.must(b.books.Back(b.ctx, a, job.Ending{Called: true, Status: 503, Verdict: job.VerdictRetry}, 10*time.Second))
	b.now -= 60 * minute
	b.live(9*time.Second, nil)
	moved, next, err := b.books.MoveDue(b.ctx)
	b.must(err)
	want(t, "moved before its time", moved, 0)
	want(t, "next", next, time.Second+500*time.Millisecond)
	want(t, "due", b.record("j").Due.UnixMicro(), b.now+next.Microseconds())
	b.live(2*time.Second, nil)
	moved, _, err = b.books.MoveDue(b.ctx)
	b.must(err)
	want(t, "moved", moved, 1)
}

// A dead worker's attempt from before the clock was set back is judged at its deadline. One that was opened since is not judged before its own.
func TestAnAttemptIsJudgedInTimeAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := watched(t, &ledger.Age{Version: "7"}, nil)
	b.accept("park", job.Job{ID: "before"}, job.Job{ID: "since"})
	first, g := b.pull()
	b.open(first, g, "dead")
	b.now -= 60 * minute
	second, g2 := b.pull()
	b.open(second, g2, "dead too") // nobody has seen it yet
	b.pulse()
	deadline := b.record(second).Deadline
	want(t, "the deadline of the later one", deadline.UnixMicro() > b.now, true)
	did, after := b.live(2*time.Minute, func(time.Duration) {
		if r := b.record(second); r.State != job.InFlight && time.UnixMicro(b.now).Before(deadline) {
			t.Fatalf("%s was judged %v before its deadline", second, deadline.Sub(time.UnixMicro(b.now)))
		}
	})
	want(t, "reclaimed", did.Reclaimed, 2)
	if after > time.Minute {
		t.Errorf("the first of them after %v", after)
	}
}

// A task that a dead worker had pulled and not opened comes back at once.
func TestAPulledTaskComesBackAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := watched(t, &ledger.Age{Version: "7"}, nil)
	b.accept("park", job.Job{ID: "j"})
	id, g := b.pull()
	b.beat(0, job.TaskID(id, g))
	b.now -= 60 * minute
	did, after := b.live(time.Minute, nil)
	want(t, "given back", did.Requeued, 1)
	if after > 45*time.Second { // its lease, and a while to see that nobody extends it
		t.Errorf("after %v", after)
	}
}
