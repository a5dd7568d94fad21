package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/record"
	"spillway/internal/testkit"
)

// braking is a bench whose batches stop themselves by a brake.
func braking(t *testing.T, brake job.Brake) (*bench, *deadletter.Store) {
	t.Helper()
	b := setup(t, 1000, func(c *ledger.Config) { c.Money, c.Brake = eurosOrMore, brake })
	store := deadletter.New(b.c, b.name)
	store.NowMicros, store.Brake = func() int64 { return b.now }, brake
	return b, store
}

// members are jobs of a batch, named after it and numbered.
func members(batch string, from, to int) (jobs []job.Job) {
	for i := from; i <= to; i++ {
		jobs = append(jobs, member(fmt.Sprintf("%s%d", batch, i), batch))
	}
	return jobs
}

// answers pulls the next job, and makes the gateway say yes or no to it. It returns its id, and its opening.
func (b *bench) answers(store *deadletter.Store, yes bool) (string, job.Opening) {
	b.t.Helper()
	b.now += 1000
	id, generation := b.pull()
	a, opening := b.open(id, generation, id)
	b.ends(store, a, opening, yes)
	return id, opening
}

func (b *bench) ends(store *deadletter.Store, a job.Attempt, opening job.Opening, yes bool) {
	b.t.Helper()
	at := time.UnixMicro(b.now)
	switch {
	case opening == job.OpenPaused:
		b.must(store.Park(b.ctx, a, job.Ending{Error: a.LastError}, job.Paused))
	case yes:
		b.must(b.books.Done(b.ctx, a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: at}))
	default:
		b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 400, Verdict: job.VerdictRefused, Error: `HTTP 400: {"card":"4242"}`, At: at}, job.Refused))
	}
}

func (b *bench) batch(name string) record.Batch {
	b.t.Helper()
	batch, _, err := b.books.Batch(b.ctx, name)
	b.must(err)
	return batch
}

// shelve does what a dispatcher does for batches that stopped themselves, or whose first jobs are done.
func (b *bench) shelve() (did []string) {
	b.t.Helper()
	b.must(b.books.Shelve(b.ctx, nil, func(batch, what string, jobs int64) { did = append(did, fmt.Sprintf("%s %s %d", what, batch, jobs)) }))
	return did
}

func (b *bench) braked() []string {
	b.t.Helper()
	names, err := b.books.Braked(b.ctx)
	b.must(err)
	return names
}

var usualBrake = job.Brake{Calls: 50, Refused: 90}

// A gateway that accepts payments, and pays them later, has said yes, too. Some refusals among many accepted payments stop nothing; if all of the first are refused, the batch stops.
func TestABatchThatIsAcceptedGoesOn(t *testing.T) {
	for _, c := range []struct{ accepted, refused, stopsAt int }{{100, 60, 0}, {6, 60, 0}, {5, 60, 45}, {0, 60, 45}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			b, store := braking(t, usualBrake)
			b.accept("park", members("x", 1, c.accepted+c.refused)...)
			for range c.accepted {
				b.now += 1000
				id, generation := b.pull()
				a, _ := b.open(id, generation, id)
				b.must(store.Park(b.ctx, a, job.Ending{Called: true, Spent: true, Status: 202, Verdict: job.VerdictAccepted, At: time.UnixMicro(b.now)}, job.UnknownOutcome))
			}
			stopped := 0
			for n := 1; n <= c.refused && stopped == 0; n++ {
				b.answers(store, false)
				if len(b.braked()) > 0 {
					stopped = n
				}
			}
			if stopped != c.stopsAt {
				t.Errorf("stopped after %d refusals, want %d", stopped, c.stopsAt)
			}
		})
	}
}

// As soon as 45 of the first 50 answers must be a no, the batch is paused by the script that parks the last of them: no process need be alive.
func TestABatchWhoseFirstCallsAreRefusedStopsItself(t *testing.T) {
	t.Parallel()
	b, store := braking(t, usualBrake)
	b.accept("park", slices.Concat(members("p", 1, 60), members("q", 1, 3))...)
	for i := range 49 {
		if b.answers(store, i%10 == 3 && i < 40); !b.batch("p").Paused.IsZero() && i < 48 {
			t.Fatalf("it has stopped after %d calls", i+1)
		}
	}
	const why = "45 of its first 49 calls were refused: HTTP 400"
	batch := b.batch("p")
	if !batch.Paused.Equal(time.UnixMicro(b.now)) || batch.Why != why || batch.Who != "spillway" || !batch.Braked {
		t.Fatalf("after 49 calls, 45 of them refused, the books say %+v", batch)
	}
	if id, opening := b.answers(store, true); id != "p50" || opening != job.OpenPaused {
		t.Errorf("%s opened as %s", id, opening)
	}
	if got := b.accept("wait", members("p", 61, 61)...); got[0] != job.ParkedNow {
		t.Errorf("a newcomer: %v", got)
	}
	if did := b.shelve(); !slices.Equal(did, []string{"pause p 10"}) {
		t.Errorf("a dispatcher did %v", did)
	}
	if got := b.pending(); !slices.Equal(got, []string{"q1", "q2", "q3"}) {
		t.Errorf("in the queue are %v", got)
	}
	if r := b.record("p55"); r.Reason != job.Paused || r.Error != "its batch is paused: "+why {
		t.Errorf("a job that waited is parked as %s: %s", r.Reason, r.Error)
	}
	if did := b.shelve(); did != nil || !slices.Equal(b.braked(), []string{"p"}) {
		t.Errorf("then it did %v, and %v have stopped", did, b.braked())
	}
	acts, err := store.LastActs(b.ctx, 5)
	b.must(err)
	at := time.UnixMicro(batch.Paused.UnixMicro()).UTC()
	if len(acts) != 1 || acts[0].Who != "spillway" || acts[0].What != "batch pause" || acts[0].Why != why || acts[0].Filter != `--batch "p"` || acts[0].Jobs != 11 ||
		!acts[0].At.Equal(at) || acts[0].Ended == nil {
		text, _ := json.Marshal(acts)
		t.Errorf("the trail has %s", text)
	}
	b.clean("with a batch that stopped itself")

	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	if batch := b.batch("p"); batch.Braked || !batch.Paused.IsZero() || len(b.braked()) != 0 {
		t.Errorf("resumed, the books say %+v, and %v have stopped", batch, b.braked())
	}
	b.now += 10e6
	waiting, err := b.rejected(100)
	b.must(err)
	_, _, err = b.books.Readmit(b.ctx, waiting)
	b.must(err)
	for range 3 {
		b.answers(store, true)
	}
	for range 12 {
		b.answers(store, false)
	}
	if batch := b.batch("p"); !batch.Paused.IsZero() {
		t.Errorf("resumed, it stopped again at once: %s", batch.Why)
	}
	b.clean("resumed")
}

// Fewer refusals than the share do not stop a batch, however many come later. Neither do those of jobs without a batch, or with the brake off.
func TestWhatDoesNotStopABatch(t *testing.T) {
	testkit.OneGoroutine(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		brake job.Brake
		batch string
		calls int
		yes   func(i int) bool
	}{
		"just below the share":    {usualBrake, "p", 120, func(i int) bool { return i < 6 }},
		"below it, yes at last":   {usualBrake, "p", 120, func(i int) bool { return i >= 44 && i < 50 }},
		"one in ten declined":     {usualBrake, "p", 120, func(i int) bool { return i%10 != 0 }},
		"89 of 100":               {job.Brake{Calls: 100, Refused: 90}, "p", 130, func(i int) bool { return i < 11 }},
		"off":                     {job.Brake{}, "p", 120, func(int) bool { return false }},
		"no batch":                {usualBrake, "", 120, func(int) bool { return false }},
		"fewer calls than needed": {usualBrake, "p", 44, func(int) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := braking(t, tc.brake)
			jobs := members("p", 1, tc.calls)
			for i := range jobs {
				jobs[i].Batch = tc.batch
			}
			b.accept("park", jobs...)
			for i := range tc.calls {
				if id, opening := b.answers(store, tc.yes(i)); opening != job.OpenGo {
					t.Fatalf("call %d, of %s: %s", i+1, id, opening)
				}
			}
			if got := b.braked(); len(got) != 0 {
				t.Errorf("%v have stopped", got)
			}
		})
	}
}

// Once it is known that a batch goes on, a call costs it only a look.
func TestTheBrakeCountsNoFurtherThanItLooks(t *testing.T) {
	t.Parallel()
	b, store := braking(t, job.Brake{Calls: 4, Refused: 100})
	b.accept("park", members("p", 1, 9)...)
	for i := range 9 {
		b.answers(store, i < 1)
	}
	v := b.c.HMGet(b.ctx, b.keys.Batch("p"), "answered", "refused").Val()
	if v[0] != "4" || v[1] != "3" {
		t.Errorf("counted were %v", v)
	}
}

// After a person has paused and resumed a batch, the calls before that do not count.
func TestCallsBeforeAResumeDoNotCount(t *testing.T) {
	t.Parallel()
	b, store := braking(t, job.Brake{Calls: 4, Refused: 100})
	b.accept("park", members("p", 1, 6)...)
	for range 3 {
		b.answers(store, false)
	}
	b.must(b.books.PauseBatch(b.ctx, "p", "me", "w", noted))
	b.must(b.books.ResumeBatch(b.ctx, "p", noted))
	b.admitted()
	if b.answers(store, false); len(b.braked()) > 0 {
		t.Error("a call before a pause counts after it")
	}
}

// When the last job of a batch that stopped itself is discarded, the batch is no longer listed.
func TestAStoppedBatchWithoutJobsIsForgotten(t *testing.T) {
	t.Parallel()
	b, store := braking(t, job.Brake{Calls: 2, Refused: 100})
	b.accept("park", members("p:batch:", 1, 2)...)
	for range 2 {
		b.answers(store, false)
	}
	if !slices.Equal(b.braked(), []string{"p:batch:"}) {
		t.Fatalf("%v have stopped", b.braked())
	}
	b.shelve()
	b.took(store.Discard(b.ctx, b.back("p:batch:1", "p:batch:2"), time.Hour))
	if got := b.braked(); len(got) != 0 {
		t.Errorf("all its jobs are discarded, and %v have stopped", got)
	}
}
