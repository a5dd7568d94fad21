package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/testkit"
)

// far is a rig whose gateways a dispatcher with a token also serves over HTTP.
type far struct {
	*rig
	api *apiRig
	url string
}

func newFar(t *testing.T) *far {
	t.Helper()
	return newRig(t).far()
}

// far starts the HTTP side of a dispatcher with the rig's configuration.
func (r *rig) far() *far {
	t := r.t
	t.Helper()
	db, err := dispatch.Open(r.ctx, r.cfg, time.Minute)
	r.must(err)
	a := &apiRig{t: t, cfg: r.cfg, c: r.c, log: &testkit.Log{}, all: &testkit.Log{}}
	log := slog.New(slog.NewTextHandler(a.log, nil))
	s := served{file: newInForce(r.cfg), door: newDoor(dispatch.Door(db.Client, r.cfg, apiPatience)), db: db, log: log}
	a.api = s.api(httpapi.Config{Guard: httpapi.NewGuard(apiToken), Ready: s.takesJobs}, s.examiner())
	srv := httptest.NewUnstartedServer(a.api)
	srv.Config = a.api.Server(log)
	srv.Start()
	a.url = srv.URL
	t.Cleanup(func() { srv.Close(); _ = db.Close() })
	a.describe()
	return &far{r, a, srv.URL}
}

// send sends a request to the API, and reads its answer.
func (f *far) send(method, path, body string, to any) answer {
	f.t.Helper()
	var in io.Reader
	kind := ""
	if body != "" {
		in, kind = strings.NewReader(body), asJSONType
	}
	got := f.api.ask(method, path, kind, in)
	if to != nil {
		if err := json.Unmarshal([]byte(got.body), to); err != nil || got.code != http.StatusOK {
			f.t.Fatalf("%s: %d %s", path, got.code, got.body)
		}
	}
	return got
}

// A list has pages. Following the cursors gives all of it.
func TestAPIListsDeadLettersAPageAtATime(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.stock()
	ids, after := "", ""
	for range 4 {
		var page remote.DeadLetterPage
		f.send("GET", "/v1/dead-letters?limit=2&payload=true&after="+after, "", &page)
		for _, j := range page.Jobs {
			ids += j.ID
		}
		if page.Next == nil {
			break
		}
		after = *page.Next
	}
	if ids != "abcdef" {
		t.Errorf("listed %q", ids)
	}
	var by remote.DeadLetterPage
	f.send("GET", "/v1/dead-letters?order=need", "", &by)
	if len(by.Jobs) != 4 || by.ForRoom != 2 || by.Jobs[0].Reason != job.UnknownOutcome {
		t.Errorf("by need: %+v", by)
	}
	for path, want := range map[string]string{"/v1/dead-letters?gateway=none": "unknown_gateway", "/v1/dead-letters?limit=1001": "invalid_request", "/v1/dead-letters?batch=none": "unknown_batch",
		"/v1/dead-letters?reasons=refused": "invalid_request", "/v1/dead-letters?batch=b1&batch=b2": "invalid_request", "/v1/dead-letters/job/none": "unknown_job",
		"/v1/dead-letters?after=x": "invalid_request", "/v1/history?limit=x": "invalid_request", "/v1/limits?x=1": "invalid_request", "/v1/batches/none/jobs": "unknown_batch"} {
		if got := f.send("GET", path, "", nil); f.api.told(got.body).Code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}

// An act does what the preview showed. Jobs that were parked after the preview stay. If a job of the preview is no longer parked, nothing is done.
func TestAPIDoesWhatWasPreviewed(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.stock()
	const what = `{"action":"replay","reasons":["refused"]`
	var seen remote.Preview
	f.send("POST", "/v1/dead-letters/preview", what+`}`, &seen)
	if seen.Jobs != 1 || seen.Would.Jobs != 1 || seen.Parts[0].Gateway != f.one || seen.Parts[0].ByReason[job.Refused].Amount["EUR"].Int64() != 1050 {
		t.Fatalf("%+v", seen)
	}
	run := func(body, key string) answer {
		r, err := http.NewRequestWithContext(t.Context(), "POST", f.url+"/v1/dead-letters/run", strings.NewReader(body))
		f.must(err)
		r.Header.Set("Authorization", "Bearer "+apiToken)
		r.Header.Set("Content-Type", asJSONType)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		return f.api.do(r)
	}
	token := `,"token":"` + seen.Token + `","by":"ann"`
	for body, want := range map[string]string{
		what + `,"by":"ann"}`:                                          "invalid_request", // no token
		what + `,"token":"` + seen.Token + `"}`:                        "invalid_request", // nobody
		what + token + `,"x":1}`:                                       "invalid_request",
		strings.Replace(what, "refused", "exhausted", 1) + token + `}`: "changed",
	} {
		if got := run(body, ""); f.api.told(got.body).Code != want {
			t.Errorf("%s: %d %s", body, got.code, got.body)
		}
	}
	f.park(f.one, charge("g", "7", ""), job.Refused, 402, "no") // since the preview
	first := run(what+token+`}`, "key-1")
	var done remote.Cleared
	if err := json.Unmarshal([]byte(first.body), &done); err != nil || done.Taken != 1 || done.Parts[0].Amount["EUR"].Int64() != 1050 {
		t.Fatalf("%d %s: %v", first.code, first.body, err)
	}
	if f.record(f.one, "a").State != job.Queued || f.record(f.one, "g").State != job.Parked {
		t.Errorf("a is %s, g is %s", f.record(f.one, "a").State, f.record(f.one, "g").State)
	}
	if again := run(what+token+`}`, "key-1"); again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %d %s", again.code, again.body)
	}
	if other := run(what+token+`,"why":"x"}`, "key-1"); f.api.told(other.body).Code != "key_reused" {
		t.Errorf("another request: %d %s", other.code, other.body)
	}
	if again := run(what+token+`}`, "key-2"); f.api.told(again.body).Code != "changed" {
		t.Errorf("a has gone: %d %s", again.code, again.body)
	}
	if got := f.trail(f.one); !strings.Contains(got, `"who":"ann","what":"replay","filter":"--reason refused","jobs":1`) {
		t.Errorf("trail: %s", got)
	}
}

// An act in progress does not start a second time. If its dispatcher was killed, it starts again after it has given no sign of life for a while.
func TestAPIActsOnceByAKey(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	once := onceKept{redisdb.NewOnce(f.c)}
	if before, err := once.Begin(t.Context(), "k", "d"); err != nil || before != nil {
		t.Fatal(before, err)
	}
	if before, err := once.Begin(t.Context(), "k", "d"); err != nil || before == nil || before.Status != 0 {
		t.Errorf("under way: %+v, %v", before, err)
	}
	f.must(once.Drop(t.Context(), "k"))
	if before, err := once.Begin(t.Context(), "k", "d"); err != nil || before != nil {
		t.Errorf("after its end: %+v, %v", before, err)
	}
	keys, err := f.c.Keys(t.Context(), "spillway:once:*").Result()
	f.must(err)
	if left, err := f.c.PTTL(t.Context(), keys[0]).Result(); err != nil || left <= 0 || left > actAlive {
		t.Errorf("an act under way lasts %s: %v", left, err)
	}
}

// The operations on gateways and limits do the same as the commands, and the trail has them.
func TestAPISteersGateways(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	of := "/v1/gateways/" + f.one
	var v struct{ Done, Remark string }
	f.send("POST", of+"/pause", `{"by":"ann","why":"maintenance"}`, &v)
	if v.Done != "paused" {
		t.Errorf("%+v", v)
	}
	f.send("POST", of+"/resume", `{"by":"ann"}`, &v)
	if v.Done != "resumed" {
		t.Errorf("%+v", v)
	}
	var l struct {
		Limits []string
		Live   bool `json:"set_live"`
	}
	f.send("POST", of+"/limits/set", `{"by":"ann","limits":["50/s","2000/m"]}`, &l)
	if !l.Live || strings.Join(l.Limits, " ") != "50/s 2000/m" {
		t.Errorf("%+v", l)
	}
	f.send("POST", of+"/limits/reset", `{"by":"ann"}`, &l)
	for _, c := range []struct{ path, body, code string }{{of + "/limits/set", `{"by":"ann","limits":["x"]}`, "invalid_request"}, {of + "/limits/forgive", `{"by":"ann"}`, "invalid_request"},
		{"/v1/gateways/none/pause", `{"by":"ann"}`, "unknown_gateway"}, {of + "/pause", `{}`, "invalid_request"}, {of + "/pause", ``, "unknown_media_type"},
		{"/v1/jobs/none/park", `{"by":"ann","why":"x"}`, "unknown_job"}, {"/v1/batches/none/pause", `{"by":"ann","why":"x"}`, "unknown_batch"},
		{of + "/forget", `{"by":"ann","why":"x"}`, "invalid_request"}} {
		if got := f.send("POST", c.path, c.body, nil); f.api.told(got.body).Code != c.code {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.code, got.body)
		}
	}
	got := f.send("GET", "/v1/history?gateway="+f.one, "", nil)
	for _, what := range []string{`"what":"pause","why":"maintenance"`, `"what":"resume"`, `"what":"limit set 50/s 2000/m"`, `"what":"limit reset"`} {
		if !strings.Contains(got.body, what) {
			t.Errorf("%s is not in the history: %s", what, got.body)
		}
	}
}

// Exports are streams of NDJSON or CSV. Their lines are those that the command prints.
func TestAPIStreamsExports(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	f.stock()
	if got, want := f.tidy(f.send("GET", "/v1/dead-letters/export?gateway="+f.one, "", nil).body), f.run("export", "-g", f.one).out; got != want {
		t.Errorf("exported %s, and the command prints %s", got, want)
	}
	got := f.send("GET", "/v1/dead-letters/export?remarks=true", "", nil)
	if !strings.Contains(got.body, `{"remark":"left out: job \"f\"`) {
		t.Errorf("no remark: %s", got.body)
	}
	csv := f.send("GET", "/v1/batches/b1/jobs?format=csv", "", nil)
	if want := f.command("batch", "b1", "--export", "--format", "csv"); f.tidy(csv.body) != want.out || csv.header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("%s, and the command prints %s", csv.body, want.out)
	}
	if all := f.send("GET", "/v1/jobs?state=parked&state=queued", "", nil); strings.Count(all.body, "\n") != 6 {
		t.Errorf("jobs: %s", all.body)
	}
}

// A damaged key of one gateway does not hide the other gateways.
func TestAPIShowsTheOtherGatewaysOfADamagedOne(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	full := "spillway:{" + f.one + "}:money"
	f.must(f.c.Del(t.Context(), full).Err())
	f.must(f.c.Set(t.Context(), full, "rubbish", 0).Err())
	var v remote.Standing
	f.send("GET", "/v1/status", "", &v)
	if len(v.Gateways) != 1 || v.Gateways[0].Gateway != f.two || len(v.Damaged) != 1 || !strings.Contains(v.Damaged[0], full) {
		t.Errorf("%+v", v)
	}
	var w remote.Watching
	f.send("GET", "/v1/watch", "", &w)
	if len(w.Gateways) != 1 || w.Gateways[0].Gateway != f.two || len(w.Damaged) != 1 || !strings.Contains(w.Damaged[0], full) {
		t.Errorf("%+v", w)
	}
	full = redisdb.NewKeys(f.one).Parked("refused")
	f.must(f.c.Set(t.Context(), full, "rubbish", 0).Err())
	var a remote.AllAnswers
	f.send("GET", "/v1/answers", "", &a)
	if len(a.Gateways) != 1 || a.Gateways[0].Gateway != f.two || len(a.Damaged) != 1 || !strings.Contains(a.Damaged[0], full) {
		t.Errorf("%+v", a)
	}
}
