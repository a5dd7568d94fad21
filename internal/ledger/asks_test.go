package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// firstLook is how long after the end of a call these gateways are asked.
const firstLook = 5 * time.Second

// asks makes a gateway that can be asked.
func asks(t *testing.T, change func(*ledger.Config)) (*bench, *deadletter.Store) {
	t.Helper()
	b := setup(t, 1000, func(c *ledger.Config) {
		c.Asks = job.Asks{Unknown: firstLook, Accepted: firstLook}
		if change != nil {
			change(c)
		}
	})
	store := deadletter.New(b.c, b.name)
	store.NowMicros, store.Asks, store.Brake = b.cfg.NowMicros, b.cfg.Asks, b.cfg.Brake
	return b, store
}

// inDoubt makes the next job be called without an answer.
func (b *bench) inDoubt(s *deadletter.Store) job.Attempt {
	b.t.Helper()
	id, generation := b.pull()
	a, opening := b.open(id, generation, "w")
	if opening != job.OpenGo {
		b.t.Fatalf("%s: %s", id, opening)
	}
	e := job.Ending{Called: true, Spent: true, Verdict: job.VerdictUnknown, At: time.UnixMicro(b.now), Unsure: true, Error: "no answer"}
	b.must(s.Park(b.ctx, a, e, job.UnknownOutcome))
	return a
}

// claim claims the next look-up.
func (b *bench) claim(owner string) job.Look {
	b.t.Helper()
	l, next, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: owner, For: 30 * time.Second})
	if b.must(err); !ok {
		b.t.Fatalf("nothing to claim; the next look-up is due in %s", next)
	}
	return l
}

// ends ends a look-up, and returns what became of the job.
func (b *bench) came(l job.Look, f job.Finding, next time.Duration) string {
	b.t.Helper()
	came, err := b.books.EndLook(b.ctx, l, ledger.LookEnd{Finding: f, At: time.UnixMicro(b.now), Next: next, Least: firstLook})
	b.must(err)
	return came
}

func absent(after time.Duration) job.Finding {
	return job.Finding{Verdict: job.LookNotDone, After: after, Error: "not there"}
}

func (b *bench) pass(d time.Duration) { b.now += d.Microseconds() }

// "No such payment" is believed from the second look-up in a row that says so, and not before the gateway can know.
func TestNotDoneIsBelievedTwiceAndInTime(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", job.Job{ID: "a", Payload: []byte(`{"n":1}`)})
	b.inDoubt(store)
	ended := b.now
	if n, next, err := b.books.MayAsk(b.ctx, nil); err != nil || n != 0 || next != firstLook {
		t.Fatalf("%d look-ups may be made, the next in %s, %v", n, next, err)
	}
	looks := []struct {
		wait time.Duration // until the look-up
		says job.Finding
		next time.Duration // of the schedule
		came string
		due  time.Duration // until the next one
	}{
		{firstLook, absent(time.Minute), 10 * time.Minute, "pending", time.Minute - firstLook}, // as soon as it can be believed
		{time.Minute - firstLook, absent(10 * time.Minute), -1, "pending", 9 * time.Minute},    // the rule asks for more time: later than the last one
		{9 * time.Minute, job.Finding{Verdict: job.LookLater, Error: "processing"}, time.Hour, "pending", time.Hour},
		{time.Hour, absent(time.Minute), time.Hour, "pending", firstLook}, // the first in a row
		{firstLook, job.Finding{Failed: true, Error: "HTTP 500"}, time.Second, "pending", time.Second},
		{time.Second, absent(time.Minute), time.Hour, "queued", -1},
	}
	for i, l := range looks {
		b.pass(l.wait - time.Microsecond)
		if n, _, err := b.books.MayAsk(b.ctx, nil); n != 0 || err != nil {
			t.Fatalf("look-up %d: too early %d may be made, %v", i, n, err)
		}
		b.pass(time.Microsecond)
		look := b.claim(fmt.Sprint("o", i))
		if look.Ended != record.Moment(ended) || look.Key() != "a" || string(look.Job.Payload) != `{"n":1}` {
			t.Errorf("look-up %d: %+v", i, look)
		}
		if came := b.came(look, l.says, l.next); came != l.came {
			t.Fatalf("look-up %d: %s", i, came)
		}
		if _, next, err := b.books.MayAsk(b.ctx, nil); err != nil || next != l.due {
			t.Errorf("look-up %d: the next one is due in %s, %v", i, next, err)
		}
		b.clean(fmt.Sprint("look-up ", i))
	}
	r := b.record("a")
	if r.State != job.Queued || r.Unsure || r.KeyGeneration != 1 || r.Generation != 2 || r.Looks != 0 || !r.CallEnded.IsZero() {
		t.Errorf("it goes on as %+v", r)
	}
	if got := b.waiting(); !slices.Equal(got, []string{"a~2"}) {
		t.Errorf("in the queue are %v", got)
	}
}

// The next call carries the same key while the key lives and the request is the same; else it carries the next key.
func TestWhatWasNotDoneGoesOnWithALivingKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*ledger.Config)
		later  func(*ledger.Config) // as the configuration is when it goes on
		key    int64
	}{
		"a living key":    {nil, nil, 1},
		"a dead key":      {func(c *ledger.Config) { c.KeyLifetime = 8 * time.Second }, nil, 2},
		"no keys":         {func(c *ledger.Config) { c.Keys = false }, nil, 2},
		"another request": {func(c *ledger.Config) { c.Sent = "one" }, func(c *ledger.Config) { c.Sent = "other" }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := asks(t, tc.change)
			b.accept("park", job.Job{ID: "a"}, job.Job{ID: "a~2"})
			b.inDoubt(store)
			if tc.later != nil {
				tc.later(&b.cfg)
				b.on(b.c)
			}
			for range 2 {
				b.pass(firstLook)
				b.came(b.claim("o"), absent(0), time.Hour)
			}
			want := tc.key
			if want == 2 {
				want = 3 // the id of another job
			}
			r := b.record("a")
			if r.State != job.Queued || r.KeyGeneration != want || r.FirstCall.IsZero() != (want > 1) {
				t.Errorf("it is %s with key %d, first called %s", r.State, r.KeyGeneration, r.FirstCall)
			}
			b.clean("went on")
			b.inDoubt(store)
			b.pass(firstLook)
			if look := b.claim("o"); look.KeyGeneration != want || look.AbsentKey != want {
				t.Errorf("asked after with key %d; look-ups found no call before key %d", look.KeyGeneration, look.AbsentKey)
			}
		})
	}
}

// A job that is never charged is called as often as it has attempts.
func TestNoJobIsCalledForEver(t *testing.T) {
	t.Parallel()
	b, store := asks(t, func(c *ledger.Config) { c.Keys = false })
	b.accept("park", job.Job{ID: "a"})
	calls := 0
	for came := "queued"; came == "queued" && calls < 10; calls++ {
		id, generation := b.pull()
		a, opening := b.open(id, generation, "w")
		if opening != job.OpenGo {
			t.Fatalf("call %d: %s", calls, opening)
		}
		e := job.Ending{Called: true, Status: 408, Verdict: job.VerdictHold, At: time.UnixMicro(b.now), Unsure: true, Error: "HTTP 408"} // spends none, elsewhere
		b.must(store.Park(b.ctx, a, e, job.UnknownOutcome))
		for range 2 {
			b.pass(firstLook)
			came = b.came(b.claim("o"), absent(0), time.Hour)
		}
	}
	if r := b.record("a"); calls != 3 || r.Reason != job.Exhausted || r.Unsure || r.Error != "HTTP 408" {
		t.Errorf("after %d calls it is parked as %s (in doubt: %t): %s", calls, r.Reason, r.Unsure, r.Error)
	}
	b.clean("parked")
}

// A claim that ran out belongs to another process. What its former owner finds is not believed, unless it is that the job was charged.
func TestAClaimRunsOutByItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		says  job.Finding
		state job.State
	}{
		"not done": {absent(0), job.Pending},
		"refused":  {job.Finding{Verdict: job.LookRefused, Error: "no"}, job.Pending},
		"done":     {job.Finding{Verdict: job.LookDone, Reference: "ch_1"}, job.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := asks(t, nil)
			b.accept("park", job.Job{ID: "a"})
			b.inDoubt(store)
			b.pass(firstLook)
			first := b.claim("first")
			if _, next, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: "second", For: time.Minute}); ok || next != 30*time.Second || err != nil {
				t.Errorf("a second claim: %t, the next in %s, %v", ok, next, err)
			}
			b.pass(30 * time.Second)
			second := b.claim("second")
			if came := b.came(first, tc.says, time.Hour); came != ledger.AfterGone {
				t.Errorf("the first owner's answer: %s", came)
			}
			if r := b.record("a"); r.State != tc.state || r.Looks != 0 {
				t.Errorf("it is %s after %d look-ups", r.State, r.Looks)
			}
			want := map[bool]string{true: "pending", false: ledger.AfterGone}[tc.state == job.Pending]
			if came := b.came(second, absent(0), time.Hour); came != want {
				t.Errorf("the second owner's answer: %s", came)
			}
			b.clean("both ended")
		})
	}
}

// An answer that says "charged" is not lost if the job has moved on meanwhile, even if it is being called again: the job ends as done.
func TestAFoundChargeIsNeverForgotten(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", job.Job{ID: "a"})
	b.inDoubt(store)
	b.pass(firstLook)
	stalled := b.claim("stalled")
	b.pass(30 * time.Second)
	for range 2 {
		b.came(b.claim("o"), absent(0), time.Hour)
		b.pass(firstLook)
	}
	id, generation := b.pull()
	a, opening := b.open(id, generation, "again")
	if opening != job.OpenGo {
		t.Fatal(opening)
	}
	b.came(stalled, job.Finding{Verdict: job.LookDone, Reference: "ch_1"}, -1)
	b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, At: time.UnixMicro(b.now), Error: "HTTP 402"}, job.Refused))
	if r := b.record("a"); r.State != job.Done || r.Reference != "ch_1" {
		t.Errorf("it is %s %s, reference %q", r.State, r.Reason, r.Reference)
	}
	b.clean("done")
}

// A success that comes on the old connection while the gateway is being asked ends the job.
func TestALateSuccessCountsDuringALookUp(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", member("a", "p"))
	a := b.inDoubt(store)
	b.pass(firstLook)
	look := b.claim("o")
	b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(b.now), Reference: "ch_1"}))
	if came := b.came(look, absent(0), -1); came != ledger.AfterGone {
		t.Errorf("then the look-up came to %s", came)
	}
	if r := b.record("a"); r.State != job.Done || r.Reference != "ch_1" {
		t.Errorf("it is %s, reference %q", r.State, r.Reference)
	}
	b.clean("done")
}

// After the last look-up a person decides, and sees what was seen. If the person has the gateway asked again, the look-ups begin again.
func TestAfterTheLastLookUpAPersonDecides(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", member("a", "p"), job.Job{ID: "sure"})
	b.inDoubt(store)
	b.pass(firstLook)
	if came := b.came(b.claim("o"), job.Finding{Verdict: job.LookLater, Status: 200, Error: "status: processing"}, -1); came != string(job.UnknownOutcome) {
		t.Fatal(came)
	}
	r := b.record("a")
	if want := "asked for it once, and its outcome is still unknown; last seen: status: processing"; r.Error != want || !r.NextLook.IsZero() || !r.InDoubt() {
		t.Errorf("it is %+v", r)
	}
	b.clean("parked")
	id, generation := b.pull()
	sure, _ := b.open(id, generation, "w")
	b.must(store.Park(b.ctx, sure, job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, At: time.UnixMicro(b.now)}, job.Refused))
	b.pass(time.Hour)
	taken, err := b.books.AskAgain(b.ctx, append(b.back("a"), b.back("sure")...))
	if b.must(err); !slices.Equal(taken, []bool{true, false}) {
		t.Errorf("asked again: %v", taken)
	}
	if again := b.record("a"); again.State != job.Pending || again.Looks != 0 || again.CallEnded != r.CallEnded || again.Reason != "" {
		t.Errorf("it is %+v", again)
	}
	b.clean("asked again")
	if came := b.came(b.claim("o"), job.Finding{Verdict: job.LookRefused, Status: 200, Error: "declined"}, -1); came != string(job.Refused) {
		t.Fatal(came)
	}
	if r := b.record("a"); r.Error != "declined" || r.InDoubt() {
		t.Errorf("refused, it is %+v", r)
	}
	b.clean("refused")
}

// A cancel leaves pending jobs, which may have been charged. Those that were not are parked with their batch when that is known.
func TestPendingJobsStayWhenTheirBatchIsStopped(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", member("a", "p"), member("b", "p"), member("c", "p"))
	b.inDoubt(store)
	b.inDoubt(store)
	b.must(b.books.CancelBatch(b.ctx, "p", "me", "wrong file", 0, noted))
	if a, c := b.record("a"), b.record("c"); a.State != job.Pending || c.Reason != job.Cancelled {
		t.Errorf("cancelled, they are %s and %s", a.State, c.Reason)
	}
	if p := b.batch("p").Places[record.Place{State: job.Pending}]; p.Jobs != 2 {
		t.Errorf("the batch has %+v", b.batch("p"))
	}
	for range 2 {
		b.pass(firstLook)
		for range 2 {
			l := b.claim("o")
			says := absent(0)
			if l.Job.ID == "b" {
				says = job.Finding{Verdict: job.LookLater}
			}
			b.came(l, says, firstLook)
		}
	}
	id, generation := b.pull()
	if _, opening := b.open(id, generation, "w"); id != "a" || opening != job.OpenCancelled {
		t.Errorf("%s: %s", id, opening)
	}
	taken, err := b.books.WithdrawForGood(b.ctx, b.back("b"), ledger.Discarding{MayBeCharged: true, Dedupe: time.Hour})
	if b.must(err); taken[0] {
		t.Error("a pending job was discarded")
	}
	taken, err = b.books.Withdraw(b.ctx, b.back("b"), "by hand")
	if r := b.record("b"); err != nil || !taken[0] || r.Reason != job.UnknownOutcome || r.Error != "by hand; an earlier call may have charged" {
		t.Errorf("parked by a person: %v, %v, %s %s", taken, err, r.Reason, r.Error)
	}
	b.clean("withdrawn")
}

// If no process asks any more, pending jobs are parked, but not while another process asks.
func TestPendingJobsAreParkedWhenNobodyAsks(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", member("a", "p"), job.Job{ID: "b"})
	b.inDoubt(store)
	b.inDoubt(store)
	if _, _, err := b.books.MayAsk(b.ctx, nil); err != nil {
		t.Fatal(err)
	}
	b.pass(59 * time.Second)
	if n, next, err := b.books.Unask(b.ctx, "no look-up"); n != 0 || next != time.Second || err != nil {
		t.Errorf("a process asks: %d parked, the next in %s, %v", n, next, err)
	}
	b.pass(time.Second)
	if n, next, err := b.books.Unask(b.ctx, "no look-up"); n != 2 || next >= 0 || err != nil {
		t.Errorf("no process asks: %d parked, the next in %s, %v", n, next, err)
	}
	if r := b.record("a"); r.Reason != job.UnknownOutcome || r.Error != "no look-up" {
		t.Errorf("it is parked as %s: %s", r.Reason, r.Error)
	}
	b.clean("parked")
}

// Look-ups are made when they are due, and no more of them than their limits allow, over all processes and in every window.
func TestLookUpsKeepTheirLimits(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		limits []ledger.AskLimit
		queued bool
		most   int // in a second
		least  int // in ten seconds
	}{
		"their own":                        {[]ledger.AskLimit{{Limit: job.Limit{N: 20, Window: time.Second}}}, false, 20, 180},
		"one a second":                     {[]ledger.AskLimit{{Limit: job.Limit{N: 1, Window: time.Second}}}, false, 1, 10},
		"a share while jobs wait":          {[]ledger.AskLimit{{Limit: job.Limit{N: 10, Window: time.Second}, WhileQueued: true}}, true, 10, 90},
		"no share while none wait":         {[]ledger.AskLimit{{Limit: job.Limit{N: 10, Window: time.Second}, WhileQueued: true}}, false, 400, 400},
		"the smaller of both, jobs waited": {[]ledger.AskLimit{{Limit: job.Limit{N: 10, Window: time.Second}, WhileQueued: true}, {Limit: job.Limit{N: 5, Window: time.Second}}}, true, 5, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := asks(t, nil)
			b.accept("park", numbered(1, 400)...)
			for range 400 {
				b.inDoubt(store)
				b.pass(time.Microsecond)
			}
			if tc.queued {
				b.accept("park", job.Job{ID: "waits"})
			}
			b.pass(firstLook)
			began, other := b.now, ledger.New(b.c, b.cfg)
			var made []int64
			for i := 0; b.now < began+10e6; i++ {
				books := map[bool]*ledger.Books{true: b.books, false: other}[i%2 == 0]
				l, next, ok, err := books.ClaimLook(b.ctx, ledger.Claim{Owner: "o", For: time.Hour, Limits: tc.limits})
				b.must(err)
				if ok {
					if want := fmt.Sprintf("j%d", len(made)+1); l.Job.ID != want {
						t.Fatalf("%s comes before %s", l.Job.ID, want)
					}
					made = append(made, b.now)
					continue
				}
				b.pass(min(max(next, time.Microsecond), 100*time.Millisecond))
			}
			worst := 0
			for i, from := range made {
				n := 0
				for ; i+n < len(made) && made[i+n] < from+1e6; n++ {
				}
				worst = max(worst, n)
			}
			if worst > tc.most || len(made) < tc.least {
				t.Errorf("%d in a second, and %d in ten", worst, len(made))
			}
		})
	}
}

// No look-up is made while the gateway is held or paused. After a hold, a look-up goes ahead only if no job does.
func TestNoLookUpsWhileTheGatewayIsHeld(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", job.Job{ID: "a"}, job.Job{ID: "b"})
	b.inDoubt(store)
	b.inDoubt(store)
	b.pass(firstLook)
	hold := func(fields ...any) {
		b.c.Del(b.ctx, b.keys.Hold())
		b.must(b.c.HSet(b.ctx, b.keys.Hold(), fields...).Err())
	}
	may := func(want int, wait time.Duration, when string) {
		t.Helper()
		if n, next, err := b.books.MayAsk(b.ctx, nil); n != want || want == 0 && next != wait || err != nil {
			t.Errorf("%s: %d may be made, more in %s, %v", when, n, next, err)
		}
	}
	may(2, 0, "well")
	hold("paused", 1)
	may(0, time.Second, "paused")
	hold("until", b.now+7e6, "need", 1)
	may(0, 7*time.Second, "held")
	hold("until", b.now-1, "need", 1)
	may(1, 0, "after a hold")
	hold("until", b.now-1, "need", 1, "probe", b.now+2e5)
	may(0, 200*time.Millisecond, "while a call is sent ahead")
	hold("until", b.now-1, "need", 1)
	b.must(b.c.ZAdd(b.ctx, b.keys.Retrying(), redis.Z{Score: float64(b.now + 3600e6), Member: "later"}).Err())
	may(1, 0, "after a hold, with a job that is tried again in an hour")
	b.must(b.c.ZAdd(b.ctx, b.keys.Retrying(), redis.Z{Score: float64(b.now + 5e6), Member: "soon"}).Err())
	may(0, time.Second, "after a hold, with one that is tried again soon")
	b.c.Del(b.ctx, b.keys.Retrying())
	b.accept("park", job.Job{ID: "c"})
	may(0, time.Second, "after a hold, with a job that waits")
	if _, _, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: "o", For: time.Minute}); ok || err != nil {
		t.Errorf("with a slot that a job could have: %t, %v", ok, err)
	}
	hold("need", 0)
	l := b.claim("o")
	_, err := b.books.EndLook(b.ctx, l, ledger.LookEnd{Finding: job.Finding{Failed: true, Limited: true}, Next: 3 * time.Second, Hold: 3 * time.Second})
	b.must(err)
	may(0, 3*time.Second, "after a 429 of their own limit")
}

// The first jobs of a batch have done their part when they are found to be done, once each. They stop the batch when their outcome can't be found out.
func TestTheFirstJobsOfABatchMayBePending(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	_, err := b.books.SendAhead(b.ctx, "p", 3)
	b.must(err)
	b.accept("park", members("p", 1, 5)...)
	b.inDoubt(store)
	id, generation := b.pull()
	a, _ := b.open(id, generation, "w")
	b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 202, Verdict: job.VerdictAccepted, At: time.UnixMicro(b.now), Unsure: true, Reference: "po_2"}, job.UnknownOutcome))
	if c := b.batch("p").Canary; c.Done != 1 || !c.Waits {
		t.Errorf("one is accepted and one in doubt: %+v", c)
	}
	b.pass(firstLook)
	for range 2 {
		l := b.claim("o")
		if l.Accepted != (l.Job.ID == id) || l.Accepted && l.Reference != "po_2" {
			t.Errorf("it is asked for with %+v", l)
		}
		b.came(l, job.Finding{Verdict: job.LookDone}, -1)
	}
	if c := b.batch("p").Canary; c.Done != 2 {
		t.Errorf("both are done: %+v", c)
	}
	b.inDoubt(store)
	b.pass(firstLook)
	b.came(b.claim("o"), job.Finding{Verdict: job.LookLater, Error: "processing"}, -1)
	if p := b.batch("p"); !p.Braked {
		t.Errorf("the third could not be found: %+v", p)
	}
	b.clean("stopped")
}

// An entry in the set of pending jobs that is not pending is removed, and a damaged record does not keep other jobs from being asked about.
func TestWhatIsNotPendingIsNotAskedFor(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", numbered(1, 3)...)
	for range 3 {
		b.inDoubt(store)
		b.pass(time.Microsecond)
	}
	b.pass(firstLook)
	b.c.ZAdd(b.ctx, b.keys.Asking(), redis.Z{Score: 1, Member: "nobody"})
	b.c.Del(b.ctx, b.keys.Job("j1"))
	b.c.Set(b.ctx, b.keys.Job("j1"), "garbage", 0)
	b.c.HSet(b.ctx, b.keys.Job("j2"), record.Short("ask_at"), b.now+1e6)
	for range 3 {
		l, _, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: "o", For: time.Minute})
		if b.must(err); ok {
			if l.Job.ID != "j3" {
				t.Errorf("%s was claimed", l.Job.ID)
			}
			break
		}
	}
	if r := b.record("j1"); r.Reason != job.Unreadable {
		t.Errorf("the damaged one is %s %s", r.State, r.Reason)
	}
	if left := b.c.ZRange(b.ctx, b.keys.Asking(), 0, -1).Val(); !slices.Equal(left, []string{"j2", "j3"}) {
		t.Errorf("pending are %v", left)
	}
}

// A look-up goes on to the next page while it has its claim, which is then extended. If the job has moved on, or another process has the claim, it is told to stop.
func TestALookUpGoesOnWhileItHasItsClaim(t *testing.T) {
	t.Parallel()
	b, store := asks(t, nil)
	b.accept("park", job.Job{ID: "a"})
	b.inDoubt(store)
	b.pass(firstLook)
	l := b.claim("o")
	page := func(owner string) (time.Duration, bool) {
		t.Helper()
		_, next, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: owner, Page: "a", For: time.Minute})
		b.must(err)
		return next, ok
	}
	b.pass(20 * time.Second)
	if _, ok := page("o"); !ok {
		t.Error("the second page was not claimed")
	}
	b.pass(50 * time.Second)
	if _, _, ok, err := b.books.ClaimLook(b.ctx, ledger.Claim{Owner: "p", For: time.Minute}); ok || err != nil {
		t.Errorf("another one has claimed it meanwhile: %t, %v", ok, err)
	}
	b.pass(10 * time.Second)
	b.claim("p")
	if next, ok := page("o"); ok || next >= 0 {
		t.Errorf("it is another one's: claimed: %t, again in %s", ok, next)
	}
	l.Owner = "p"
	b.came(l, job.Finding{Verdict: job.LookDone}, -1)
	if next, ok := page("p"); ok || next >= 0 {
		t.Errorf("it is done: claimed: %t, again in %s", ok, next)
	}
	b.clean("done")
}
