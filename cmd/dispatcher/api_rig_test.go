package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/redis/go-redis/v9"

	"spillway/internal/config"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/testkit"
)

const apiToken = "tok_canary_4711"

// apiRig is the HTTP side of run with a real Redis, without workers. It compares each answer with the API's description.
type apiRig struct {
	t       *testing.T
	cfg     *config.Config
	gateway string
	redis   string // its URL
	c       redis.UniversalClient
	api     *httpapi.API
	url     string
	doc     *openapi3.T
	log     *testkit.Log
	all     *testkit.Log // bodies and headers of all answers
}

// newAPIRig makes an apiRig at this URL of a Redis. If the URL is empty, it uses a database of its own.
func newAPIRig(t *testing.T, url, settings string) *apiRig {
	t.Helper()
	if url == "" {
		url, _ = testkit.Database(t)
	}
	a := &apiRig{t: t, redis: url, gateway: testkit.Gateway(t), log: &testkit.Log{}, all: &testkit.Log{}}
	text := fmt.Sprintf("redis: %s\ntoken: %s\ngateways:\n  %s:\n    request: {url: \"https://one.example/charge\"}\n    leak: {limits: [100/s]}\n    %s\n",
		url, apiToken, a.gateway, settings)
	var err error
	if a.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	db, err := dispatch.Open(t.Context(), a.cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a.c = db.Client
	s := served{file: newInForce(a.cfg), door: newDoor(dispatch.Door(db.Client, a.cfg, apiPatience)), db: db, log: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	x := s.examiner()
	a.api = s.api(httpapi.Config{Guard: httpapi.NewGuard(apiToken), Ready: s.takesJobs, Metrics: http.NotFoundHandler()}, x)
	srv := httptest.NewUnstartedServer(a.api)
	srv.Config = a.api.Server(s.log)
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) // so that who does not read soon fills it, and who is not read
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
	}
	srv.Start()
	a.url = srv.URL
	t.Cleanup(func() { srv.Close(); _ = db.Close() })
	a.describe()
	return a
}

func (a *apiRig) describe() {
	a.t.Helper()
	got := a.ask(http.MethodGet, "/openapi.json", "", nil)
	doc, err := parsed()
	if err != nil || got.body != string(theDescription()) {
		a.t.Fatalf("it serves another description, or none: %v", err)
	}
	a.doc = doc
}

// answer is an HTTP response.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request with the token.
func (a *apiRig) ask(method, path, kind string, body io.Reader) answer {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiToken)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return a.do(r)
}

func (a *apiRig) do(r *http.Request) answer {
	a.t.Helper()
	back, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer back.Body.Close()
	text, err := io.ReadAll(back.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	got := answer{back.StatusCode, back.Header, string(text)}
	_, _ = fmt.Fprintln(a.all, got)
	a.hold(r, got)
	return got
}

const (
	asJSONType   = "application/json"
	asNDJSONType = "application/x-ndjson"
)

// jobs is the path of a gateway's jobs.
func (a *apiRig) jobs(query string) string { return "/v1/gateways/" + a.gateway + "/jobs" + query }

func (a *apiRig) post(line, query string) answer {
	a.t.Helper()
	return a.ask(http.MethodPost, a.jobs(query), asJSONType, strings.NewReader(line))
}

func (a *apiRig) bulk(text string) answer {
	a.t.Helper()
	return a.ask(http.MethodPost, a.jobs(""), asNDJSONType, strings.NewReader(text))
}

// told is one line of an answer to many jobs, or the whole answer to one.
type told struct {
	Line   int    `json:"line"`
	ID     string `json:"id"`
	Status int    `json:"status"`
	Result string `json:"result"`
	State  string `json:"state"`
	Reason string `json:"reason"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Retry  int    `json:"retry_after"`
	Lines  []told `json:"lines"`
}

func (a *apiRig) told(text string) told {
	a.t.Helper()
	var v told
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		a.t.Fatalf("%v: %s", err, text)
	}
	return v
}

func (a *apiRig) lines(text string) []told {
	a.t.Helper()
	var all []told
	for line := range strings.Lines(text) {
		all = append(all, a.told(line))
	}
	return all
}

// hold compares an answer with the description.
func (a *apiRig) hold(r *http.Request, got answer) {
	a.t.Helper()
	if a.doc == nil {
		return
	}
	pattern := a.patternOf(r.URL.EscapedPath())
	item := a.doc.Paths.Value(pattern)
	if item == nil || item.GetOperation(r.Method) == nil {
		return // asked for what isn't there
	}
	in := &openapi3filter.ResponseValidationInput{Status: got.code, Header: got.header,
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r,
			Route: &routers.Route{Spec: a.doc, Path: pattern, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)}},
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: got.header.Get("Content-Type") == asNDJSONType}}
	if err := openapi3filter.ValidateResponse(a.t.Context(), in.SetBodyBytes([]byte(got.body))); err != nil {
		a.t.Errorf("%s %s answers %d, not as described: %v", r.Method, pattern, got.code, err)
	}
}

// patternOf returns the described path that matches a path. Of several, it is the one with the fewest parameters.
func (a *apiRig) patternOf(path string) (found string) {
	parts := strings.Split(path, "/")
	for pattern := range a.doc.Paths.Map() {
		want := strings.Split(pattern, "/")
		fits := len(want) == len(parts)
		for i := 0; fits && i < len(want); i++ {
			fits = want[i] == parts[i] || strings.HasPrefix(want[i], "{")
		}
		if fits && (found == "" || strings.Count(pattern, "{") < strings.Count(found, "{")) {
			found = pattern
		}
	}
	return found
}

// holdLines compares each line of the answer to many jobs with the description.
func (a *apiRig) holdLines(text string) {
	a.t.Helper()
	for line := range strings.Lines(text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			a.t.Fatal(err)
		}
		schema := "Problem"
		switch {
		case v["result"] != nil:
			schema = "Taken"
		case v["cursor"] != nil:
			schema = "Outcome"
		}
		if err := a.doc.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
			a.t.Errorf("%s: not a %s: %v", line, schema, err)
		}
	}
}
