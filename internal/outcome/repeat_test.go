package outcome

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"spillway/internal/job"
)

var verdicts = []job.Verdict{job.VerdictDone, job.VerdictHold, job.VerdictRetry, job.VerdictFewer, job.VerdictRefused, job.VerdictUnknown}

// marked is an answer that says that it is an earlier one's.
func marked(status int, body string) Input {
	return answered(status, http.Header{"Idempotent-Replayed": {"true"}}, body)
}

// A first call that gets a repeated answer gets that of somebody else's call with this key: whatever it is, the job's own payment was not made.
func TestARepeatedAnswerToAFirstCallIsUnknown(t *testing.T) {
	t.Parallel()
	for _, mark := range []http.Header{{"Idempotent-Replayed": {"true"}}, {"Idempotent-Replayed": {"TRUE"}}, {"Idempotent-Replayed": {" True "}}, {"Idempotent-Replayed": {"", "true"}}} {
		for status := 200; status <= 599; status++ {
			for _, name := range []string{"default", "stripe"} {
				if j := profile(t, name).Judge(answered(status, mark, `{"id":"ch_1"}`)); !unknownAndFree(j) || j.Reference != "" {
					t.Fatalf("%d, %v, profile %s: %+v", status, mark, name, j)
				}
			}
		}
	}
	for _, then := range verdicts {
		for _, status := range []int{200, 402, 409, 429, 500} {
			rule := job.Rule{Status: status, Then: then}
			if j := profile(t, "", rule).Referring("id").Judge(marked(status, `{"id":"ch_1"}`)); !unknownAndFree(j) || j.Reference != "" || !j.Foreign || !strings.Contains(j.Error, "some other job or program") {
				t.Errorf("%d with a rule that says %s: %+v", status, then, j)
			}
		}
	}
	for _, not := range []http.Header{nil, {"Idempotent-Replayed": {"false"}}, {"Idempotent-Replayed": {""}}, {"Idempotency-Key": {"true"}}} {
		if j := profile(t, "stripe").Judge(answered(200, not, `{}`)); j.Verdict != job.VerdictDone {
			t.Errorf("%v is taken for a mark: %+v", not, j)
		}
	}
}

func unknownAndFree(j Judgement) bool {
	return j.Verdict == job.VerdictUnknown && !j.Spent && !j.Fault && !j.Alarm && j.HoldFor == 0 && j.Error != ""
}

// An answer of which a part is missing is asked for again: but not one to a first call that says it is somebody else's, as the next call would be
// a later one.
func TestARepeatedAnswerThatIsCutOff(t *testing.T) {
	t.Parallel()
	table := profile(t, "", job.Rule{Status: 200, Body: map[string]string{"status": "failed"}, Then: job.VerdictRefused})
	in := marked(200, `{"sta`)
	in.Result.Err = errors.New("the answer was cut off")
	if j := table.Judge(in); !unknownAndFree(j) {
		t.Errorf("to a first call: %+v", j)
	}
	in.Again, in.Unsure = true, true
	if j := table.Judge(in); j.Verdict != job.VerdictRetry {
		t.Errorf("to a later call: %+v", j)
	}
}

// To a later call it is the answer to the job's own earlier one: what is decided stays decided, and what is not will never be by asking again.
func TestARepeatedAnswerToALaterCall(t *testing.T) {
	t.Parallel()
	judge := func(in Input, rules ...job.Rule) Judgement {
		in.Again = true
		return profile(t, "stripe", rules...).Referring("id").Judge(in)
	}
	for _, unsure := range []bool{false, true} {
		in := marked(200, `{"id":"ch_1"}`)
		in.Unsure = unsure
		if j := judge(in); unsure && (j.Verdict != job.VerdictDone || j.Reference != "ch_1") || !unsure && (!unknownAndFree(j) || !j.Foreign) {
			t.Errorf("a success, unsure %v: %+v", unsure, j) // no call of ours can have charged: it is somebody else's
		}
		in = marked(402, `{}`)
		in.Unsure = unsure
		if j := judge(in); j.Verdict != job.VerdictRefused || !j.Spent || j.Foreign {
			t.Errorf("a decline: %+v", j)
		}
	}
	if j := judge(marked(402, `{}`), job.Rule{Status: 402, Then: job.VerdictRetry}); j.Verdict != job.VerdictRefused {
		t.Errorf("a decline that a rule has tried again with the same key: %+v", j)
	}
	if j := judge(marked(500, `{"declined":true}`), job.Rule{Status: 500, Then: job.VerdictRefused}); j.Verdict != job.VerdictRefused {
		t.Errorf("a failure that a rule takes for a decline: %+v", j)
	}
	for _, status := range []int{401, 403, 408, 409, 425, 429, 500, 502, 503, 504, 599} {
		for _, rules := range [][]job.Rule{nil, {{Status: status, Then: job.VerdictRetry}}, {{Status: status, Then: job.VerdictHold}}, {{Status: status, Then: job.VerdictFewer}}} {
			in := marked(status, `{}`)
			in.Result.Header["Retry-After"] = []string{"7"}
			if j := judge(in, rules...); !unknownAndFree(j) || !strings.Contains(j.Error, "asking again") {
				t.Errorf("%d with %v: %+v", status, rules, j)
			}
		}
	}
}

// A failure that is saved under a key comes again however often it is asked for. Without a mark it is known by Stripe's number of the request
// in its body (docs.stripe.com/api/request_ids): a body without one may be the same because the gateway is down.
func TestTheSameSavedFailureAgain(t *testing.T) {
	t.Parallel()
	const saved = `{"error":{"type":"api_error","request_log_url":"https://dashboard.stripe.com/logs/req_4f9cPfQh2Xw"}}`
	const plain = `{"error":{"type":"api_error"}}`
	for name, c := range map[string]struct {
		profile, last, now string
		status             int
		again, want        bool
	}{
		"saved":                      {"stripe", "HTTP 500: " + saved, saved, 500, true, true},
		"another request's":          {"stripe", "HTTP 500: " + strings.Replace(saved, "4f9", "5a0", 1), saved, 500, true, false},
		"another status":             {"stripe", "HTTP 500: " + saved, saved, 502, true, false},
		"nothing that tells":         {"stripe", "HTTP 500: " + plain, plain, 500, true, false},
		"the first call":             {"stripe", "HTTP 500: " + saved, saved, 500, false, false},
		"the last was something":     {"stripe", "no answer came within 30s", saved, 500, true, false},
		"not Stripe":                 {"default", "HTTP 500: " + saved, saved, 500, true, false},
		"a decline, though the same": {"stripe", "HTTP 402: " + saved, saved, 402, true, false},
	} {
		in := answered(c.status, nil, c.now)
		in.Again, in.Unsure, in.Last = c.again, true, c.last
		if j := profile(t, c.profile).Judge(in); unknownAndFree(j) != c.want {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// After a call that may have charged, only an answer that is known to be about the payment is a no. Any other 4xx may be about the repetition
// (Stripe's idempotency_error, Adyen's 704 with 409 or 422, Braintree's 915233 with 422), or come from something in front of the gateway.
func TestOnlyAnAnswerAboutThePaymentIsANo(t *testing.T) {
	t.Parallel()
	for status := 400; status <= 499; status++ {
		in := answered(status, nil, `{"a": 1}`)
		sure := profile(t, "").Judge(in)
		in.Again, in.Unsure = true, true
		unsure := profile(t, "").Judge(in)
		switch {
		case status == 402 && unsure.Verdict != job.VerdictRefused:
			t.Errorf("402: %+v", unsure)
		case status != 402 && unsure.Verdict == job.VerdictRefused:
			t.Errorf("%d is taken for a no to a payment that may have been made: %+v", status, unsure)
		case sure.Verdict == job.VerdictRefused && status != 402 && (unsure.Verdict != job.VerdictUnknown || unsure.Fault || !strings.Contains(unsure.Error, "says nothing of the earlier call")):
			t.Errorf("%d, while unsure: %+v", status, unsure)
		case sure.Verdict != job.VerdictRefused && unsure.Verdict != sure.Verdict:
			t.Errorf("%d: %+v, and while unsure %+v", status, sure, unsure)
		}
		if j := profile(t, "", job.Rule{Status: status, Body: map[string]string{"a": "1"}, Then: job.VerdictRefused}).Judge(in); j.Verdict != job.VerdictRefused {
			t.Errorf("%d, of which a rule says that it is a no: %+v", status, j)
		}
	}
}

// A redirection may come after the charge (POST, redirect, GET), so it is no no.
func TestARedirectionIsNoNo(t *testing.T) {
	t.Parallel()
	for status := 300; status <= 399; status++ {
		for _, key := range keyStates {
			in := answered(status, http.Header{"Location": {"/elsewhere"}}, "")
			in.KeySent, in.KeyLives = key.sent, key.lives
			if j := profile(t, "").Judge(in); j.Verdict != job.VerdictUnknown || !j.Spent || j.Fault {
				t.Errorf("%d, key %+v: %+v", status, key, j)
			}
		}
	}
	if j := profile(t, "", job.Rule{Status: 308, Then: job.VerdictRefused}).Judge(answered(308, nil, "")); j.Verdict != job.VerdictRefused {
		t.Errorf("a rule does not count: %+v", j)
	}
}

// A conflict that a first call meets, or one whose earlier calls did nothing, is with somebody else's call: the key does not count as the job's own then.
func TestAConflictWithNoCallOfItsOwnIsWithSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ again, unsure, lapse, foreign bool }{
		"first call":                    {false, false, false, true},
		"earlier calls did nothing":     {true, false, false, true},
		"an earlier one may charge":     {true, true, false, false},
		"one may have been forgotten":   {true, false, true, false},
		"one of them, and one in doubt": {true, true, true, false},
	} {
		for _, key := range keyStates {
			for _, status := range []int{200, 402, 408, 409, 422, 500} {
				in := answered(status, nil, `{}`)
				in.KeySent, in.KeyLives, in.Again, in.Unsure, in.Lapse = key.sent, key.lives, c.again, c.unsure, c.lapse
				if j := profile(t, "stripe").Judge(in); j.Foreign != (status == 409 && key.sent && c.foreign) {
					t.Errorf("%s: %d, key %+v: %+v", name, status, key, j)
				}
			}
		}
	}
}

// What Stripe says of a key: another call with it is under way, or it was used for something else.
func TestStripeOnKeys(t *testing.T) {
	t.Parallel()
	inUse := `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`
	other := `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters."}}`
	for _, unsure := range []bool{false, true} {
		for body, want := range map[string]job.Verdict{inUse: job.VerdictRetry, other: job.VerdictUnknown} {
			for _, status := range []int{400, 409} {
				in := answered(status, nil, body)
				in.Unsure = unsure
				if j := profile(t, "stripe").Judge(in); status == 409 && j.Verdict != want || body == other && j.Verdict != job.VerdictUnknown {
					t.Errorf("%d %s, unsure %v: %+v", status, body, unsure, j)
				}
			}
		}
	}
	if j := profile(t, "stripe").Judge(answered(409, nil, `{"error":{"code":"lock"}}`)); j.Verdict != job.VerdictRetry {
		t.Errorf("any other 409: %+v", j)
	}
	if j := profile(t, "stripe").Judge(answered(400, nil, `{"error":{"type":"invalid_request_error"}}`)); j.Verdict != job.VerdictRefused {
		t.Errorf("any other 400: %+v", j)
	}
}

// A gateway that says no with a 2xx, as Adyen does: paid is only what says so.
func TestDoneNeedsWhatItNeeds(t *testing.T) {
	t.Parallel()
	table := profile(t, "stripe", job.Rule{Status: 200, Body: map[string]string{"resultCode": "Refused"}, Then: job.VerdictRefused}, job.Rule{Status: 204, Then: job.VerdictDone}).
		Needing(map[string][]string{"resultCode": {"Authorised", "Success"}, "live": {"true"}}).Referring("pspReference")
	cut := answered(200, nil, `{"resultCode":"Author`)
	cut.Result.Err = errors.New("the answer was cut off")
	cutNoKey := cut
	cutNoKey.KeyLives = false
	for name, c := range map[string]struct {
		in   Input
		want job.Verdict
	}{
		"all of it":               {answered(200, nil, `{"resultCode":"Authorised","live":true,"pspReference":"X1"}`), job.VerdictDone},
		"another value of a list": {answered(201, nil, `{"resultCode":"Success","live":true,"pspReference":"X1"}`), job.VerdictDone},
		"half of it":              {answered(200, nil, `{"resultCode":"Authorised"}`), job.VerdictUnknown},
		"another value":           {answered(200, nil, `{"resultCode":"Received","live":true}`), job.VerdictUnknown},
		"no JSON":                 {answered(200, nil, "OK"), job.VerdictUnknown},
		"no body":                 {answered(202, nil, ""), job.VerdictUnknown},
		"a rule decides first":    {answered(200, nil, `{"resultCode":"Refused"}`), job.VerdictRefused},
		"a rule that says done":   {answered(204, nil, ""), job.VerdictDone},
		"cut off":                 {cut, job.VerdictRetry},
		"cut off, no living key":  {cutNoKey, job.VerdictUnknown},
		"no 2xx":                  {answered(402, nil, `{"resultCode":"Authorised","live":true}`), job.VerdictRefused},
	} {
		j := table.Judge(c.in)
		if j.Verdict != c.want || j.Fault && !strings.Contains(name, "cut off") || (j.Verdict == job.VerdictDone && name != "a rule that says done") != (j.Reference == "X1") {
			t.Errorf("%s: %+v, want %s", name, j, c.want)
		}
		if j.Verdict == job.VerdictUnknown && j.Spent && !strings.Contains(name, "cut off") && !strings.Contains(j.Error, "done_needs") {
			t.Errorf("%s: nobody says why: %+v", name, j)
		}
	}
}
