package worker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/deadletter"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/outcome"
	"spillway/internal/worker"
)

// call delivers a job, whose call gets this answer. It first ends the job's back-off.
func (r *rig) call(id string, answer job.Result) job.Record {
	r.t.Helper()
	if rec := r.record(id); rec.State == job.Retrying {
		r.c.HSet(r.t.Context(), r.keys.Job(id), "due", 1)
		r.c.ZAdd(r.t.Context(), r.keys.Retrying(), redis.Z{Score: 1, Member: id})
		if _, _, err := r.books.MoveDue(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
	r.sender.answer = answer
	r.deliver(id)
	return r.record(id)
}

// replay replays a parked job, with an expired key if asked to, and returns whether the rules allowed it.
func (r *rig) replay(id string, also ...job.KeyChange) (change job.KeyChange, why string) {
	r.t.Helper()
	rec := r.record(id)
	rules := deadletter.Rules{Keys: true, KeyLifetime: time.Hour, ExpiredKeys: len(also) > 0, Now: time.Now()}
	if change, why = rules.Key(rec); why != "" {
		return change, why
	}
	_, _, err := r.books.Readmit(r.t.Context(), []job.Return{{ID: id, Generation: rec.Generation, Reason: rec.Reason, Key: change}})
	if err != nil {
		r.t.Fatal(err)
	}
	return change, ""
}

func repeated(status int) job.Result {
	return answered(status, map[string][]string{"Idempotent-Replayed": {"true"}})
}

var lost = job.Result{Stage: job.Sent, Err: errors.New("no answer within 1s")}

// If a job can't have been charged before, the charge in a repeated answer is somebody else's, whatever earlier answers said. That stays so
// however often the job is called with this key.
func TestAnotherJobsChargeIsNeverBooked(t *testing.T) {
	t.Parallel()
	wait := map[string][]string{"Retry-After": {"1"}}
	for name, before := range map[string][]job.Result{
		"nothing":                                  nil,
		"another's call under way":                 {answered(409, nil)},
		"... for a long time":                      {answered(409, nil), repeated(200)},
		"a limit":                                  {answered(429, wait)},
		"too early":                                {answered(425, nil)},
		"no way in":                                {answered(401, nil)},
		"a limit, then another's call under way":   {answered(429, wait), answered(409, nil)},
		"too early, then another's under way":      {answered(425, nil), answered(409, nil)},
		"no way in, then another's call under way": {answered(401, nil), answered(409, nil)},
		"a wait, then another's call under way":    {answered(503, wait), answered(409, nil)},
		"no connection":                            {{Stage: job.NotSent, Err: errors.New("connection refused")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, job.Result{}, true)
			r.accept(job.Job{ID: "j"})
			for _, b := range before {
				r.call("j", b)
			}
			for try := range 3 {
				if rec := r.record("j"); rec.State == job.Parked {
					if change, why := r.replay("j"); why == "" {
						t.Fatalf("try %d: a replay takes the key for the job's own: %s", try, change)
					}
					if change, why := r.replay("j", job.ForgetKey); change != job.ForgetKey || why != "" {
						t.Fatalf("try %d: %s, %s", try, change, why)
					}
				}
				rec := r.call("j", repeated(200))
				if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || rec.Spent != 0 && !strings.Contains(name, "under way") && !strings.Contains(name, "long") ||
					!strings.Contains(rec.Error, "some other job or program") {
					t.Fatalf("try %d: %s %s, %d attempts, %q", try, rec.State, rec.Reason, rec.Spent, rec.Error)
				}
			}
			if len(r.pacer.failures) > 0 && name != "no connection" {
				t.Errorf("failures of the gateway were counted: %v", r.pacer.failures)
			}
			if slices.ContainsFunc(r.sender.keys, func(k string) bool { return k != "j" }) {
				t.Errorf("keys %v", r.sender.keys)
			}
		})
	}
}

// A repeated answer to the job's own earlier call counts as its answer: that is what the idempotency key is for.
func TestARepeatedAnswerToOnesOwnCallCounts(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]job.Result{"lost": lost, "408": answered(408, nil), "500": answered(500, nil), "504": answered(504, nil)} {
		for status, want := range map[int]job.State{200: job.Done, 402: job.Parked} {
			r := setup(t, job.Result{}, true)
			r.accept(job.Job{ID: "j"})
			r.call("j", first)
			if rec := r.call("j", repeated(status)); rec.State != want || status == 402 && rec.Reason != job.Refused {
				t.Errorf("%s, then %d: %s %s", name, status, rec.State, rec.Reason)
			}
		}
	}
	r := setup(t, job.Result{}, true)
	r.accept(job.Job{ID: "j"})
	r.call("j", lost)
	r.c.HSet(t.Context(), r.keys.Job("j"), "s", "in_flight", "o", "dead", "od", 1, "n", 0, "oa", time.Now().UnixMicro()) // its next call's worker died
	if rec := r.call("j", repeated(200)); rec.State != job.Done {
		t.Errorf("after a crash: %s %s", rec.State, rec.Reason)
	}
}

// A failure that the gateway saved under the key is asked for once more, which shows that it is saved, and then never again. It does not count as a present failure of the gateway.
func TestASavedFailureIsAskedForTwiceAndNoMore(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 502, 503} {
		r := setup(t, job.Result{}, true)
		r.accept(job.Job{ID: "j"})
		first := r.call("j", answered(status, nil))
		rec := r.call("j", repeated(status))
		if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || !rec.Unsure || rec.Spent != first.Spent || len(r.pacer.failures) != 1 || len(r.sender.keys) != 2 {
			t.Errorf("%d: %s %s, %d attempts after %d, failures %v, calls %v", status, rec.State, rec.Reason, rec.Spent, first.Spent, r.pacer.failures, r.sender.keys)
		}
	}
	saved := job.Result{Stage: job.Answered, Status: 500, Body: []byte(`{"error":{"request_log_url":"https://dashboard.stripe.com/logs/req_4f9cPfQh2Xw"}}`)}
	r := setup(t, job.Result{}, true, "stripe")
	r.accept(job.Job{ID: "j"})
	r.call("j", saved)
	if rec := r.call("j", saved); rec.State != job.Parked || rec.Reason != job.UnknownOutcome || len(r.pacer.failures) != 1 {
		t.Errorf("without a mark: %s %s, failures %v", rec.State, rec.Reason, r.pacer.failures)
	}
}

// After a call that may have charged, the next key is used only after a certain decline. Before such a call, any decline is enough.
func TestTheKeyMovesOnAfterANoToThePaymentAlone(t *testing.T) {
	t.Parallel()
	for status := 300; status <= 499; status++ {
		switch status {
		case 401, 403, 408, 409, 425, 429, 499: // not taken for a no in any case
			continue
		}
		r := setup(t, job.Result{}, true)
		r.accept(job.Job{ID: "j"})
		r.accept(job.Job{ID: "k"})
		r.call("j", lost)
		rec := r.call("j", answered(status, nil))
		change, why := r.replay("j")
		if no := status == 402; (rec.Reason == job.Refused) != no || (rec.Reason == job.UnknownOutcome) == no || (change == job.NextKey) != no || why != "" || rec.Unsure == no {
			t.Errorf("%d after a lost answer: %s, replayed with key %q (%s)", status, rec.Reason, change, why)
		}
		rec = r.call("k", answered(status, nil))
		change, _ = r.replay("k")
		if no := status >= 400; (rec.Reason == job.Refused) != no || (change == job.NextKey) != no {
			t.Errorf("%d: %s, replayed with key %q", status, rec.Reason, change)
		}
	}
}

// A rule that retries after a 2xx or a 422 waits for a payment that was begun. If the next answer is something else, the payment may have been made.
func TestAPaymentThatWasBegunMayHaveCharged(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{200: true, 202: true, 302: true, 422: true, 402: false, 404: false, 425: false, 429: false} {
		r := setup(t, job.Result{}, true)
		table, err := outcome.Table{}.With([]job.Rule{{Status: status, Then: job.VerdictRetry}})
		if err != nil {
			t.Fatal(err)
		}
		r.made.Judge = table
		r.w = worker.New(r.made)
		r.accept(job.Job{ID: "j"})
		if rec := r.call("j", answered(status, nil)); rec.State != job.Retrying || rec.Unsure != want {
			t.Errorf("%d: %s, may have charged: %v", status, rec.State, rec.Unsure)
		}
		rec := r.call("j", answered(400, nil))
		if change, _ := r.replay("j"); (rec.Reason == job.UnknownOutcome) != want || (change == job.NextKey) == want {
			t.Errorf("%d, then 400: %s, replayed with key %q", status, rec.Reason, change)
		}
	}
}

// A job that may have been charged is called only with the request that may have charged it. Any other job is called with a changed request, too.
func TestWhileUnsureNoOtherRequestGoesOut(t *testing.T) {
	t.Parallel()
	then := job.SentDigest("POST https://pay.example/v1", "json", "Idempotency-Key: ", "")
	for name, c := range map[string]struct{ now, says string }{
		"nothing":  {then, ""},
		"url":      {job.SentDigest("POST https://pay.example/v2", "json", "Idempotency-Key: ", ""), "url or method"},
		"encoding": {job.SentDigest("POST https://pay.example/v1", "form", "Idempotency-Key: ", ""), "encoding or strip"},
		"prefix":   {job.SentDigest("POST https://pay.example/v1", "json", "Idempotency-Key: eu-", ""), "idempotency_header, prefix or key"},
		"two":      {job.SentDigest("PUT https://pay.example/v1", "form", "Idempotency-Key: ", ""), "url or method, encoding or strip;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, job.Result{}, true)
			for _, id := range []string{"unsure", "cut", "waits", "new"} {
				r.accept(job.Job{ID: id})
			}
			r.configured(then)
			r.call("unsure", lost)
			r.call("waits", answered(425, nil))
			r.call("cut", answered(425, nil))
			r.c.HSet(t.Context(), r.keys.Job("cut"), "s", "in_flight", "o", "dead", "od", 1, "oa", time.Now().UnixMicro())
			r.c.ZRem(t.Context(), r.keys.Retrying(), "cut")
			r.configured(c.now)
			for _, id := range []string{"unsure", "cut"} {
				calls := len(r.sender.keys)
				rec := r.call(id, answered(200, nil))
				if c.says == "" {
					if rec.State != job.Done {
						t.Errorf("%s: %s %s %s", id, rec.State, rec.Reason, rec.Error)
					}
					continue
				}
				if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || !rec.Unsure || len(r.sender.keys) != calls || !strings.Contains(rec.Error, c.says) || !strings.Contains(rec.Error, "put that back") {
					t.Errorf("%s: %s %s, %d calls, %q", id, rec.State, rec.Reason, len(r.sender.keys)-calls, rec.Error)
				}
				if change, why := r.replay(id); change != job.KeepKey || why != "" {
					t.Errorf("%s: replayed with key %q (%s)", id, change, why)
				}
				if rec := r.call(id, answered(200, nil)); rec.State != job.Parked {
					t.Errorf("%s, replayed: %s", id, rec.State)
				}
				r.replay(id)
				r.configured(then)
				if rec := r.call(id, answered(200, nil)); rec.State != job.Done {
					t.Errorf("%s, with the old request back: %s %s", id, rec.State, rec.Error)
				}
				r.configured(c.now)
			}
			for _, id := range []string{"waits", "new"} {
				if rec := r.call(id, lost); rec.State != job.Retrying {
					t.Errorf("%s: %s %s %s", id, rec.State, rec.Reason, rec.Error)
				}
				if rec := r.call(id, answered(200, nil)); rec.State != job.Done {
					t.Errorf("%s, the second time: %s %s %s", id, rec.State, rec.Reason, rec.Error)
				}
			}
		})
	}
}

// The digest of the request is recorded with the first call, and not before: a queued job needs no memory for it, and a done job does not keep it.
func TestTheDigestOfWhatWasSentIsThereWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	r := setup(t, job.Result{}, true)
	r.accept(job.Job{ID: "j"})
	r.configured(job.SentDigest("POST https://pay.example/v1", "json", "Idempotency-Key: ", ""))
	has := func() bool { return r.c.HExists(t.Context(), r.keys.Job("j"), "sd").Val() }
	before := has()
	r.call("j", lost)
	during := has()
	r.call("j", answered(200, nil))
	if before || !during || has() {
		t.Errorf("queued %v, called %v, done %v; want it in between alone", before, during, has())
	}
}

// configured makes the worker use a request with that digest.
func (r *rig) configured(sent string) {
	r.kept.Sent, r.made.Sent = sent, sent
	r.flaky.Books = ledger.New(r.c, r.kept)
	r.w = worker.New(r.made)
}

// judging makes the worker judge answers by these rules.
func (r *rig) judging(rules ...job.Rule) {
	r.t.Helper()
	table, err := outcome.Table{}.With(rules)
	if err != nil {
		r.t.Fatal(err)
	}
	r.made.Judge = table
	r.w = worker.New(r.made)
}

// After a failure that may have charged, only the same key makes another call safe, whatever rule matched. Without keys no other call is made, and
// the gateway is held as the rule says.
func TestARuleMakesNoCallAgainThatMayHaveCharged(t *testing.T) {
	t.Parallel()
	verdicts := []job.Verdict{job.VerdictHold, job.VerdictFewer, job.VerdictRetry}
	unsure := map[int][]job.Verdict{408: verdicts, 499: verdicts, 500: verdicts, 502: verdicts, 504: verdicts, 529: verdicts, 503: {job.VerdictRetry}, 200: {job.VerdictRetry},
		409: {job.VerdictRetry}, 422: {job.VerdictRetry}, 429: nil, 404: nil}
	for status, doubtful := range unsure {
		for _, v := range verdicts {
			for _, keys := range []bool{true, false} {
				r := setup(t, job.Result{}, keys)
				r.pacer.few = 1
				r.judging(job.Rule{Status: status, Body: map[string]string{"code": "busy"}, Then: v})
				r.accept(job.Job{ID: "j"})
				busy := answered(status, nil)
				busy.Body = []byte(`{"code":"busy"}`)
				rec := r.call("j", busy)
				want := slices.Contains(doubtful, v)
				if parked := rec.State == job.Parked && rec.Reason == job.UnknownOutcome && strings.Contains(rec.Error, "busy"); rec.Unsure != want || parked != (want && !keys) {
					t.Errorf("%s on %d, keys %v: %s %s %q, may have charged: %v", v, status, keys, rec.State, rec.Reason, rec.Error, rec.Unsure)
				}
				if v == job.VerdictHold && len(r.pacer.holds) != 1 || v == job.VerdictFewer && r.pacer.fewer != 1 {
					t.Errorf("%s on %d, keys %v: %d holds, %d times fewer", v, status, keys, len(r.pacer.holds), r.pacer.fewer)
				}
				if rec.State == job.Parked {
					continue
				}
				if rec := r.call("j", answered(200, nil)); len(r.sender.keys) != 2 || rec.State != job.Done {
					t.Errorf("%s on %d, keys %v, then a 200: %s %s, %d calls", v, status, keys, rec.State, rec.Reason, len(r.sender.keys))
				}
			}
		}
	}
}

// After an unsure call without a key, no call with a key is made: the first may have charged, and nothing links the two.
func TestAKeyCoversNoCallThatDidNotCarryIt(t *testing.T) {
	t.Parallel()
	keyless := gateway.Config{URL: "https://pay.example/v1"}.Digest()
	keyed := gateway.Config{URL: "https://pay.example/v1", Key: job.KeyShape{Name: "Idempotency-Key"}}.Digest()
	for _, how := range []string{"replayed", "cut off"} {
		r := setup(t, job.Result{}, false)
		r.configured(keyless)
		r.accept(job.Job{ID: "j"})
		r.call("j", lost)
		if how == "cut off" {
			r.c.ZRem(t.Context(), r.keys.Parked("unknown_outcome"), "j")
			r.c.HDel(t.Context(), r.keys.Job("j"), "am", "r", "pa", "e")
			r.c.HSet(t.Context(), r.keys.Job("j"), "s", "in_flight", "o", "dead", "od", 1, "n", 0, "oa", time.Now().UnixMicro())
		}
		r.kept.Keys, r.made.Keys, r.kept.KeyLifetime, r.made.KeyLifetime = true, true, time.Hour, time.Hour
		r.configured(keyed)
		if how == "replayed" {
			r.replay("j")
		}
		rec := r.call("j", answered(200, nil))
		if len(r.sender.keys) != 1 || rec.State != job.Parked || rec.Reason != job.UnknownOutcome || !rec.Unsure || !strings.Contains(rec.Error, "idempotency_header") {
			t.Errorf("%s: %d calls, %s %s, %q", how, len(r.sender.keys), rec.State, rec.Reason, rec.Error)
		}
	}
}

// After a loss of data, Redis may have forgotten a call. After a person settled the key later, it has forgotten none with that key, so a repeated answer is somebody else's.
func TestALossOfRedisExcusesNoKeyThatWasSettledAfterIt(t *testing.T) {
	t.Parallel()
	for _, change := range []job.KeyChange{job.ForgetKey, job.SettleKey} {
		r := setup(t, job.Result{}, true)
		r.accept(job.Job{ID: "j"})
		r.call("j", repeated(200))
		r.c.HSet(t.Context(), r.keys.Hold(), "lost", time.Now().UnixMicro())
		rec := r.record("j")
		if _, _, err := r.books.Readmit(t.Context(), []job.Return{{ID: "j", Generation: rec.Generation, Reason: rec.Reason, Key: change}}); err != nil {
			t.Fatal(err)
		}
		if rec := r.call("j", repeated(200)); rec.State != job.Parked || rec.Reason != job.UnknownOutcome {
			t.Errorf("key %s: %s %s, called with %v", change, rec.State, rec.Reason, r.sender.keys)
		}
	}
}

// A 4xx does not prove that a call which Redis may have forgotten did not charge, so the key stays.
func TestARefusalAfterALossOfRedisIsNoNo(t *testing.T) {
	t.Parallel()
	for status, no := range map[int]bool{400: false, 404: false, 422: false, 402: true} {
		r := setup(t, job.Result{}, true)
		r.accept(job.Job{ID: "j"})
		r.c.HSet(t.Context(), r.keys.Hold(), "lost", time.Now().UnixMicro())
		rec := r.call("j", answered(status, nil))
		change, why := r.replay("j")
		if (rec.Reason == job.Refused) != no || rec.Unsure == no || (change == job.NextKey) != no || why != "" {
			t.Errorf("%d: %s, may have charged: %v, replayed with key %q (%s)", status, rec.Reason, rec.Unsure, change, why)
		}
	}
}

// accepted calls a job whose payment the gateway accepts, with that reference.
func accepted(t *testing.T, reference string) *rig {
	t.Helper()
	r := setup(t, job.Result{Stage: job.Answered, Status: 202, Body: []byte(`{"id":"` + reference + `"}`)}, true)
	table, err := outcome.Table{}.Referring("id").With([]job.Rule{{Status: 202, Then: job.VerdictAccepted}})
	if err != nil {
		t.Fatal(err)
	}
	r.made.Judge = table
	r.w = worker.New(r.made)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	return r
}

// A payment that the gateway accepted is neither recorded as done nor sent again. It is parked with its reference, so that a person can find out its outcome.
func TestAnAcceptedPaymentIsParkedWithItsReference(t *testing.T) {
	t.Parallel()
	r := accepted(t, "tr_1")
	rec := r.record("j")
	if rec.State != job.Parked || rec.Reason != job.UnknownOutcome || rec.Reference != "tr_1" || !rec.Unsure || !strings.HasPrefix(rec.Error, "accepted, outcome later") {
		t.Errorf("%s %s, reference %q, in doubt %v: %s", rec.State, rec.Reason, rec.Reference, rec.Unsure, rec.Error)
	}
	if len(r.pacer.failures)+len(r.pacer.holds) != 0 || r.pacer.succeeded == 0 {
		t.Error("the gateway has done its work: no trouble")
	}
}

// If the gateway executes a failed call again under the same key, no second call is made after one that may have charged.
func TestAKeyThatCoversNothingIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]job.Result{"a 500": answered(500, nil), "a lost answer": lost} {
		r := setup(t, answer, true)
		r.made.KeyLifetime = 0
		r.w = worker.New(r.made)
		r.accept(job.Job{ID: "j"})
		r.deliver("j")
		if rec := r.record("j"); rec.State != job.Parked || rec.Reason != job.UnknownOutcome {
			t.Errorf("%s: %s %s", name, rec.State, rec.Reason)
		}
		if len(r.sender.keys) != 1 || r.sender.keys[0] == "" {
			t.Errorf("%s: keys %v: the key goes out all the same", name, r.sender.keys)
		}
	}
}

// If an accepted payment fails, its reference does not remain for the next payment of the job.
func TestTheReferenceGoesWithItsKey(t *testing.T) {
	t.Parallel()
	r := accepted(t, "tr_FAILED")
	rec := r.record("j")
	if _, _, err := r.books.Readmit(t.Context(), []job.Return{{ID: "j", Generation: rec.Generation, Reason: rec.Reason, Key: job.SettleKey}}); err != nil || rec.Reference != "tr_FAILED" {
		t.Fatalf("%v, reference %q", err, rec.Reference)
	}
	if rec = r.call("j", job.Result{Stage: job.Answered, Status: 200, Body: []byte(`{"ok":true}`)}); rec.State != job.Done || rec.Reference != "" {
		t.Errorf("%s with the reference %q", rec.State, rec.Reference)
	}
}

// A job in doubt without a known call is not called again if a key no longer covers a second call.
func TestADoubtWithoutACallOutlivesAKeyThatCoversNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, answered(409, nil), true)
	r.accept(job.Job{ID: "j"})
	r.deliver("j")
	if rec := r.record("j"); !rec.Unsure {
		t.Fatalf("%+v: want it in doubt", rec)
	}
	r.kept.KeyLifetime, r.made.KeyLifetime = 0, 0
	r.books = ledger.New(r.c, r.kept)
	r.flaky.Books = r.books
	r.w = worker.New(r.made)
	if rec := r.call("j", answered(200, nil)); rec.Reason != job.UnknownOutcome || len(r.sender.keys) != 1 {
		t.Errorf("%s %s after the keys %v", rec.State, rec.Reason, r.sender.keys)
	}
}

// A job that no call can have charged is replayed. One in doubt is not, and the reason says so.
func TestReplaysWhereAKeyCoversNothing(t *testing.T) {
	t.Parallel()
	rules := deadletter.Rules{Keys: true, Now: time.Now()}
	called := job.Record{Reason: job.Exhausted, State: job.Parked, FirstCall: time.Now().Add(-time.Hour)}
	if change, why := rules.Key(called); change != job.KeepKey || why != "" {
		t.Errorf("%s %q", change, why)
	}
	called.Unsure = true
	if _, why := rules.Key(called); !strings.Contains(why, "covers no second call") {
		t.Errorf("%q", why)
	}
}

// A key that another program's call has for ever is not waited for for ever: the key's life, which would end the wait, is not counted for this job.
func TestAConflictOverAnothersCallUsesUpTheAttempts(t *testing.T) {
	t.Parallel()
	r := setup(t, job.Result{}, true)
	r.accept(job.Job{ID: "j"})
	r.call("j", answered(409, nil))
	if rec := r.call("j", answered(409, nil)); rec.State != job.Parked || rec.Reason != job.Exhausted || rec.Spent != 2 || !rec.Unsure {
		t.Errorf("%s %s after %d attempts, may have charged: %v", rec.State, rec.Reason, rec.Spent, rec.Unsure)
	}
}
