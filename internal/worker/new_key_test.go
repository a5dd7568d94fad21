package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway/internal/job"
	"spillway/internal/worker"
)

// spent is an answer that asks for another key.
var spent = job.Result{Stage: job.Answered, Status: 422, Body: []byte(`{"code":"key_spent"}`)}

func newKeyRig(t *testing.T, keys bool) *rig {
	t.Helper()
	r := setup(t, job.Result{}, keys)
	r.judging(job.Rule{Status: 422, Body: map[string]string{"code": "key_spent"}, Then: job.VerdictNewKey})
	r.accept(job.Job{ID: "j"})
	return r
}

// After a certain decline that asks for a new key, the job is called with the next key, which was never sent before. Each call spends an attempt.
func TestANewKeyIsTakenByItself(t *testing.T) {
	t.Parallel()
	r := newKeyRig(t, true)
	r.made.Attempts = 3
	r.w = worker.New(r.made)
	for n := range 2 {
		rec := r.call("j", spent)
		if rec.State != job.Retrying || rec.Spent != n+1 || rec.KeyGeneration != int64(n+2) || rec.Unsure || !rec.FirstCall.IsZero() {
			t.Fatalf("after call %d: %s, %d spent, key %d, first called %v", n+1, rec.State, rec.Spent, rec.KeyGeneration, rec.FirstCall)
		}
		if last := rec.History[len(rec.History)-1]; last.Verdict != string(job.VerdictNewKey) {
			t.Errorf("the history says %s", last.Verdict)
		}
	}
	rec := r.call("j", answered(200, nil))
	if want := []string{"j", "j~2", "j~3"}; rec.State != job.Done || !slices.Equal(r.sender.keys, want) {
		t.Errorf("%s, keys %v, want %v", rec.State, r.sender.keys, want)
	}
}

// While an earlier call may have charged, no other key is used automatically.
func TestNoNewKeyWhileAnEarlierCallMayHaveCharged(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]job.Result{"a lost answer": lost, "a 500": answered(500, nil)} {
		r := newKeyRig(t, true)
		r.call("j", earlier)
		rec := r.call("j", spent)
		if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || !rec.Unsure || rec.KeyGeneration != 1 || !strings.Contains(rec.Error, "may have charged") {
			t.Errorf("%s: %s %s, may have charged %v, key %d: %s", name, rec.State, rec.Reason, rec.Unsure, rec.KeyGeneration, rec.Error)
		}
	}
	r := newKeyRig(t, true)
	r.c.HSet(t.Context(), r.keys.Hold(), "lost", fmt.Sprint(r.record("j").Accepted.UnixMicro()+1))
	if rec := r.call("j", spent); rec.Reason != job.UnknownOutcome || rec.KeyGeneration != 1 {
		t.Errorf("Redis may have forgotten a call: %s %s, key %d", rec.State, rec.Reason, rec.KeyGeneration)
	}
}

// When its attempts are spent the job is parked. Its replay begins with a key that was never sent.
func TestAttemptsEndNewKeys(t *testing.T) {
	t.Parallel()
	r := newKeyRig(t, true)
	r.made.Attempts = 2
	r.w = worker.New(r.made)
	r.call("j", spent)
	rec := r.call("j", spent)
	if rec.State != job.Parked || rec.Reason != job.Exhausted || rec.Unsure || rec.KeyGeneration != 3 {
		t.Fatalf("%s %s, key %d, may have charged %v", rec.State, rec.Reason, rec.KeyGeneration, rec.Unsure)
	}
	if change, why := r.replay("j"); change != job.KeepKey || why != "" {
		t.Fatalf("replayed with key %q (%s)", change, why)
	}
	if r.call("j", answered(200, nil)); !slices.Equal(r.sender.keys, []string{"j", "j~2", "j~3"}) {
		t.Errorf("keys %v", r.sender.keys)
	}
}

// Without keys, a new_key answer can't be followed.
func TestNoNewKeyWithoutKeys(t *testing.T) {
	t.Parallel()
	r := newKeyRig(t, false)
	if rec := r.call("j", spent); rec.State != job.Parked || rec.Reason != job.Refused {
		t.Errorf("%s %s", rec.State, rec.Reason)
	}
}

// After a loss of Redis's data an earlier call may be forgotten, whatever harmless answer came since. What the gateway says about the key may concern the job's own earlier call.
func TestALossOutlivesAHarmlessAnswer(t *testing.T) {
	t.Parallel()
	for name, harmless := range map[string]job.Result{"429": answered(429, nil), "503": answered(503, map[string][]string{"Retry-After": {"1"}}), "425": answered(425, nil), "403": answered(403, nil)} {
		for what, then := range map[string]job.Result{"new_key": spent, "400": answered(400, nil), "repeated 200": repeated(200)} {
			r := newKeyRig(t, true)
			r.made.Attempts = 6
			r.c.HSet(t.Context(), r.keys.Hold(), "lost", fmt.Sprint(r.record("j").Accepted.UnixMicro()+1))
			r.call("j", harmless)
			rec := r.call("j", then)
			paid := what == "repeated 200"
			if (rec.State == job.Done) != paid || rec.KeyGeneration != 1 || !paid && rec.Reason != job.UnknownOutcome {
				t.Errorf("%s, then %s: %s %s with key %d: %s", name, what, rec.State, rec.Reason, rec.KeyGeneration, rec.Error)
			}
		}
	}
}
