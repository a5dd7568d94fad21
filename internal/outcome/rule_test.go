package outcome

import (
	"errors"
	"strings"
	"testing"

	"spillway/internal/job"
)

func came(status int, body string, header ...string) job.Result {
	return job.Result{Stage: job.Answered, Status: status, Body: []byte(body), Header: headers(header...)}
}

func TestWhatARuleAsksFor(t *testing.T) {
	t.Parallel()
	first, repeat := Input{KeySent: true, KeyLives: true}, Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}
	lapse := Input{KeySent: true, KeyLives: true, Lapse: true}
	for name, tc := range map[string]struct {
		rule job.Rule
		in   Input
		got  job.Result
		fits bool
	}{
		"a class":                        {job.Rule{Status: 4}, first, came(409, ""), true},
		"another class":                  {job.Rule{Status: 4}, first, came(500, ""), false},
		"first, on a first call":         {job.Rule{Status: 409, When: job.WhenFirst}, first, came(409, ""), true},
		"first, on a repeat":             {job.Rule{Status: 409, When: job.WhenFirst}, repeat, came(409, ""), false},
		"first, where one is forgotten":  {job.Rule{Status: 409, When: job.WhenFirst}, lapse, came(409, ""), false},
		"repeat, on a repeat":            {job.Rule{Status: 409, When: job.WhenRepeat}, repeat, came(409, ""), true},
		"repeat, where one is forgotten": {job.Rule{Status: 409, When: job.WhenRepeat}, lapse, came(409, ""), true},
		"repeat, on a first call":        {job.Rule{Status: 409, When: job.WhenRepeat}, first, came(409, ""), false},
		"an expression":                  {job.Rule{Body: map[string]string{"m": "/already (done|running)/"}}, first, came(422, `{"m":"is already running."}`), true},
		"an expression, not there":       {job.Rule{Body: map[string]string{"m": "/^already/"}}, first, came(422, `{"m":"is already running."}`), false},
		"an expression in a header":      {job.Rule{Header: map[string]string{"Reason": "/-rate$/"}}, first, came(429, "", "Reason", "endpoint-rate"), true},
		"no header fits no expression":   {job.Rule{Header: map[string]string{"Reason": "/.*/"}}, first, came(429, ""), false},
	} {
		tc.rule.Then = job.VerdictFewer // which no answer means by itself
		table, err := Table{}.With([]job.Rule{tc.rule})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tc.in.Result = tc.got
		if v := table.Judge(tc.in).Verdict; (v == job.VerdictFewer) != tc.fits {
			t.Errorf("%s: %s", name, v)
		}
	}
	for name, r := range map[string]job.Rule{"when": {Status: 1, When: "never"}, "status": {Status: 7}, "high status": {Status: 600}, "expression": {Body: map[string]string{"a": "/(/"}}} {
		r.Then = job.VerdictDone
		if _, err := (Table{}).With([]job.Rule{r}); err == nil {
			t.Errorf("%s: no fault in %+v", name, r)
		}
	}
}

// A wanted "" asks for a field that the body lacks, or has empty, as it does with headers. A body that has no fields at all, or of which a part is missing, does not say so.
func TestARuleOnAnAbsentField(t *testing.T) {
	t.Parallel()
	cut := came(200, `{"id":"1","err`)
	cut.Err = errors.New("the answer was cut off")
	for name, tc := range map[string]struct {
		got  job.Result
		want job.Verdict
	}{
		"absent":                  {came(200, `{"id":"1"}`), job.VerdictFewer},
		"empty":                   {came(200, `{"error":{"code":""}}`), job.VerdictFewer},
		"nothing above it":        {came(200, `{"error":null}`), job.VerdictFewer},
		"absent in a form":        {came(200, "id=1"), job.VerdictFewer},
		"there":                   {came(200, `{"error":{"code":"x"}}`), job.VerdictUnknown},
		"null, which is not text": {came(200, `{"error":{"code":null}}`), job.VerdictUnknown},
		"a list":                  {came(200, `{"error":{"code":[]}}`), job.VerdictUnknown},
		"an error page":           {came(200, "<html>"), job.VerdictUnknown},
		"one with attributes":     {came(200, ` <html lang="en"><body>down for maintenance</body></html>`), job.VerdictUnknown},
		"a sentence":              {came(200, "down for maintenance, until=noon"), job.VerdictUnknown},
		"an empty object":         {came(200, `{}`), job.VerdictUnknown},
		"a list and no object":    {came(200, `[1]`), job.VerdictUnknown},
		"a text":                  {came(200, `"busy"`), job.VerdictUnknown},
		"no body":                 {came(200, ""), job.VerdictUnknown},
		"cut off":                 {cut, job.VerdictRetry},
	} {
		table := profile(t, "", job.Rule{Status: 200, Body: map[string]string{"error.code": ""}, Then: job.VerdictFewer}).Needing(map[string][]string{"paid": {"yes"}})
		if j := table.Judge(Input{KeySent: true, KeyLives: true, Result: tc.got}); j.Verdict != tc.want {
			t.Errorf("%s: %+v, want %s", name, j, tc.want)
		}
	}
	table := Table{}.Needing(map[string][]string{"error": {""}})
	for body, want := range map[string]job.Verdict{`{"id":"1"}`: job.VerdictDone, `{"error":"no"}`: job.VerdictUnknown, "": job.VerdictUnknown} {
		if j := table.Judge(Input{KeySent: true, KeyLives: true, Result: came(200, body)}); j.Verdict != want {
			t.Errorf("done_needs, %s: %+v, want %s", body, j, want)
		}
	}
}

// What the gateway has accepted is neither done nor refused; its reference is kept, and its error says what to wait for.
func TestAnAcceptedAnswerKeepsItsReference(t *testing.T) {
	t.Parallel()
	table, err := Table{}.Referring("id").With([]job.Rule{
		{Status: 202, Then: job.VerdictAccepted},
		{Status: 409, When: job.WhenRepeat, Then: job.VerdictAccepted, Reference: "error.links.0.id"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		in   Input
		want string
	}{
		{Input{KeySent: true, KeyLives: true, Result: came(202, `{"id":"tr_1"}`)}, "tr_1"},
		{Input{KeySent: true, KeyLives: true, Again: true, Unsure: true, Result: came(409, `{"id":"no","error":{"links":[{"id":"PM1"}]}}`)}, "PM1"},
		{Input{KeySent: true, KeyLives: true, Again: true, Unsure: true, Result: came(202, `{"id":"tr_1"}`, "Idempotent-Replayed", "true")}, "tr_1"},
	} {
		j := table.Judge(tc.in)
		if j.Verdict != job.VerdictAccepted || j.Reference != tc.want || !strings.HasPrefix(j.Error, "accepted, outcome later: HTTP ") || j.Fault || !j.Spent {
			t.Errorf("%+v, want it accepted as %s", j, tc.want)
		}
	}
}

func TestSavedFailuresAreSaidByTheTable(t *testing.T) {
	t.Parallel()
	const body = `{"error":{"message":"see req_abc123XYZ"}}`
	last := "HTTP 500: " + body
	in := Input{KeySent: true, KeyLives: true, Again: true, Unsure: true, Last: last, Result: came(500, body)}
	for saved, want := range map[job.Saved]job.Verdict{"": job.VerdictRetry, job.SavedAnswer: job.VerdictUnknown, job.SavedNot: job.VerdictRetry, job.SavedOnce: job.VerdictRetry} {
		if j := (Table{}).Saving(saved).Judge(in); j.Verdict != want || j.Fault != (want == job.VerdictRetry) {
			t.Errorf("%q: %+v, want %s", saved, j, want)
		}
	}
	stripe, err := Profile("stripe")
	if err != nil {
		t.Fatal(err)
	}
	if j := stripe.Saving("").Judge(in); j.Verdict != job.VerdictUnknown {
		t.Errorf("the profile's own word is forgotten: %+v", j)
	}
}

// A failure is the gateway's also where a rule says that nothing is to be sent again: else an outage of such answers would park every job. What a rule takes for a repeated answer is none.
func TestAFailureThatARuleTakesForUnknownIsTheGateways(t *testing.T) {
	t.Parallel()
	repeat := Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}
	for name, tc := range map[string]struct {
		rule  job.Rule
		in    Input
		code  int
		fault bool
	}{
		"unknown":           {job.Rule{Status: 5, Then: job.VerdictUnknown}, Input{KeySent: true, KeyLives: true}, 502, true},
		"a repeated answer": {job.Rule{Status: 5, When: job.WhenRepeat, Then: job.VerdictUnknown}, repeat, 500, false},
		"another meaning":   {job.Rule{Status: 5, Then: job.VerdictRetry}, Input{KeySent: true, KeyLives: true}, 500, false},
		"no failure":        {job.Rule{Status: 4, Then: job.VerdictUnknown}, Input{KeySent: true, KeyLives: true}, 400, false},
	} {
		table, err := Table{}.With([]job.Rule{tc.rule})
		if err != nil {
			t.Fatal(err)
		}
		tc.in.Result = came(tc.code, "")
		if j := table.Judge(tc.in); j.Fault != tc.fault || j.Verdict != tc.rule.Then {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// A call that runs for longer than all attempts take would leave its job exhausted, though it was charged.
func TestWaitingForTheOwnCallSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	table, err := Table{}.With([]job.Rule{{Status: 4, Body: map[string]string{"code": "in_use"}, Then: job.VerdictRetry}, {Status: 2, Body: map[string]string{"code": "in_use"}, Then: job.VerdictRetry}, {Status: 5, Then: job.VerdictRetry}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		in    Input
		code  int
		spent bool
	}{
		"an earlier call may run":            {Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}, 409, false},
		"one that is forgotten":              {Input{KeySent: true, KeyLives: true, Lapse: true}, 422, false},
		"GraphQL says so with a 200":         {Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}, 200, false},
		"a 200, and no earlier call":         {Input{KeySent: true, KeyLives: true}, 200, true},
		"a call of another program":          {Input{KeySent: true, KeyLives: true, Unsure: true}, 409, true},
		"no earlier call":                    {Input{KeySent: true, KeyLives: true}, 409, true},
		"earlier calls that came to nothing": {Input{KeySent: true, KeyLives: true, Again: true}, 409, true},
		"a time-out of the gateway's":        {Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}, 408, true},
		"a call that the gateway broke off":  {Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}, 499, true},
		"a failure":                          {Input{KeySent: true, KeyLives: true, Again: true, Unsure: true}, 500, true},
	} {
		tc.in.Result = came(tc.code, `{"code":"in_use"}`)
		if j := table.Judge(tc.in); j.Verdict != job.VerdictRetry || j.Spent != tc.spent {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// An access token that ran out says nothing of the job, whatever its earlier calls came to. A rule on 401 decides all the same, and so does any other answer.
func TestA401OnATokenThatWasReplacedSaysNothing(t *testing.T) {
	t.Parallel()
	ruled, err := Table{}.With([]job.Rule{{Status: 401, Then: job.VerdictRefused}})
	if err != nil {
		t.Fatal(err)
	}
	answer := came(401, "")
	answer.Renewed = true
	for _, in := range []Input{{}, {KeySent: true, KeyLives: true}, {KeySent: true, Again: true, Unsure: true}} {
		in.Result = answer
		if j := (Table{}).Judge(in); !j.Renew || j.Spent || j.Alarm || j.Fault || j.Verdict != job.VerdictRetry {
			t.Errorf("%+v: %+v", in, j)
		}
		if j := ruled.Judge(in); j.Renew || j.Verdict != job.VerdictRefused {
			t.Errorf("with a rule: %+v", j)
		}
		in.Result.Renewed = false
		if j := (Table{}).Judge(in); j.Renew || j.Verdict != job.VerdictHold || !j.Alarm {
			t.Errorf("on a fresh token: %+v", j)
		}
	}
}

// TestAnErrorNamesWhatOfTheBodyDecided: what stands far behind in a long answer is what a person looks for. Only the words of the rule are shown, not those of the
// gateway, and a 5xx stays as it is, as it is compared with the answer before.
func TestAnErrorNamesWhatOfTheBodyDecided(t *testing.T) {
	t.Parallel()
	body := `{"first":"` + strings.Repeat("x", 600) + `","status":"requires_action","detail":"no money"}`
	for name, tc := range map[string]struct {
		rule job.Rule
		got  job.Result
		why  string
	}{
		"a value":                 {job.Rule{Body: map[string]string{"status": "requires_action"}}, came(200, body), "HTTP 200, status is requires_action"},
		"two, in their order":     {job.Rule{Body: map[string]string{"status": "requires_action", "code": ""}}, came(200, body), "HTTP 200, code is empty and status is requires_action"},
		"an expression":           {job.Rule{Body: map[string]string{"detail": "/money/"}}, came(402, body), "HTTP 402, detail matches /money/"},
		"no field":                {job.Rule{Status: 402}, came(402, body), "HTTP 402"},
		"a rule that differs":     {job.Rule{Body: map[string]string{"status": "canceled"}}, came(402, body), "HTTP 402"},
		"a failure of the server": {job.Rule{Body: map[string]string{"status": "requires_action"}}, came(500, body), "HTTP 500"},
	} {
		tc.rule.Then = job.VerdictRefused
		table, err := Table{}.With([]job.Rule{tc.rule})
		if err != nil {
			t.Fatal(err)
		}
		j := table.Judge(Input{KeySent: true, KeyLives: true, Result: tc.got})
		if j.Why != tc.why || !strings.HasPrefix(j.Error, tc.why+`: {"first":"xxx`) {
			t.Errorf("%s: why %q, error %.60q", name, j.Why, j.Error)
		}
	}
}
