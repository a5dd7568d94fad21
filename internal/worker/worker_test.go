package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"spillway/internal/bucket"
	"spillway/internal/clock"
	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
	"spillway/internal/worker"
)

// slot counts what happened to a slot.
type slot struct {
	mu                       sync.Mutex
	released, written, ended int
}

func (s *slot) count(n *int) { s.mu.Lock(); *n++; s.mu.Unlock() }

// present is the slot of the present delivery, which is due now.
var present = job.Slot{At: 1, Cost: 1}

type pacer struct {
	taken     []int64
	holds     []job.Failure // calls that were told to wait, or not let in
	own       bool          // those are the job's own trouble
	first     bool          // the last success was that of a job never called before
	succeeded int
	fewer     int
	few       int64
	none      bool
	passed    bool // the present slot
	behind    time.Duration
	bygone    bool
	retakes   int // slots that there are for jobs whose own one has passed
	tooDear   bool
	trimmed   []int64 // what jobs need of their slots
	untrimmed error   // what became of that
	failures  []job.Failure
	slot      *slot // of the present delivery
	other     slot  // of those that were taken
	released  int   // how often the present one had been released when a failure was counted
	fallout   job.Fallout
}

func (p *pacer) Take(ctx context.Context, cost int64, _ string) (job.Slot, error) {
	if p.tooDear {
		return job.Slot{}, job.ErrCost
	}
	if p.none {
		<-ctx.Done()
		return job.Slot{}, ctx.Err()
	}
	p.taken = append(p.taken, cost)
	return job.Slot{At: 2, Cost: cost}, nil
}
func (p *pacer) Retake(context.Context, int64, string) (job.Slot, error) {
	if p.retakes == 0 {
		return job.Slot{}, errors.New("calls are held")
	}
	p.retakes--
	return job.Slot{At: 2, Cost: 1}, nil
}
func (p *pacer) Behind(job.Slot, time.Time) (time.Duration, bool) { return p.behind, !p.bygone }
func (p *pacer) Passed(s job.Slot, _ time.Time) bool              { return s == present && p.passed }
func (p *pacer) of(s job.Slot) *slot {
	if s == present {
		return p.slot
	}
	return &p.other
}
func (p *pacer) Due(job.Slot) time.Time           { return time.Now() }
func (p *pacer) TooLate(job.Slot, time.Time) bool { return false }
func (p *pacer) Ready(job.Slot, time.Time)        {}
func (p *pacer) Written(s job.Slot, _ time.Time)  { p.of(s).count(&p.of(s).written) }
func (p *pacer) Trim(_ context.Context, s job.Slot, need int64) (job.Slot, error) {
	p.trimmed = append(p.trimmed, need)
	if p.untrimmed != nil {
		s.StateID = -1
	}
	return s, p.untrimmed
}
func (p *pacer) End(_ context.Context, s job.Slot) { p.of(s).count(&p.of(s).ended) }
func (p *pacer) Release(_ context.Context, slots ...job.Slot) error {
	for _, s := range slots {
		if !s.Zero() {
			p.of(s).count(&p.of(s).released)
		}
	}
	return nil
}
func (p *pacer) Fewer(context.Context) (int64, error) { p.fewer++; return p.few, nil }
func (p *pacer) Succeeded(_ context.Context, _ job.Slot, first bool) bool {
	p.succeeded++
	p.first = first
	return false
}
func (p *pacer) Failed(_ context.Context, f job.Failure) (job.Fallout, error) {
	p.released += p.slot.released
	if f.Kind == job.Fail {
		p.failures = append(p.failures, f)
		return p.fallout, nil
	}
	p.holds = append(p.holds, f)
	if p.own {
		return job.Fallout{At: time.Now(), Own: true}, nil
	}
	return job.Fallout{At: time.Now(), Outage: time.Now(), Held: max(f.For, time.Second), Opened: true}, nil
}

// sender gives every call the same answer, except the first ones that are too late, and records the keys.
type sender struct {
	late      int
	answer    job.Result
	keys      []string
	answering func() // between the write and the answer
}

func (s *sender) Send(_ context.Context, c job.Request) job.Result {
	if s.late > 0 {
		s.late--
		return job.Result{Stage: job.NotSent, Late: true, Err: errors.New("late")}
	}
	s.keys = append(s.keys, c.Key)
	r := s.answer
	if r.Stage != job.NotSent || !r.Wrote.IsZero() {
		r.Wrote = time.Now()
		c.Wrote(r.Wrote)
	}
	if s.answering != nil {
		s.answering()
	}
	return r
}

// flaky is books that fail the next writes of an outcome, and may say that calls are held.
type flaky struct {
	*ledger.Books
	failures int
	held     bool
	deaf     bool // attempts are written down, and the answer is lost
}

func (f *flaky) Open(ctx context.Context, id string, generation int64, owner string, deadline time.Duration) (job.Attempt, job.Opening, error) {
	if f.held {
		return job.Attempt{}, job.OpenHeld, nil
	}
	a, opening, err := f.Books.Open(ctx, id, generation, owner, deadline)
	if f.deaf {
		return job.Attempt{}, "", errors.New("no answer from Redis")
	}
	return a, opening, err
}

func (f *flaky) Done(ctx context.Context, a job.Attempt, e job.Ending) error {
	if f.failures > 0 {
		f.failures--
		return errors.New("LOADING Redis is loading the dataset in memory")
	}
	return f.Books.Done(ctx, a, e)
}

type rig struct {
	t      *testing.T
	c      redis.UniversalClient
	keys   redisdb.Keys
	books  *ledger.Books
	flaky  *flaky
	pacer  *pacer
	sender *sender
	w      *worker.Worker
	stop   context.CancelFunc
	reg    *prometheus.Registry
	kept   ledger.Config // of books
	made   worker.Config // of w
}

type tokens struct{ bucket.TokenBucket }

func (tokens) Lua() string { return (bucket.TokenBucket{}).Lua() }

func setup(t *testing.T, answer job.Result, keyed bool, profile ...string) *rig {
	t.Helper()
	gw := testkit.Gateway(t)
	r := &rig{t: t, c: testkit.Client(t), keys: redisdb.NewKeys(gw), pacer: &pacer{slot: &slot{}}, sender: &sender{answer: answer}, reg: prometheus.NewRegistry()}
	r.kept = ledger.Config{Gateway: gw, Encode: queue.NewEncoder(gw).Encode, Keys: keyed, KeyLifetime: time.Hour, Attempts: 2,
		Dedupe: time.Hour, Bucket: tokens{bucket.TokenBucket{Limits: []job.Limit{{N: 100, Window: time.Second}}, Burst: 100}}}
	r.books = ledger.New(r.c, r.kept)
	r.flaky = &flaky{Books: r.books}
	table, err := outcome.Profile(strings.Join(profile, ""))
	if err != nil {
		t.Fatal(err)
	}
	stopping, stop := context.WithCancel(t.Context())
	r.stop = stop
	r.made = worker.Config{Gateway: gw, Pacer: r.pacer, Ledger: r.flaky, DeadLetters: deadletter.New(r.c, gw), Sender: r.sender,
		Judge: table, Backoff: func(n int) time.Duration { return time.Duration(min(n, 30)) * time.Minute }, Attempts: 2, Timeout: time.Second, Keys: keyed,
		KeyLifetime: time.Hour, Owner: "test", Stopping: stopping, Clock: clock.Real{},
		Metrics: worker.NewMetrics(r.reg, []string{gw}), Log: slog.New(slog.DiscardHandler)}
	r.w = worker.New(r.made)
	return r
}

func (r *rig) accept(j job.Job) {
	r.t.Helper()
	if _, _, err := testkit.Accept(r.t.Context(), r.books, job.Ticket{Sequence: rand.Text(), Number: 1}, []job.Newcomer{{Job: j, Digest: "d"}}, "park"); err != nil {
		r.t.Fatal(err)
	}
}

// deliver passes the newest generation of a job to the worker and returns the slot it came with.
func (r *rig) deliver(id string) *slot {
	r.t.Helper()
	s := &slot{}
	r.pacer.slot = s
	rec := r.record(id)
	if err := r.w.Handle(r.t.Context(), job.Delivery{JobID: id, Generation: rec.Generation, Slot: present}); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) record(id string) job.Record {
	r.t.Helper()
	rec, ok, err := r.books.Find(r.t.Context(), id)
	if err != nil || !ok {
		r.t.Fatalf("job %s: found %v, %v", id, ok, err)
	}
	return rec
}

func answered(status int, header map[string][]string) job.Result {
	return job.Result{Stage: job.Answered, Status: status, Header: header, Body: []byte(`{"error":"declined"}`)}
}

// TestTooEarlyWaitsLongerEachTime: no attempt is spent, so nothing but the time since the first call says how often it was tried.
func TestTooEarlyWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	for tried, want := range map[time.Duration]time.Duration{0: time.Minute, 20 * time.Minute: 10 * time.Minute, 59 * time.Minute * 10: 30 * time.Minute} {
		r := setup(t, answered(425, nil), true)
		r.accept(job.Job{ID: "j"})
		if tried > 0 {
			r.c.HSet(t.Context(), r.keys.Job("j"), "f", time.Now().Add(-tried).UnixMicro())
		}
		began := time.Now()
		r.deliver("j")
		rec := r.record("j")
		if wait := rec.Due.Sub(began); rec.State != job.Retrying || rec.Spent != 0 || (wait-want).Abs() > 15*time.Second {
			t.Errorf("tried for %v: %s, %d attempts, due in %v; want %v", tried, rec.State, rec.Spent, wait, want)
		}
	}
}

func TestWhatBecomesOfAJob(t *testing.T) {
	t.Parallel()
	sent := job.Result{Stage: job.Sent, Err: errors.New("no answer within 1s")}
	for _, tc := range []struct {
		name    string
		answer  job.Result
		keyless bool
		state   job.State
		reason  job.Reason
		spent   int
		holds   int
	}{
		{name: "a success is done", answer: answered(200, nil), state: job.Done},
		{name: "a decline is refused", answer: answered(402, nil), state: job.Parked, reason: job.Refused, spent: 1},
		{name: "a 429 holds everybody and spends nothing", answer: answered(429, map[string][]string{"Retry-After": {"3"}}), state: job.Retrying, holds: 1},
		{name: "a revoked key refuses nothing", answer: answered(401, nil), state: job.Retrying, holds: 1},
		{name: "an access token that ran out is another one's turn", answer: job.Result{Stage: job.Answered, Status: 401, Renewed: true}, state: job.Queued},
		{name: "a server error waits", answer: answered(500, nil), state: job.Retrying, spent: 1},
		{name: "a server error without a key is unknown", answer: answered(500, nil), keyless: true, state: job.Parked, reason: job.UnknownOutcome, spent: 1},
		{name: "no answer with a living key waits", answer: sent, state: job.Retrying, spent: 1},
		{name: "no answer without a key is unknown", answer: sent, keyless: true, state: job.Parked, reason: job.UnknownOutcome, spent: 1},
		{name: "too late for its slot goes back unsent", answer: job.Result{Stage: job.NotSent, Late: true, Err: errors.New("late")}, state: job.Queued},
		{name: "a fault of this machine goes back for another process", answer: job.Result{Stage: job.NotSent, Err: job.ErrLocal}, state: job.Queued},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, tc.answer, !tc.keyless)
			r.accept(job.Job{ID: "j"})
			s := r.deliver("j")
			rec := r.record("j")
			if rec.State != tc.state || rec.Reason != tc.reason || rec.Spent != tc.spent {
				t.Errorf("state %s, reason %q, %d attempts spent; want %s, %q, %d", rec.State, rec.Reason, rec.Spent, tc.state, tc.reason, tc.spent)
			}
			if len(r.pacer.holds) != tc.holds {
				t.Errorf("holds %v, want %d", r.pacer.holds, tc.holds)
			}
			if s.released+s.written != 1 {
				t.Errorf("the slot was released %d times and written %d times: want one of them, once", s.released, s.written)
			}
			if problems, err := testutil.GatherAndLint(r.reg); err != nil || len(problems) > 0 {
				t.Errorf("metrics: %v %v", problems, err)
			}
		})
	}
}

// A job that is ready after its slot has passed takes another slot, as often as needed, and is called once.
func TestAJobThatIsReadyTakesAnotherSlot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		passed  bool // before the call is begun
		late    int  // calls that are too late just before the write
		retakes int
		called  int
	}{
		"its slot passes before the call":       {true, 0, 1, 1},
		"its slot passes at the write":          {false, 1, 1, 1},
		"three slots pass":                      {true, 2, 3, 1},
		"there is no other slot":                {true, 0, 0, 0},
		"two slots pass, and there is no third": {false, 2, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, answered(200, nil), true)
			r.pacer.passed, r.pacer.retakes, r.sender.late = tc.passed, tc.retakes, tc.late
			r.accept(job.Job{ID: "j"})
			present := r.deliver("j")
			state := job.Done
			if tc.called == 0 {
				state = job.Queued
			}
			if rec := r.record("j"); rec.State != state || len(r.sender.keys) != tc.called || rec.Spent != 0 {
				t.Errorf("%s after %d calls, %d attempts spent; want %s after %d, none", rec.State, len(r.sender.keys), rec.Spent, state, tc.called)
			}
			other := &r.pacer.other
			if present.released != 1 || present.written != 0 || other.written != tc.called || other.released+other.written != tc.retakes-r.pacer.retakes {
				t.Errorf("the slot was released %d times and written %d times; the %d others %d and %d times", present.released, present.written,
					tc.retakes-r.pacer.retakes, other.released, other.written)
			}
		})
	}
}

// Other processes may have judged the attempt by the clock of the slots, which continues while this machine is suspended. Then no call is made, whatever this
// process's own clock says.
func TestAJobWhoseSlotIsLongPastIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*pacer){
		"an hour asleep":           func(p *pacer) { p.behind = time.Hour },
		"Redis's clock was set":    func(p *pacer) { p.bygone = true },
		"the slot has passed, too": func(p *pacer) { p.behind, p.passed = time.Hour, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, answered(200, nil), false)
			set(r.pacer)
			r.pacer.retakes = 3
			r.accept(job.Job{ID: "j"})
			s := r.deliver("j")
			if rec := r.record("j"); rec.State != job.Queued || len(r.sender.keys) != 0 || s.released != 1 || r.pacer.retakes != 3 {
				t.Errorf("%s after %d calls, the slot released %d times, %d slots left", rec.State, len(r.sender.keys), s.released, r.pacer.retakes)
			}
		})
	}
}

// A call that only a proxy received was written, too: the pacer counts it, and its slot is not given back.
func TestTheSlotOfACallThatAProxyRefusedIsNotGivenBack(t *testing.T) {
	t.Parallel()
	r := setup(t, job.Result{Stage: job.NotSent, Wrote: time.Now(), Err: errors.New("the proxy does not let us in (407)")}, true)
	r.accept(job.Job{ID: "j"})
	if s := r.deliver("j"); s.released != 0 || s.written != 1 || s.ended != 1 {
		t.Errorf("the slot was released %d times, written %d times and ended %d times", s.released, s.written, s.ended)
	}
}

// While the data is doubted no call is made, and the queue keeps the task for later.
func TestAHeldJobIsNeitherCalledNorLost(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j"})
	r.flaky.held = true
	s := r.pacer.slot
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1, Slot: present}); err == nil {
		t.Error("the queue takes the task for dealt with")
	}
	r.stop()
	r.pacer.none = true
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1}); err == nil {
		t.Error("while stopping, the queue takes the task for dealt with")
	}
	if rec := r.record("j"); rec.State != job.Queued || s.released != 1 || len(r.sender.keys) != 0 {
		t.Errorf("state %s, the slot released %d times, calls %v", rec.State, s.released, r.sender.keys)
	}
}

// TestAWriteIsReportedBeforeItsAnswer is about calls that hang. When a write was reported only with its answer, a late write was not known as late
// during its window, and its permit was given to another call too soon.
func TestAWriteIsReportedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j"})
	s := r.pacer.slot
	reported := -1
	r.sender.answering = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		reported = s.written
	}
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1, Slot: present}); err != nil {
		t.Fatal(err)
	}
	if reported != 1 || s.written != 1 {
		t.Errorf("reported %d times before the answer, and %d times in all; want once, before it", reported, s.written)
	}
}

func TestFewerAtOnceIsNoHold(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(429, map[string][]string{"Stripe-Rate-Limited-Reason": {"global-concurrency"}}), true, "stripe")
	r.pacer.few = 1
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Queued || rec.Spent != 0 || r.pacer.fewer != 1 || len(r.pacer.holds) != 0 {
		t.Errorf("state %s, %d attempts, fewer %d times, holds %v", rec.State, rec.Spent, r.pacer.fewer, r.pacer.holds)
	}
	r.pacer.few = 0 // a single call was too many
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Retrying || rec.Spent != 0 || r.pacer.fewer != 2 || len(r.pacer.holds) != 1 {
		t.Errorf("state %s, %d attempts, fewer %d times, holds %v; want one", rec.State, rec.Spent, r.pacer.fewer, r.pacer.holds)
	}
}

func TestALockConcernsOneJobOnly(t *testing.T) {
	t.Parallel()
	lock := job.Result{Stage: job.Answered, Status: 429, Body: []byte(`{"error":{"code":"lock_timeout"}}`)}
	r := setup(t, lock, true, "stripe")
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Retrying || rec.Spent != 0 || len(r.pacer.holds) != 0 {
		t.Errorf("state %s, %d attempts, holds %v", rec.State, rec.Spent, r.pacer.holds)
	}
}

func TestTheLastAttemptIsParkedAsExhausted(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(500, nil), true)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	r.c.ZAdd(t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: "j"}) // its back-off is over
	if n, _, err := r.books.MoveDue(t.Context()); n != 1 || err != nil {
		t.Fatalf("moved %d, %v", n, err)
	}
	r.deliver("j")
	if rec := r.record("j"); rec.Reason != job.Exhausted || rec.Spent != 2 || rec.Error != `HTTP 500: {"error":"declined"}` {
		t.Errorf("reason %q, attempts %d, error %q", rec.Reason, rec.Spent, rec.Error)
	}
	if r.sender.keys[0] != "j" || r.sender.keys[1] != "j" {
		t.Errorf("keys %v: every attempt carries the same one", r.sender.keys)
	}
}

func TestADoneJobDeliveredAgainIsNotCalled(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	s := r.deliver("j")
	if len(r.sender.keys) != 1 || s.released != 1 {
		t.Errorf("called %d times, slot released %d times", len(r.sender.keys), s.released)
	}
}

func TestAnOutcomeIsWrittenDownHoweverLongItTakes(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.flaky.failures = 3
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Done || len(r.sender.keys) != 1 {
		t.Errorf("state %s after %d calls", rec.State, len(r.sender.keys))
	}
}

// An attempt whose recording got no answer may be recorded. If the process stops before it knows, the attempt must not look like a call.
func TestAnAttemptThatIsNotKnownToBeOpenIsTakenBackAtAStop(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), false)
	r.flaky.deaf = true
	r.accept(job.Job{ID: "j"})
	r.stop()
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1, Slot: present}); err == nil {
		t.Error("the task was taken for settled") // the attempt might never have reached Redis
	}
	if rec := r.record("j"); rec.State != job.Queued || rec.Generation != 2 || rec.Spent != 0 || rec.Unsure || len(r.sender.keys) != 0 {
		t.Errorf("%+v, %d calls; want it back in the queue, unspent", rec, len(r.sender.keys))
	}
}

func TestAnExpiredJobIsParkedAndNotCalled(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j", Expires: time.Now().Add(-time.Second)})
	r.deliver("j")
	if rec := r.record("j"); rec.Reason != job.Expired || len(r.sender.keys) != 0 {
		t.Errorf("reason %q after %d calls", rec.Reason, len(r.sender.keys))
	}
}

func TestACostlyJobGetsASlotOfItsCost(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j", Cost: 5})
	s := r.deliver("j")
	if s.released != 1 || len(r.pacer.taken) != 1 || r.pacer.taken[0] != 5 {
		t.Errorf("small slot released %d times, taken %v", s.released, r.pacer.taken)
	}
	if r.record("j").State != job.Done {
		t.Error("not done")
	}
}

func TestAJobGivesBackWhatItsSlotCostsMore(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("no answer")} {
		r := setup(t, answered(200, nil), true)
		r.pacer.untrimmed = err
		r.accept(job.Job{ID: "j"})
		s := r.deliver("j")
		if len(r.pacer.trimmed) != 1 || r.pacer.trimmed[0] != 1 || r.record("j").State != job.Done {
			t.Errorf("its job needs %v, and is %s", r.pacer.trimmed, r.record("j").State)
		}
		if doubtful := err != nil; s.released != 0 || (r.pacer.other.released == 1) != doubtful || (len(r.pacer.taken) == 1) != doubtful {
			t.Errorf("%v: the slot was released %d times as it was and %d times as it is, and %d were taken", err, s.released, r.pacer.other.released, len(r.pacer.taken))
		}
	}
}

func TestACostlyJobWithoutRoomGoesBack(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.pacer.none = true
	r.accept(job.Job{ID: "j", Cost: 5})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Queued || rec.Spent != 0 || len(r.sender.keys) != 0 {
		t.Errorf("state %s, %d attempts, %d calls", rec.State, rec.Spent, len(r.sender.keys))
	}
}

func TestAJobThatCostsMoreThanALimitStepsAside(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.pacer.tooDear = true
	r.accept(job.Job{ID: "j", Cost: 5})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Retrying || rec.Spent != 0 || !strings.Contains(rec.Error, "costs more") || len(r.sender.keys) != 0 {
		t.Errorf("state %s, %d attempts, error %q, %d calls", rec.State, rec.Spent, rec.Error, len(r.sender.keys))
	}
}

func TestAJobPastTheGateTakesASlotItself(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "j"})
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1}); err != nil {
		t.Fatal(err)
	}
	if len(r.pacer.taken) != 1 || len(r.sender.keys) != 1 {
		t.Errorf("slots taken %v, calls %d", r.pacer.taken, len(r.sender.keys))
	}
}

func TestAJobWithoutASlotGoesBackToTheHeadOfTheQueueWhenWeStop(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), false)
	r.accept(job.Job{ID: "j"})
	r.pacer.none = true
	r.stop()
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "j", Generation: 1}); err != nil {
		t.Fatalf("asynq would put the job aside: %v", err)
	}
	rec, head := r.record("j"), r.c.LIndex(t.Context(), r.keys.Due(), -1).Val()
	if rec.State != job.Queued || head != "j~2" || rec.Spent != 0 || len(r.sender.keys) != 0 {
		t.Errorf("%s after %d attempts and %d calls, %q is at the head of the queue", rec.State, rec.Spent, len(r.sender.keys), head)
	}
	r.accept(job.Job{ID: "late", Expires: time.Now().Add(-time.Minute)})
	if err := r.w.Handle(t.Context(), job.Delivery{JobID: "late", Generation: 1}); err != nil || r.record("late").Reason != job.Expired {
		t.Errorf("%v, %s %s", err, r.record("late").State, r.record("late").Reason)
	}
}

func TestWhatIsNotAJobIsParkedAsUnreadable(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	s := r.pacer.slot
	if err := r.w.Handle(t.Context(), job.Delivery{TaskID: "some task", Foreign: true, Payload: []byte("hello"), Slot: present}); err != nil {
		t.Fatal(err)
	}
	var found []job.Record
	for rec, err := range deadletter.New(r.c, testkit.GatewayOf(r.keys.Pending())).List(t.Context(), deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, rec)
	}
	if len(found) != 1 || found[0].Reason != job.Unreadable || string(found[0].Job.Payload) != "hello" || s.released != 1 {
		t.Errorf("parked %+v, slot released %d times", found, s.released)
	}
}
