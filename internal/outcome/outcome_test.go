package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

func answered(status int, header http.Header, body string) Input {
	return Input{Result: job.Result{Stage: job.Answered, Status: status, Header: header, Body: []byte(body)}, KeySent: true, KeyLives: true}
}

func profile(t *testing.T, name string, rules ...job.Rule) Table {
	t.Helper()
	table, err := Profile(name)
	if err != nil {
		t.Fatal(err)
	}
	if table, err = table.With(rules); err != nil {
		t.Fatal(err)
	}
	return table
}

// keyState is what is known of the key: none sent, sent and forgotten by now, sent and living.
type keyState struct{ sent, lives bool }

var keyStates = []keyState{{false, false}, {true, false}, {true, true}, {false, true}}

// wanted is the design's sentence about the default profile, written down once more, status by status.
func wanted(status int, retryAfter bool, key keyState) (job.Verdict, bool) {
	again := job.VerdictUnknown
	if key.sent && key.lives {
		again = job.VerdictRetry
	}
	switch {
	case status >= 200 && status < 300:
		return job.VerdictDone, true
	case status == 429, status == 401, status == 403, status == 503 && retryAfter:
		return job.VerdictHold, false
	case status == 409, status == 425:
		if key.sent {
			return job.VerdictRetry, status == 409
		}
		return job.VerdictRefused, true
	case status == 408, status == 499, status >= 500, status < 200:
		return again, true
	case status < 400:
		return job.VerdictUnknown, true
	}
	return job.VerdictRefused, true
}

func TestEveryStatusOfTheDefaultProfile(t *testing.T) {
	t.Parallel()
	table := profile(t, "default")
	for status := 100; status <= 599; status++ {
		for _, key := range keyStates {
			for _, retryAfter := range []bool{false, true} {
				in := answered(status, http.Header{}, `{"a": 1}`)
				in.KeySent, in.KeyLives = key.sent, key.lives
				if retryAfter {
					in.Result.Header["Retry-After"] = []string{"7"}
				}
				j := table.Judge(in)
				verdict, spent := wanted(status, retryAfter, key)
				if j.Verdict != verdict || j.Spent != spent {
					t.Errorf("%d, key %+v, Retry-After %v: %s spent=%v, want %s spent=%v", status, key, retryAfter, j.Verdict, j.Spent, verdict, spent)
				}
				if want := status >= 500 && j.Verdict != job.VerdictHold; j.Fault != want {
					t.Errorf("%d, Retry-After %v: fault = %v", status, retryAfter, j.Fault)
				}
				checkReasons(t, status, retryAfter, j)
			}
		}
	}
}

func checkReasons(t *testing.T, status int, retryAfter bool, j Judgement) {
	t.Helper()
	if want := fmt.Sprintf("HTTP %d", status); j.Why != want {
		t.Errorf("%d: why = %q, want %q", status, j.Why, want)
	}
	if want := fmt.Sprintf(`HTTP %d: {"a": 1}`, status); j.Verdict != job.VerdictDone && j.Error != want {
		t.Errorf("%d: error = %q, want %q", status, j.Error, want)
	}
	if want := status == 401 || status == 403; j.Alarm != want {
		t.Errorf("%d: alarm = %v", status, j.Alarm)
	}
	want := time.Duration(0)
	if retryAfter && j.Verdict == job.VerdictHold {
		want = 7 * time.Second
	}
	if j.HoldFor != want {
		t.Errorf("%d: holds for %v, want %v", status, j.HoldFor, want)
	}
}

func TestStagesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	invalid := &job.Error{Code: job.CodeInvalid, Message: "the payload has no field x"}
	for _, key := range keyStates {
		living := key.sent && key.lives
		lost := job.VerdictUnknown
		if living {
			lost = job.VerdictRetry
		}
		for _, c := range []struct {
			name  string
			res   job.Result
			want  job.Verdict
			spent bool
			text  string
		}{
			{"refused connection", job.Result{Stage: job.NotSent, Err: errors.New("connecting failed: connection refused")}, job.VerdictRetry, false, "connecting failed: connection refused"},
			{"not sent, no error", job.Result{Stage: job.NotSent}, job.VerdictRetry, false, "the request was not sent"},
			{"late", job.Result{Stage: job.NotSent, Late: true, Err: errors.New("the slot had passed")}, job.VerdictRetry, false, "the slot had passed"},
			{"not a request", job.Result{Stage: job.NotSent, Err: fmt.Errorf("gateway: %w", invalid)}, job.VerdictRefused, true, "gateway: the payload has no field x"},
			{"time-out after the write", job.Result{Stage: job.Sent, Err: errors.New("no answer came within 30s")}, lost, true, "no answer came within 30s"},
			{"sent, no error", job.Result{Stage: job.Sent}, lost, true, "the request was written and no answer came"},
			{"no stage", job.Result{}, lost, true, "the request was written and no answer came"},
		} {
			j := profile(t, "").Judge(Input{Result: c.res, KeySent: key.sent, KeyLives: key.lives})
			if fault := c.name != "late" && c.name != "not a request"; j.Fault != fault {
				t.Errorf("%s: fault = %v", c.name, j.Fault)
			}
			if j.Verdict != c.want || j.Spent != c.spent || j.Error != c.text || j.Why == "" || j.HoldFor != 0 || j.Alarm {
				t.Errorf("%s, key %+v: %+v, want %s spent=%v %q", c.name, key, j, c.want, c.spent, c.text)
			}
		}
	}
}

func TestStripe(t *testing.T) {
	t.Parallel()
	table := profile(t, "stripe")
	reason := func(v string) http.Header { return http.Header{"Stripe-Rate-Limited-Reason": {v}} }
	lock := `{"error": {"code": "lock_timeout", "message": "This object cannot be accessed right now."}}`
	for _, c := range []struct {
		name   string
		in     Input
		want   job.Verdict
		spends bool
	}{
		{"global-rate", answered(429, reason("global-rate"), "{}"), job.VerdictHold, false},
		{"endpoint-rate", answered(429, reason("endpoint-rate"), "{}"), job.VerdictHold, false},
		{"global-concurrency", answered(429, reason("global-concurrency"), "{}"), job.VerdictFewer, false},
		{"endpoint-concurrency", answered(429, reason("endpoint-concurrency"), "{}"), job.VerdictFewer, false},
		{"resource-specific", answered(429, reason("resource-specific"), "{}"), job.VerdictRetry, false},
		{"lock time-out", answered(429, nil, lock), job.VerdictRetry, false},
		{"a rate limit whose body speaks of a lock", answered(429, reason("global-rate"), lock), job.VerdictHold, false},
		{"a reason unknown to us", answered(429, reason("moon-phase"), lock), job.VerdictHold, false},
		{"no reason", answered(429, nil, `{"error": {"code": "rate_limit"}}`), job.VerdictHold, false},
		{"not 429", answered(402, reason("global-rate"), "{}"), job.VerdictRefused, true},
	} {
		if j := table.Judge(c.in); j.Verdict != c.want || j.Spent != c.spends {
			t.Errorf("%s: %s spent=%v, want %s spent=%v", c.name, j.Verdict, j.Spent, c.want, c.spends)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	table := profile(t, "stripe",
		job.Rule{Status: 200, Body: map[string]string{"response_code": "301"}, Then: job.VerdictHold},
		job.Rule{Header: map[string]string{"x-busy": "yes"}, Then: job.VerdictFewer},
		job.Rule{Status: 429, Body: map[string]string{"errors.1.fatal": "true", "errors.1.detail": "null"}, Then: job.VerdictRefused},
		job.Rule{Status: 500, Body: map[string]string{"tried": "false"}, Then: job.VerdictRetry},
	)
	cut := answered(200, nil, `{"response_code": 3`)
	cut.Result.Err = errors.New("the answer was cut off")
	cutNoKey := cut
	cutNoKey.KeyLives = false
	cutElsewhere := cut
	cutElsewhere.Result.Status = 201
	for _, c := range []struct {
		name string
		in   Input
		want job.Verdict
	}{
		{"number in the body", answered(200, nil, `{"response_code": 301}`), job.VerdictHold},
		{"text in the body", answered(200, nil, `{"response_code": "301"}`), job.VerdictHold},
		{"a form", answered(200, nil, "response=3&response_code=301&text=slow+down"), job.VerdictHold},
		{"another code", answered(200, nil, `{"response_code": "100"}`), job.VerdictDone},
		{"an object there", answered(200, nil, `{"response_code": {"301": 1}}`), job.VerdictDone},
		{"not JSON", answered(200, nil, "OK"), job.VerdictDone},
		{"no body", answered(200, nil, ""), job.VerdictDone},
		{"header in any case, any status", answered(402, http.Header{"X-Busy": {"yes"}}, ""), job.VerdictFewer},
		{"the first rule wins", answered(200, http.Header{"X-Busy": {"yes"}}, `{"response_code":301}`), job.VerdictHold},
		{"path through a list", answered(429, nil, `{"errors": [{}, {"fatal": true, "detail": null}]}`), job.VerdictRefused},
		{"half of what is wanted", answered(429, nil, `{"errors": [{}, {"fatal": true}]}`), job.VerdictHold},
		{"user rules go before the profile", answered(500, nil, `{"tried": false}`), job.VerdictRetry},
		{"cut off where a rule needs the body", cut, job.VerdictRetry},
		{"cut off, and no living key", cutNoKey, job.VerdictUnknown},
		{"cut off where no rule needs the body", cutElsewhere, job.VerdictDone},
		{"cut off at the end of the connection", answered(200, nil, `{"url":"https://x/?a=b","response_code": 3`), job.VerdictRetry},
		{"a list cut off", answered(200, nil, ` [{"response_code": 3`), job.VerdictRetry},
		{"a byte order mark", answered(200, nil, "\ufeff"+`{"response_code": 301}`), job.VerdictHold},
	} {
		if j := table.Judge(c.in); j.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, j.Verdict, c.want)
		}
	}
}

// What a rule says of an answer is no failure of the gateway's; what can't be read is, and what we broke off ourselves is not.
func TestFaults(t *testing.T) {
	t.Parallel()
	table := profile(t, "", job.Rule{Status: 503, Body: map[string]string{"queue": "full"}, Then: job.VerdictRetry})
	cut := answered(503, nil, `{"queue": "fu`)
	cut.Result.Err = errors.New("the answer was cut off")
	broken := Input{Result: job.Result{Stage: job.Sent, Err: context.Canceled}, KeySent: true, KeyLives: true}
	unsent := Input{Result: job.Result{Stage: job.NotSent, Err: fmt.Errorf("broken off: %w", context.Canceled)}}
	for name, c := range map[string]struct {
		in   Input
		want bool
	}{
		"a rule's":                        {answered(503, nil, `{"queue": "full"}`), false},
		"not a rule's":                    {answered(503, nil, `{"queue": "empty"}`), true},
		"cut off":                         {cut, true},
		"ours":                            {broken, false},
		"ours, unsent":                    {unsent, false},
		"this machine's, after the write": {Input{Result: job.Result{Stage: job.Sent, Err: fmt.Errorf("broke: %w", job.ErrLocal)}}, false},
		"cut off, the connection as well": {answered(503, nil, `{"queue": "fu`), true},
		"408":                             {answered(408, nil, ""), false},
		"503, wait 7 s":                   {answered(503, http.Header{"Retry-After": {"7"}}, ""), false},
	} {
		if j := table.Judge(c.in); j.Fault != c.want {
			t.Errorf("%s: fault = %v", name, j.Fault)
		}
	}
}

// A call that this machine could not make says nothing of the gateway and costs the job nothing.
func TestAFaultOfThisMachineIsNobodyElses(t *testing.T) {
	t.Parallel()
	in := Input{Result: job.Result{Stage: job.NotSent, Err: fmt.Errorf("connecting failed: too many open files: %w", job.ErrLocal)}}
	j := profile(t, "").Judge(in)
	if j.Verdict != job.VerdictRetry || j.Fault || j.Spent || !strings.HasPrefix(j.Why, "this machine: connecting failed: too many open files") {
		t.Errorf("%+v", j)
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	_, err := Table{}.With([]job.Rule{{Then: job.VerdictDone}, {Status: 429, Then: "stop"}, {Status: 99, Then: job.VerdictHold}, {Status: 429, Then: job.VerdictHold}})
	for _, want := range []string{"rule 1: it matches every answer", `rule 2: then: "stop" is not a verdict`, "rule 3: status 99 is not"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if _, err := Profile("adyen"); err == nil {
		t.Error("profile adyen is known")
	}
}

func TestErrorIsOneLineOf500Bytes(t *testing.T) {
	t.Parallel()
	long := answered(402, nil, " {\n\t\"é\": \"\x1b[31m"+strings.Repeat("ü", 400)+`"}`)
	got := profile(t, "").Judge(long).Error
	if !strings.HasPrefix(got, `HTTP 402: { "é": " [31mü`) || len(got) > 500+len("HTTP 402: ") || len(got) < 490 || strings.ContainsAny(got, "\n\t\x1b\uFFFD") {
		t.Errorf("error = %q (%d bytes)", got, len(got))
	}
	if got := profile(t, "").Judge(answered(402, nil, " \n")).Error; got != "HTTP 402" {
		t.Errorf("without a body: %q", got)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{First: 2 * time.Second, Max: 10 * time.Minute}
	for attempt, want := range map[int]time.Duration{-1: 2 * time.Second, 0: 2 * time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 6: 64 * time.Second, 10: 10 * time.Minute, 1 << 40: 10 * time.Minute} {
		seen := map[time.Duration]bool{}
		for range 200 {
			d := b.Delay(attempt)
			seen[d] = true
			if d < want/2 || d > want {
				t.Fatalf("attempt %d: %v is outside of [%v, %v]", attempt, d, want/2, want)
			}
		}
		if len(seen) < 100 {
			t.Errorf("attempt %d: only %d different delays in 200", attempt, len(seen))
		}
	}
	huge := Backoff{First: 1<<62 - 1, Max: 1<<63 - 1}
	if d := huge.Delay(50); d < 1<<61 {
		t.Errorf("a huge back-off overflows: %v", d)
	}
	if d := (Backoff{First: time.Minute}).Delay(9); d > time.Minute {
		t.Errorf("without a maximum: %v", d)
	}
	if d := (Backoff{}).Delay(1); d < time.Second/2 || d > time.Second {
		t.Errorf("the zero back-off: %v", d)
	}
}
