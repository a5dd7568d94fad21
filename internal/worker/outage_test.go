package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
)

// again ends a job's back-off and moves it to the queue.
func (r *rig) again(id string) {
	r.t.Helper()
	r.c.ZAdd(r.t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: id})
	if n, _, err := r.books.MoveDue(r.t.Context()); n != 1 || err != nil {
		r.t.Fatalf("moved %d, %v", n, err)
	}
}

// fell makes the pacer count failures from now on, as part of an outage or not.
func (r *rig) fell(outage bool) time.Time {
	at := time.Now().Truncate(time.Microsecond)
	r.pacer.fallout = job.Fallout{At: at}
	if outage {
		r.pacer.fallout.Outage, r.pacer.fallout.Held = at.Add(-time.Second), time.Second
	}
	return at
}

var unsent = job.Result{Stage: job.NotSent, Err: errors.New("connecting to x failed: connection refused")}

func TestWhatFailsIsCounted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		answer  job.Result
		failed  bool
		written bool
		why     string
		there   int
	}{
		{"500", answered(500, nil), true, true, "HTTP 500", 0},
		{"no answer", job.Result{Stage: job.Sent, Err: errors.New("no answer within 1s")}, true, true, "no answer", 0},
		{"refused connection", unsent, true, false, "connecting to x failed: connection refused", 0},
		{"200", answered(200, nil), false, false, "", 1},
		{"402", answered(402, nil), false, false, "", 1},
		{"429", answered(429, nil), false, false, "", 0},
		{"late", job.Result{Stage: job.NotSent, Late: true, Err: errors.New("late")}, false, false, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, tc.answer, true)
			r.accept(job.Job{ID: "j"})
			r.deliver("j")
			want := 0
			if tc.failed {
				want = 1
			}
			if len(r.pacer.failures) != want || r.pacer.succeeded != tc.there {
				t.Fatalf("failures %+v, said to be there %d times", r.pacer.failures, r.pacer.succeeded)
			}
			if r.pacer.released > 0 {
				t.Error("the slot was released first: the pacer no longer knows it for that of a call sent ahead")
			}
			for _, f := range r.pacer.failures {
				if f.Job != "j" || f.Slot != 1 || f.Written != tc.written || f.Why != tc.why {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// An outage spends no attempt, not even the last one, and the job leaves its place in the queue.
func TestAnOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), true)
	r.fell(true)
	r.accept(job.Job{ID: "j"})
	for i := range 5 {
		r.deliver("j")
		if rec := r.record("j"); rec.State != job.Retrying || rec.Spent != 0 || time.Until(rec.Due) > time.Second {
			t.Fatalf("call %d: state %s, %d attempts, due in %v", i+1, rec.State, rec.Spent, time.Until(rec.Due))
		}
		r.again("j")
	}
	if f := r.pacer.failures[4]; f.Outages != 1 {
		t.Errorf("%+v: it has failed often, in one outage", f)
	}
}

// An attempt that was spent on a failure before the circuit opened is given back when the outage is known.
func TestAnAttemptThatRevealedAnOutageIsGivenBack(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), true)
	at := r.fell(false)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Retrying || rec.Spent != 1 {
		t.Fatalf("state %s, %d attempts", rec.State, rec.Spent)
	}
	r.outage(at, at.Add(time.Minute))
	r.sender.answer = answered(200, nil)
	r.again("j")
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Done || rec.Spent != 0 {
		t.Errorf("state %s, %d attempts", rec.State, rec.Spent)
	}
}

// outage records that the gateway was down.
func (r *rig) outage(from, to time.Time) {
	r.c.HSet(r.t.Context(), r.keys.Hold(), "outages", fmt.Sprintf("%d:%d", from.UnixMicro(), to.UnixMicro()))
}

func TestTheLastAttemptWaitsUntilItIsKnownWhetherItWasAnOutage(t *testing.T) {
	t.Parallel()
	for _, outage := range []bool{false, true} {
		r := setup(t, answered(500, nil), true)
		r.accept(job.Job{ID: "j"})
		for range 2 { // attempts allowed
			at := r.fell(false)
			r.deliver("j")
			if outage {
				r.outage(at, at.Add(time.Minute))
			}
			if rec := r.record("j"); rec.State != job.Retrying {
				t.Fatalf("state %s, %d attempts", rec.State, rec.Spent)
			}
			r.again("j")
		}
		s := r.deliver("j")
		rec, calls := r.record("j"), len(r.sender.keys)
		switch {
		case outage && (rec.State != job.Retrying || calls != 3):
			t.Errorf("in an outage: %s after %d calls, %d attempts", rec.State, calls, rec.Spent)
		case !outage && (rec.Reason != job.Exhausted || calls != 2 || rec.Spent != 2 || s.released != 1 || rec.Error != `HTTP 500: {"error":"declined"}`):
			t.Errorf("exhausted: %q after %d calls, %d attempts, error %q", rec.Reason, calls, rec.Spent, rec.Error)
		}
	}
}

// An answer of the gateway ends a series of failures, in the same step in which it is recorded.
func TestAnAnswerEndsTheRow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer job.Result
		failed bool
		left   int64
	}{
		"success": {answered(200, nil), false, 0},
		"decline": {answered(402, nil), false, 0},
		"retry":   {answered(409, nil), false, 3},
		"refusal": {answered(400, nil), false, 3}, // something in front may say so
		"wait":    {answered(429, nil), false, 3},
		"failure": {answered(503, nil), true, 3},
		"unsent":  {unsent, true, 3},
		"late":    {job.Result{Stage: job.NotSent, Late: true, Err: errors.New("late")}, false, 3},
	} {
		r := setup(t, tc.answer, true)
		r.fell(false)
		r.c.HSet(t.Context(), r.keys.Hold(), "run", 3, "runjob", "x", "runat", 1)
		r.accept(job.Job{ID: "j"})
		r.deliver("j")
		if left := r.c.HLen(t.Context(), r.keys.Hold()).Val(); left != tc.left {
			t.Errorf("%s: %d fields of the row are left, want %d", name, left, tc.left)
		}
	}
}

// A call that may have charged and has no living key is left to a person, even during an outage.
func TestWithoutAKeyAnOutageParksForAPerson(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), false)
	r.fell(true)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.Reason != job.UnknownOutcome || len(r.pacer.failures) != 1 {
		t.Errorf("reason %q, failures %+v", rec.Reason, r.pacer.failures)
	}
}

// A job that is told to wait or denied access for reasons of its own spends its attempts, waits as long as it was told, and is parked in the end.
func TestAJobsOwnTroubleSpendsItsAttempts(t *testing.T) {
	t.Parallel()
	for status, header := range map[int]map[string][]string{403: nil, 429: {"Retry-After": {"3600"}}, 503: {"Retry-After": {"1"}}} {
		r := setup(t, answered(status, header), true)
		r.pacer.own = true
		r.accept(job.Job{ID: "j"})
		r.deliver("j")
		rec := r.record("j")
		if rec.State != job.Retrying || rec.Spent != 1 || status == 429 && time.Until(rec.Due) < 14*time.Minute {
			t.Errorf("%d: %s, %d attempts, due in %v", status, rec.State, rec.Spent, time.Until(rec.Due))
		}
		r.again("j")
		r.deliver("j")
		if rec := r.record("j"); rec.Reason != job.Exhausted || rec.Spent != 2 {
			t.Errorf("%d: %s %q, %d attempts", status, rec.State, rec.Reason, rec.Spent)
		}
		if f := r.pacer.holds[1]; f.Job != "j" || f.Spent != 1 || f.Slot != 1 || !f.Written {
			t.Errorf("%d: told of %+v", status, f)
		}
	}
}

// A failure is the job's own once it has met two outages: no later outage gives the attempt back.
func TestAJobThatMetTwoOutagesIsForgivenNoMore(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(500, nil), true)
	r.accept(job.Job{ID: "j"})
	for n := range 2 {
		at := r.fell(false)
		r.deliver("j")
		r.outage(at.Add(-time.Millisecond), at.Add(time.Millisecond))
		if rec := r.record("j"); rec.Spent != 1 {
			t.Fatalf("outage %d: %d attempts", n+1, rec.Spent)
		}
		r.again("j")
	}
	at := r.fell(false)
	r.deliver("j")
	if f := r.pacer.failures[2]; f.Outages != 2 || f.Spent != 0 {
		t.Errorf("%+v, want a job that met two outages and was forgiven both", f)
	}
	r.outage(at.Add(-time.Millisecond), at.Add(time.Millisecond))
	r.again("j")
	r.deliver("j")
	if f := r.pacer.failures[3]; f.Outages != 2 || f.Spent != 1 {
		t.Errorf("%+v, want the third failure to count", f)
	}
}

// Only the success of a job that was never called before shows that other jobs may be bad.
func TestTheFirstCallOfAJobIsToldFromOthers(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(200, nil), true)
	r.accept(job.Job{ID: "fresh"})
	r.deliver("fresh")
	if !r.pacer.first {
		t.Error("a job that was never called counts as called")
	}
	r.sender.answer = answered(500, nil)
	r.accept(job.Job{ID: "again"})
	r.deliver("again")
	r.again("again")
	r.sender.answer = answered(200, nil)
	r.deliver("again")
	if r.pacer.first {
		t.Error("a job that had failed counts as never called")
	}
}
