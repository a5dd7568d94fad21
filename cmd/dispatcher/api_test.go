package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/job"
)

const roomForThree = "admission: {limits: [1/h, 48/d], burst: 3}\n    replay: manual"

func TestAPITakesJobsInOnce(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForThree)
	for i, c := range []struct {
		line, query       string
		code              int
		state, reason, no string
	}{
		{`{"id":"a","payload":{"amount":1,"currency":"EUR"}}`, "", 202, "queued", "", ""},
		{"{\n \"id\": \"a\",\n \"payload\": {\"currency\": \"EUR\", \"amount\": 1}\n}\n", "", 200, "queued", "", ""},
		{`{"id":"a","payload":{"amount":2,"currency":"EUR"}}`, "", 409, "", "", "other_payload"},
		{`{"id":"later","at":"2100-01-01T00:00:00Z","gateway":"` + a.gateway + `"}`, "", 202, "scheduled", "", ""},
		{`{"id":"c/../d","batch":"2026-11","expires":"2100-01-01T00:00:00Z"}`, "?on_full=fail", 202, "queued", "", ""},
		{`{"id":"d"}`, "", 429, "", "", "no_room"},
		{`{"id":"d"}`, "?on_full=park", 202, "parked", "rejected", ""},
		{`{"id":"d"}`, "", 200, "parked", "", ""},
	} {
		got := a.post(c.line, c.query)
		v := a.told(got.body)
		if got.code != c.code || v.State != c.state || v.Reason != c.reason || v.Code != c.no {
			t.Errorf("%d: %d %s, want %+v", i, got.code, got.body, c)
		}
		a.expectLimits(got, max(0, 3-[]int{1, 1, 1, 2, 3, 3, 3, 3}[i]))
		if place := got.header.Get("Location"); (c.code < 300) != (place != "") {
			t.Errorf("%d: Location %q", i, place)
		} else if place != "" {
			if view := a.ask(http.MethodGet, place, "", nil); view.code != 200 || a.told(view.body).State != c.state {
				t.Errorf("%s: %d %s", place, view.code, view.body)
			}
		}
		if retry := got.header.Get("Retry-After"); c.code == 429 && (!anHour(retry) || fmt.Sprint(v.Retry) != retry) || c.code != 429 && retry != "" {
			t.Errorf("%d: Retry-After %q, %d", i, retry, v.Retry)
		}
	}
}

// someSeconds is how long a test may have run until then on a busy machine.
const someSeconds = 120

// anHour says whether a number of seconds is an hour, or an hour less the time that the test has taken.
func anHour(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n <= 3600 && n > 3600-someSeconds
}

// expectLimits checks the headers: a burst of three, which is full again after three hours, and after one and a half.
func (a *apiRig) expectLimits(got answer, left int) {
	a.t.Helper()
	reset := (3 - left) * 3600
	if n, err := strconv.Atoi(got.header.Get("X-RateLimit-Reset-After")); err == nil && n < reset && n > reset-someSeconds {
		reset = n
	}
	for name, want := range map[string]string{
		"RateLimit-Policy":        `"1/h";q=3;w=10800, "48/d";q=3;w=5400`,
		"RateLimit":               fmt.Sprintf(`"1/h";r=%d;t=%d, "48/d";r=%d;t=%d`, left, reset, left, reset),
		"X-RateLimit-Limit":       "3",
		"X-RateLimit-Remaining":   fmt.Sprint(left),
		"X-RateLimit-Reset-After": fmt.Sprint(reset),
	} {
		if got := got.header.Get(name); got != want {
			a.t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAPISaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForThree)
	large := `{"id":"large","payload":{"x":"` + strings.Repeat("y", job.MaxLine) + `"}}`
	unsized := func(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }
	for i, c := range []struct {
		method, path, kind string
		body               io.Reader
		code               int
		no, words          string
	}{
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"id":"a","payload":{"x":}}`), 400, "invalid_job", "column 26"},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"id":"a b"}`), 400, "invalid_job", `' ' at place 2`},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"payload":{}}`), 400, "invalid_job", "no id"},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"id":"a","amount":1}`), 400, "invalid_job", `unknown key "amount"`},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"id":"a","cost":4}`), 400, "invalid_job", "cost 4 is more than 3"},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(`{"id":"a","gateway":"other"}`), 400, "invalid_job", `no gateway "other"`},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(""), 400, "invalid_job", "not a JSON object"},
		{"POST", a.jobs("?on_full=wait"), asJSONType, strings.NewReader(`{"id":"a"}`), 400, "invalid_request", "on_full"},
		{"POST", a.jobs(""), asNDJSONType, strings.NewReader("\xff\xfe{"), 400, "invalid_request", "UTF-16"},
		{"POST", a.jobs(""), asJSONType, strings.NewReader(large), 413, "too_large", "1048576"},
		{"POST", a.jobs(""), asJSONType, unsized(large), 413, "too_large", "1048576"},
		{"POST", a.jobs(""), asNDJSONType, strings.NewReader(large), 413, "too_large", "1048576"},
		{"POST", a.jobs(""), "application/x-www-form-urlencoded", strings.NewReader(`{"id":"a"}`), 415, "unknown_media_type", "Content-Type"},
		{"POST", a.jobs(""), "", strings.NewReader(`{"id":"a"}`), 415, "unknown_media_type", "Content-Type"},
		{"POST", "/v1/gateways/nobody/jobs", asJSONType, strings.NewReader(`{"id":"a"}`), 404, "unknown_gateway", "nobody"},
		{"GET", "/v1/gateways/nobody/jobs/a", "", nil, 404, "unknown_gateway", "nobody"},
		{"GET", a.jobs("/a"), "", nil, 404, "unknown_job", `no job "a"`},
		{"GET", a.jobs(""), "", nil, 405, "method_not_allowed", "GET"},
		{"DELETE", a.jobs("/a"), "", nil, 405, "method_not_allowed", "DELETE"},
		{"POST", "/v1/status", asJSONType, strings.NewReader("{}"), 405, "method_not_allowed", "POST"},
		{"GET", "/v1/nothing", "", nil, 404, "unknown_path", "nothing"},
	} {
		got := a.ask(c.method, c.path, c.kind, c.body)
		v := a.told(got.body)
		if got.code != c.code || v.Status != c.code || v.Code != c.no || !strings.Contains(v.Detail, c.words) || strings.Contains(v.Detail, " --") { // who posts has no flags
			t.Errorf("%d: %s %s: %d %s, want %d, %s and %q", i, c.method, c.path, got.code, got.body, c.code, c.no, c.words)
		}
		if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%d: %s", i, kind)
		}
	}
	if got := a.ask("GET", a.jobs(""), "", nil); got.header.Get("Allow") != "POST" {
		t.Errorf("Allow: %v", got.header)
	}
	if got := a.ask("GET", "/v1/status", "", nil); !strings.Contains(got.body, `"queued":0`) {
		t.Errorf("something was taken in: %s", got.body)
	}
}

func TestAPIWantsTheToken(t *testing.T) {
	t.Parallel()
	var a *apiRig
	for _, c := range []struct{ method, path string }{{"POST", "JOBS"}, {"GET", "JOBS/a"}, {"GET", "/v1/status"}, {"GET", "/metrics"}, {"GET", "/v1/x"}} {
		a = newAPIRig(t, "", roomForThree) // each bears a few wrong tokens
		for _, shown := range []string{"", "Bearer ", "Bearer wrong", "Basic " + apiToken, "Bearer " + apiToken + "x"} {
			r, err := http.NewRequestWithContext(t.Context(), c.method, a.url+strings.Replace(c.path, "JOBS", a.jobs(""), 1), strings.NewReader(`{"id":"a"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", asJSONType)
			r.Header.Set("Authorization", shown)
			if got := a.do(r); got.code != 401 || got.header.Get("WWW-Authenticate") != "Bearer" || a.told(got.body).Code != "no_token" {
				t.Errorf("%s %s with %q: %d %s", c.method, c.path, shown, got.code, got.body)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", a.url+a.jobs(""), strings.NewReader(`{"id":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiToken)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := a.do(r); got.code != 403 {
		t.Errorf("a page of another site: %d %s", got.code, got.body)
	}
}

// The API shows the same of jobs and gateways as the commands print.
func TestAPIShowsWhatTheCommandsPrint(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForThree)
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"https://one.example/charge\"}\n    leak: {limits: [100/s]}\n    %s\n", a.redis, a.gateway, roomForThree)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.post(`{"id":"a","payload":{"amount":1}}`, "")
	a.post(`{"id":"b","cost":3}`, "?on_full=park")
	for path, args := range map[string][]string{"/v1/status": {"status"}, a.jobs("/a"): {"job", "a"}, a.jobs("/b"): {"job", "b"}} {
		var out, errs bytes.Buffer
		cli.Main(name, newCommand, append(args, "-c", file, "-o", "json"), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		got := a.ask("GET", path, "", nil)
		if got.code != 200 || got.body != out.String() || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %d\n%s\nthe command prints\n%s%s", path, got.code, got.body, out.String(), errs.String())
		}
	}
}

func TestAPIAnswersEachLineOfMany(t *testing.T) {
	t.Parallel()
	a := newAPIRig(t, "", roomForThree)
	a.post(`{"id":"known"}`, "")
	got := a.bulk("{\"id\":\"known\"}\n\n{\"id\":\"b\"}\nrubbish\n{\"id\":\"known\",\"payload\":{\"x\":1}}\r\n{\"id\":\"c\"}\n{\"id\":\"d\"}\n{\"id\":\"e\",\"gateway\":\"other\"}\n{\"id\":\"b\"}")
	if got.code != 202 || got.header.Get("Content-Type") != asNDJSONType {
		t.Errorf("%d %v", got.code, got.header)
	}
	a.expectLimits(got, 0)
	a.holdLines(got.body)
	var short []string
	for _, l := range a.lines(got.body) {
		short = append(short, fmt.Sprintf("%d %s %d %s%s", l.Line, l.ID, l.Status, l.Result, l.Code))
	}
	if all := strings.Join(short, ", "); all != "1 known 200 duplicate, 3 b 202 enqueued, 4  400 invalid_job, 5 known 409 other_payload, 6 c 202 enqueued, "+
		"7 d 429 no_room, 8  400 invalid_job, 9 b 200 duplicate" {
		t.Error(all)
	}
	// Jobs after one without room are not tried: they would overtake it.
	var long strings.Builder
	long.WriteString("{\"id\":\"known\"}\n")
	for i := range 500 {
		fmt.Fprintf(&long, "{\"id\":\"long-%d\"}\n", i)
	}
	long.WriteString("{\"id\":\"known\"}\n")
	got = a.bulk(long.String())
	if all := a.lines(got.body); len(all) != 502 || all[0].Status != 200 || all[1].Status != 429 || all[501].Status != 429 || all[501].ID != "known" {
		t.Errorf("%d: %d lines, the last %+v", got.code, len(all), all[len(all)-1])
	}
	// If no job is accepted, the status of the answer says so, and each line says why.
	got = a.bulk("{\"id\":\"f\"}\nrubbish\n{\"id\":\"g\"}\n")
	if v := a.told(got.body); got.code != 429 || !anHour(got.header.Get("Retry-After")) || len(v.Lines) != 3 || v.Lines[1].Status != 400 {
		t.Errorf("no room for any: %d %v %s", got.code, got.header, got.body)
	}
	if got = a.bulk("{\"id\":\"b\"}\n{\"id\":\"c\"}\n"); got.code != 200 || len(a.lines(got.body)) != 2 {
		t.Errorf("all are known: %d %s", got.code, got.body)
	}
	if got = a.bulk("rubbish\n"); got.code != 400 || a.told(got.body).Lines[0].Line != 1 {
		t.Errorf("none is a job: %d %s", got.code, got.body)
	}
	if got = a.bulk("\n"); got.code != 200 || got.body != "" {
		t.Errorf("no lines: %d %s", got.code, got.body)
	}
}
