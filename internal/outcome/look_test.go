package outcome

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// asked is a look-up of job inv-1, of 4,900 cents.
func asked(more func(*job.Look)) job.Look {
	look := job.Look{Job: job.Job{ID: "inv-1", Payload: []byte(`{"amount":4900,"order":{"id":"o-7"}}`)}, KeyGeneration: 1, First: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	if more != nil {
		more(&look)
	}
	return look
}

func reply(status int, body string) job.Result {
	return job.Result{Stage: job.Answered, Status: status, Header: map[string][]string{}, Body: []byte(body)}
}

// single looks up one payment by our reference.
var single = LookConfig{
	Matches: map[string]string{"data.0.reference": "{id}", "data.0.amount": "amount"}, Reference: "data.0.id",
	Rules: []job.LookRule{
		{Body: map[string]string{"data.0.status": "paid"}, Then: job.LookDone},
		{Body: map[string]string{"data.0.status": "declined"}, Then: job.LookRefused},
		{Body: map[string]string{"data.0.status": "processing"}, Then: job.LookLater},
		{Body: map[string]string{"data.0.id": ""}, Then: job.LookNotDone, After: time.Minute},
		{Status: 404, Then: job.LookNotDone, After: 2 * time.Minute},
		{Status: 403, Body: map[string]string{"code": "closed"}, Then: job.LookRefused},
		{Status: 4, Body: map[string]string{"code": "gone"}, Header: map[string]string{"X-Now": "yes"}, Then: job.LookRefused},
	},
}

// walked searches it in a list.
var walked = LookConfig{
	Scan:      &job.Scan{Items: "data", Match: map[string]string{"meta.job": "{id}", "amount": "amount"}, Next: "next", Until: "made"},
	Rules:     []job.LookRule{{Body: map[string]string{"status": "paid"}, Then: job.LookDone}, {Body: map[string]string{"status": "declined"}, Then: job.LookRefused}, {Absent: true, Then: job.LookNotDone, After: time.Minute}},
	Reference: "id", Within: 5 * time.Minute,
}

func TestWhatALookUpSays(t *testing.T) {
	t.Parallel()
	paid := `{"data":[{"id":"p1","reference":"inv-1","amount":4900,"status":"%s"}]}`
	as := func(status string) job.Result { return reply(200, fmt.Sprintf(paid, status)) }
	later := func(words string) job.Finding { return job.Finding{Verdict: job.LookLater, Status: 200, Error: words} }
	for name, tc := range map[string]struct {
		res  job.Result
		look func(*job.Look)
		want job.Finding // its Error is a part of it
	}{
		"paid":                         {as("paid"), nil, job.Finding{Verdict: job.LookDone, Status: 200, Reference: "p1"}},
		"declined":                     {as("declined"), nil, job.Finding{Verdict: job.LookRefused, Status: 200, Reference: "p1", Error: `HTTP 200: {"data":[{"id":"p1"`}},
		"not settled yet":              {as("processing"), nil, job.Finding{Verdict: job.LookLater, Status: 200, Reference: "p1", Error: "HTTP 200: "}},
		"a status that nobody knows":   {as("mystery"), nil, later("HTTP 200: ")},
		"none there":                   {reply(200, `{"data":[]}`), nil, job.Finding{Verdict: job.LookNotDone, Status: 200, After: time.Minute, Error: "HTTP 200: "}},
		"no list at all":               {reply(200, `{"ok":true}`), nil, later("HTTP 200: ")},
		"an empty object":              {reply(200, `{}`), nil, later("HTTP 200: ")},
		"an empty text":                {reply(200, ``), nil, later("not a JSON document")},
		"an error with a 200":          {reply(200, `{"error":"busy","data":null}`), nil, later("HTTP 200: ")},
		"a page of a proxy":            {reply(200, `<html>data=</html>`), nil, later("not a JSON document")},
		"a form":                       {reply(200, `data.0.id=&data.0.status=paid`), nil, later("not a JSON document")},
		"two documents":                {reply(200, `{"data":[]}{"data":[]}`), nil, later("not a JSON document")},
		"404 of the gateway":           {reply(404, `{"code":"not_found"}`), nil, job.Finding{Verdict: job.LookNotDone, Status: 404, After: 2 * time.Minute, Error: "HTTP 404: "}},
		"404 of a proxy":               {reply(404, `<html>404</html>`), nil, job.Finding{Verdict: job.LookLater, Status: 404, Error: "not a JSON document"}},
		"404 with nothing":             {reply(404, ``), nil, job.Finding{Verdict: job.LookLater, Status: 404, Error: "not a JSON document"}},
		"403":                          {reply(403, `{"data":[]}`), nil, job.Finding{Verdict: job.LookLater, Status: 403, Failed: true, Error: "HTTP 403: "}},
		"401 of a proxy":               {reply(401, `<html>401</html>`), nil, job.Finding{Verdict: job.LookLater, Status: 401, Failed: true, Error: "not a JSON document"}},
		"403 that a rule names":        {reply(403, `{"code":"closed"}`), nil, job.Finding{Verdict: job.LookRefused, Status: 403, Error: "HTTP 403: "}},
		"a class of statuses":          {job.Result{Stage: job.Answered, Status: 410, Header: map[string][]string{"X-Now": {"yes"}}, Body: []byte(`{"code":"gone"}`)}, nil, job.Finding{Verdict: job.LookRefused, Status: 410, Error: "HTTP 410: "}},
		"it lacks the header":          {reply(410, `{"code":"gone"}`), nil, job.Finding{Verdict: job.LookLater, Status: 410, Error: "HTTP 410: "}},
		"another job's":                {reply(200, `{"data":[{"id":"p2","reference":"INV-1","amount":4900,"status":"paid"}]}`), nil, later("the answer is another payment's, as its data.0.reference differs")},
		"another amount":               {reply(200, `{"data":[{"id":"p1","reference":"inv-1","amount":4901,"status":"declined"}]}`), nil, later("its data.0.amount differs")},
		"the same amount, as a text":   {reply(200, `{"data":[{"id":"p1","reference":"inv-1","amount":"4900.00","status":"paid"}]}`), nil, job.Finding{Verdict: job.LookDone, Status: 200, Reference: "p1"}},
		"nothing to compare":           {reply(200, `{"data":[{"id":"p1","amount":4900,"status":"paid"}]}`), nil, later("the answer has no data.0.reference, by which lookup.matches tells whose payment it is")},
		"a job without an amount":      {as("paid"), func(l *job.Look) { l.Job.Payload = nil }, job.Finding{Verdict: job.LookDone, Status: 200, Reference: "p1"}},
		"a reference that is not text": {reply(200, `{"data":[{"id":{"a":1},"reference":"inv-1","amount":4900,"status":"paid"}]}`), func(l *job.Look) { l.Reference = "known" }, job.Finding{Verdict: job.LookDone, Status: 200, Reference: "known"}},
		"declined, no old call there":  {as("declined"), func(l *job.Look) { l.KeyGeneration, l.AbsentKey = 2, 2 }, job.Finding{Verdict: job.LookRefused, Status: 200, Reference: "p1", Error: "HTTP 200: "}},
		"declined, after a no again":   {as("declined"), func(l *job.Look) { l.KeyGeneration, l.AbsentKey = 3, 2 }, later("an earlier call of the job ended in a no")},
		"declined, maybe an old call":  {as("declined"), func(l *job.Look) { l.KeyGeneration = 2 }, later("an earlier call of the job ended in a no")},
		"declined, maybe the last try": {as("declined"), func(l *job.Look) { l.Declined = true }, later("an earlier call of the job ended in a no")},
		"paid, after a declined call":  {as("paid"), func(l *job.Look) { l.KeyGeneration = 2 }, job.Finding{Verdict: job.LookDone, Status: 200, Reference: "p1"}},
		"down":                         {reply(503, `{"data":[]}`), nil, job.Finding{Verdict: job.LookLater, Status: 503, Failed: true, Error: "HTTP 503: "}},
		"down, and it says how long":   {job.Result{Stage: job.Answered, Status: 503, Header: map[string][]string{"Retry-After": {"7"}}}, nil, job.Finding{Verdict: job.LookLater, Status: 503, Failed: true, Wait: 7 * time.Second, Error: "HTTP 503"}},
		"too many":                     {job.Result{Stage: job.Answered, Status: 429, Header: map[string][]string{"Retry-After": {"999999"}}, Body: []byte(`{"data":[]}`)}, nil, job.Finding{Verdict: job.LookLater, Status: 429, Failed: true, Limited: true, Wait: 15 * time.Minute, Error: "HTTP 429: "}},
		"a server gave up":             {reply(499, `{"data":[]}`), nil, job.Finding{Verdict: job.LookLater, Status: 499, Failed: true, Error: "HTTP 499: "}},
		"too early":                    {reply(425, `{"data":[]}`), nil, job.Finding{Verdict: job.LookLater, Status: 425, Failed: true, Error: "HTTP 425: "}},
		"a token that had run out":     {job.Result{Stage: job.Answered, Status: 401, Renewed: true}, nil, job.Finding{Verdict: job.LookLater, Status: 401, Failed: true, Error: "HTTP 401"}},
		"cut off by the connection":    {job.Result{Stage: job.Answered, Status: 200, Body: []byte(fmt.Sprintf(paid, "paid")), Err: errors.New("the answer was cut off")}, nil, job.Finding{Verdict: job.LookLater, Status: 200, Failed: true, Error: "HTTP 200, answer cut off: the answer was cut off"}},
		"404, cut off":                 {job.Result{Stage: job.Answered, Status: 404, Body: []byte(`{}`), Err: errors.New("the answer was cut off")}, nil, job.Finding{Verdict: job.LookLater, Status: 404, Failed: true, Error: "answer cut off"}},
		"cut off in the body":          {reply(200, `{"data":[]`), nil, job.Finding{Verdict: job.LookLater, Status: 200, Failed: true, Error: "its JSON has no end"}},
		"no answer":                    {job.Result{Stage: job.Sent, Err: errors.New("no answer came within 30s")}, nil, job.Finding{Verdict: job.LookLater, Failed: true, Error: "no answer came within 30s"}},
		"no connection":                {job.Result{Stage: job.NotSent, Err: errors.New("connecting failed")}, nil, job.Finding{Verdict: job.LookLater, Failed: true, Error: "connecting failed"}},
		"too late for its slot":        {job.Result{Stage: job.NotSent, Late: true, Err: &job.Error{Code: job.CodeInvalid, Message: "late"}}, nil, job.Finding{Verdict: job.LookLater, Failed: true, Error: "late"}},
		"the job has no reference yet": {job.Result{Stage: job.NotSent, Err: &job.Error{Code: job.CodeInvalid, Message: "needs {reference}"}}, nil, job.Finding{Verdict: job.LookLater, Error: "needs {reference}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finds(t, single, tc.res, asked(tc.look), tc.want)
		})
	}
}

// finds compares a finding with the wanted one, of whose Error a part is enough.
func finds(t *testing.T, c LookConfig, res job.Result, look job.Look, want job.Finding) {
	t.Helper()
	table, err := NewLookTable(c)
	if err != nil {
		t.Fatal(err)
	}
	got := table.Judge(LookInput{Result: res, Look: look})
	if (want.Error == "") != (got.Error == "") || !strings.Contains(got.Error, want.Error) {
		t.Errorf("it says %q, want %q", got.Error, want.Error)
	}
	if got.Error = want.Error; got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestAPaymentInAList(t *testing.T) {
	t.Parallel()
	item := func(id, status string) string {
		return `{"id":"` + id + `","amount":4900,"status":"` + status + `","meta":{"job":"inv-1"},"made":"2026-11-24T12:00:01Z"}`
	}
	other := `{"id":"x","amount":4900,"status":"paid","meta":{"job":"inv-2"},"made":"2026-11-24T12:00:00Z","secret":"of somebody else"}`
	old := `{"id":"y","amount":1,"status":"paid","meta":{"job":"inv-0"},"made":"2026-11-24T11:54:00Z"}`
	list := func(next string, items ...string) job.Result {
		return reply(200, `{"data":[`+strings.Join(items, ",")+`],"next":`+next+`}`)
	}
	done := job.Finding{Verdict: job.LookDone, Status: 200, Reference: "p1"}
	absent := job.Finding{Verdict: job.LookNotDone, Status: 200, After: time.Minute, Error: "the list has no payment of this job"}
	goesOn := job.Finding{Verdict: job.LookLater, Status: 200, Page: "https://x.example/2", Error: "not in the first pages"}
	for name, tc := range map[string]struct {
		res  job.Result
		look func(*job.Look)
		want job.Finding
	}{
		"it is there":                       {list("null", other, item("p1", "paid")), nil, done},
		"it is there, and the list goes on": {list(`"https://x.example/2"`, other, item("p1", "paid")), nil, done},
		"it is refused":                     {list("null", other, item("p1", "declined")), nil, job.Finding{Verdict: job.LookRefused, Status: 200, Reference: "p1", Error: `HTTP 200: {"amount":4900,"id":"p1"`}},
		"it is not settled":                 {list("null", item("p1", "processing")), nil, job.Finding{Verdict: job.LookLater, Status: 200, Error: `HTTP 200: {"amount":4900,"id":"p1"`}},
		"refused, then paid":                {list("null", item("p0", "declined"), item("p1", "paid")), nil, done},
		"paid, then refused":                {list("null", item("p1", "paid"), item("p0", "declined")), nil, done},
		"refused, and one still open":       {list("null", item("p0", "declined"), item("p1", "processing")), nil, job.Finding{Verdict: job.LookLater, Status: 200, Error: `"processing"`}},
		"refused, maybe an old call":        {list("null", item("p0", "declined")), func(l *job.Look) { l.KeyGeneration = 3 }, job.Finding{Verdict: job.LookLater, Status: 200, Error: "an earlier call of the job"}},
		"the end of the list":               {list("null", other), nil, absent},
		"an empty list":                     {list(`""`), nil, absent},
		"no more":                           {list("false", other), nil, absent},
		"it goes on":                        {list(`"https://x.example/2"`, other, other), nil, goesOn},
		"it goes on to a number":            {list("2", other), nil, job.Finding{Verdict: job.LookLater, Status: 200, Page: "2", Error: "not in the first pages"}},
		"it goes back far enough":           {list(`"https://x.example/2"`, other, old), nil, absent},
		"the oldest come first":             {list(`"https://x.example/2"`, old, other), nil, goesOn},
		"one that is old proves nothing":    {list(`"https://x.example/2"`, old), nil, goesOn},
		"within the margin of clocks":       {list(`"https://x.example/2"`, other, strings.Replace(old, "11:54", "11:56", 1)), nil, goesOn},
		"a time that can't be read":         {list(`"https://x.example/2"`, other, strings.Replace(old, "2026", "", 1)), nil, goesOn},
		"first call unknown":                {list(`"https://x.example/2"`, other, old), func(l *job.Look) { l.First = time.Time{} }, goesOn},
		"no list":                           {reply(200, `{"error":"busy"}`), nil, job.Finding{Verdict: job.LookLater, Status: 200, Error: "the answer has no list at data"}},
		"a list that is null":               {reply(200, `{"data":null}`), nil, job.Finding{Verdict: job.LookLater, Status: 200, Error: "the answer has no list at data"}},
		"nothing to search for":             {list("null", item("p1", "paid")), func(l *job.Look) { l.Job.Payload = []byte(`{}`) }, job.Finding{Verdict: job.LookLater, Status: 200, Error: "the list is searched for amount, and the job has none"}},
		"404 is no end of a list":           {reply(404, `{"data":[]}`), nil, job.Finding{Verdict: job.LookLater, Status: 404, Error: "HTTP 404"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finds(t, walked, tc.res, asked(tc.look), tc.want)
		})
	}
}

// A finding contains nothing about other payments, and nothing that the mask hides.
func TestAFindingTellsNothingOfOthers(t *testing.T) {
	t.Parallel()
	hiding := walked
	hiding.Hide = func(text []byte) []byte { return []byte(strings.ReplaceAll(string(text), "sk_canary", "<secret>")) }
	table, err := NewLookTable(hiding)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"data":[{"id":"p1","amount":4900,"status":"sk_canary","meta":{"job":"inv-1"}},{"id":"p2","name":"of somebody else","meta":{"job":"inv-2"}}]}`,
		`{"data":[{"id":"sk_canary","amount":4900,"status":"paid","meta":{"job":"inv-1"}}]}`,
		`{"data":[{"id":"p2","name":"of somebody else","meta":{"job":"inv-2"}}]}`,
	} {
		f := table.Judge(LookInput{Result: reply(200, body), Look: asked(nil)})
		if all := fmt.Sprintf("%+v", f); strings.Contains(all, "somebody else") || strings.Contains(all, "sk_canary") {
			t.Errorf("%s: %s", body, all)
		}
	}
}

// The beginning of an answer, however it is cut, never proves that a payment was made, refused or not made. Nor does a whole answer after which the connection broke.
func TestNoCutAnswerSettlesAnything(t *testing.T) {
	t.Parallel()
	bodies := []string{
		`{"data":[{"id":"p1","reference":"inv-1","amount":4900,"status":"paid","meta":{"job":"inv-1"}}],"next":null}`,
		`{"data":[{"id":"p1","reference":"inv-1","amount":4900,"status":"declined","meta":{"job":"inv-1"}}],"next":null}`,
		`{"next":"","data":[]}`, `{"data":[],"next":{"a":[{}]}}`, `{}`, `{"code":"gone"}`,
		`{"data":[{"id":"x","meta":{"job":"inv-2"},"made":"2026-11-24T12:00:00Z"},{"id":"y","made":"2020-01-01T00:00:00Z"}],"next":"n"}`,
	}
	for _, c := range []LookConfig{single, walked} {
		table, err := NewLookTable(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range bodies {
			for n := range len(body) + 1 {
				for _, status := range []int{200, 404, 410} {
					for _, broke := range []error{nil, errors.New("the answer was cut off"), io.ErrUnexpectedEOF} {
						if n == len(body) && broke == nil {
							continue
						}
						res := reply(status, body[:n])
						res.Header, res.Err = map[string][]string{"X-Now": {"yes"}}, broke
						if f := table.Judge(LookInput{Result: res, Look: asked(nil)}); f.Verdict != job.LookLater || f.Page != "" {
							t.Errorf("HTTP %d %s, %v: %+v", status, body[:n], broke, f)
						}
					}
				}
			}
		}
	}
}

func TestRulesOfLookUpsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]job.LookRule{
		"a 5xx settles nothing": {Status: 500, Then: job.LookDone}, "nor its class": {Status: 5, Then: job.LookDone}, "nor a 429": {Status: 429, Then: job.LookDone},
		"no verdict": {Status: 200}, "another's verdict": {Status: 200, Then: "accepted"}, "after": {Status: 200, Then: job.LookDone, After: time.Second},
		"below 0": {Status: 200, Then: job.LookNotDone, After: -1}, "absent with a body": {Absent: true, Body: map[string]string{"a": "b"}, Then: job.LookLater},
		"no expression": {Body: map[string]string{"a": "/(/"}, Then: job.LookLater}, "no status": {Status: 7, Then: job.LookLater},
	} {
		if _, err := NewLookTable(LookConfig{Rules: []job.LookRule{r}}); err == nil {
			t.Errorf("%s: %+v was taken", name, r)
		}
	}
}

// A payment that was made without the job's id is not found by it, so that it is missing says nothing.
func TestAbsenceCountsOnlyIfTheCallCarriedTheID(t *testing.T) {
	t.Parallel()
	c := LookConfig{ByID: true, Scan: &job.Scan{Items: "data", Match: map[string]string{"ref": job.OwnID}},
		Rules: []job.LookRule{{Absent: true, Then: job.LookNotDone, After: time.Minute}, {Status: 404, Then: job.LookNotDone}}}
	for payload, want := range map[string]job.LookVerdict{
		`{"ref":"inv-1"}`:                 job.LookNotDone,
		`{"items":[{},{"id":"inv-1"}]}`:   job.LookNotDone,
		`{"ref":"inv-2","inv-1":"INV-1"}`: job.LookLater,
		`{"ref":"about inv-1"}`:           job.LookLater,
		``:                                job.LookLater,
	} {
		for _, res := range []job.Result{{Stage: job.Answered, Status: 200, Body: []byte(`{"data":[]}`)}, {Stage: job.Answered, Status: 404, Body: []byte(`{}`)}} {
			table, err := NewLookTable(c)
			if err != nil {
				t.Fatal(err)
			}
			f := table.Judge(LookInput{Result: res, Look: job.Look{Job: job.Job{ID: "inv-1", Payload: []byte(payload)}}})
			if f.Verdict != want || want == job.LookLater && (f.After != 0 || !strings.Contains(f.Error, "does not have its id")) {
				t.Errorf("%s, HTTP %d: %+v, want %s", payload, res.Status, f, want)
			}
		}
	}
	c.ByID = false
	if table, _ := NewLookTable(c); table.Judge(LookInput{Result: job.Result{Stage: job.Answered, Status: 404, Body: []byte(`{}`)}}).Verdict != job.LookNotDone {
		t.Error("the call carries the id elsewhere, and a missing payment is not believed to be missing")
	}
}
