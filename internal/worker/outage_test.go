package worker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/job"
	"spillway/internal/worker"
)

// again makes a job that waits out a back-off due, and moves it.
func (r *rig) again(id string) {
	r.t.Helper()
	r.c.ZAdd(r.t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: id})
	if n, _, err := r.books.MoveDue(r.t.Context()); n != 1 || err != nil {
		r.t.Fatalf("moved %d, %v", n, err)
	}
}

// fell lets the pacer say of failures from now on that they were counted, and that they belong to an outage, or to none so far.
func (r *rig) fell(outage bool) time.Time {
	at := time.Now().Truncate(time.Microsecond)
	r.pacer.fallout = worker.Fallout{At: at}
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

// No attempt is spent on an outage, not even the last one, and the job steps aside.
func TestAnOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), true)
	r.fell(true)
	r.accept(job.Job{ID: "j"})
	for i := range 5 {
		r.deliver("j")
		if rec := r.record("j"); rec.State != job.Retrying || rec.Attempts != 0 || time.Until(rec.Due) > time.Second {
			t.Fatalf("call %d: state %s, %d attempts, due in %v", i+1, rec.State, rec.Attempts, time.Until(rec.Due))
		}
		r.again("j")
	}
	if f := r.pacer.failures[4]; f.Outages != 1 {
		t.Errorf("%+v: it has failed often, in one outage", f)
	}
}

// A failure before the circuit opened is given back when the outage is known.
func TestAnAttemptThatRevealedAnOutageIsGivenBack(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), true)
	at := r.fell(false)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Retrying || rec.Attempts != 1 {
		t.Fatalf("state %s, %d attempts", rec.State, rec.Attempts)
	}
	r.outage(at, at.Add(time.Minute))
	r.sender.answer = answered(200, nil)
	r.again("j")
	r.deliver("j")
	if rec := r.record("j"); rec.State != job.Done || rec.Attempts != 0 {
		t.Errorf("state %s, %d attempts", rec.State, rec.Attempts)
	}
}

// outage writes down that the gateway was down.
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
				t.Fatalf("state %s, %d attempts", rec.State, rec.Attempts)
			}
			r.again("j")
		}
		s := r.deliver("j")
		rec, calls := r.record("j"), len(r.sender.keys)
		switch {
		case outage && (rec.State != job.Retrying || calls != 3):
			t.Errorf("in an outage: %s after %d calls, %d attempts", rec.State, calls, rec.Attempts)
		case !outage && (rec.Reason != job.Exhausted || calls != 2 || rec.Attempts != 2 || s.released != 1 || rec.Error != `HTTP 500: {"error":"declined"}`):
			t.Errorf("exhausted: %q after %d calls, %d attempts, error %q", rec.Reason, calls, rec.Attempts, rec.Error)
		}
	}
}

// The gateway's answers end a row of failures, in the same step as they are written down.
func TestAnAnswerEndsTheRow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer job.Result
		failed bool
		left   int64
	}{
		"success": {answered(200, nil), false, 0},
		"decline": {answered(402, nil), false, 0},
		"retry":   {answered(409, nil), false, 0},
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

// A call that may have charged and has no living key is a person's, outage or not.
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

// While the circuit is open, a job that failed goes ahead only if there is no other.
func TestJobsThatFailedStandBehindOthersWhileTheCircuitIsOpen(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(503, nil), true)
	r.fell(true)
	r.accept(job.Job{ID: "failed"})
	r.deliver("failed")
	r.accept(job.Job{ID: "fresh"})
	r.c.ZAdd(t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: "failed"})
	moved := func() int {
		n, _, err := r.books.MoveDue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r.c.HSet(t.Context(), r.keys.Hold(), "circuit", 1)
	r.c.LRem(t.Context(), r.keys.Pending(), 0, "failed~1") // as its dequeue did
	if n := moved(); n != 0 {
		t.Errorf("%d moved ahead of a fresh one", n)
	}
	fresh := r.c.RPop(t.Context(), r.keys.Pending()).Val()
	if n := moved(); n != 1 {
		t.Errorf("%d moved into an empty queue", n)
	}
	r.c.Del(t.Context(), r.keys.Pending())
	r.c.LPush(t.Context(), r.keys.Pending(), fresh)
	r.deliver("failed")
	r.c.ZAdd(t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: "failed"})
	r.c.HDel(t.Context(), r.keys.Hold(), "circuit")
	if n := moved(); n != 1 {
		t.Errorf("%d moved after it closed", n)
	}
}
