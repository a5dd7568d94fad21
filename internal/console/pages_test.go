package console

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
)

// parkOne parks an accepted job after one call, as a worker does, and removes its task from the queue, as asynq does.
func (r *rig) parkOne(id string, reason job.Reason, message string) {
	r.t.Helper()
	books, rec := dispatch.Books(r.db.Client, r.g), r.record(id)
	a, opening, err := books.Open(r.t.Context(), id, rec.Generation, "worker", time.Minute)
	if err != nil || opening != job.OpenGo {
		r.t.Fatalf("opening %s: %s, %v", id, opening, err)
	}
	e := job.Ending{Called: true, Spent: true, Status: 402, Verdict: job.VerdictRefused, Error: message, At: time.Now(), Took: 20 * time.Millisecond}
	if reason == job.UnknownOutcome {
		e.Status, e.Verdict, e.Unsure = 0, job.VerdictUnknown, true
	}
	if err := r.store().Park(r.t.Context(), a, e, reason); err != nil {
		r.t.Fatal(err)
	}
	task := job.TaskID(id, rec.Generation)
	r.db.Client.LRem(r.t.Context(), r.keys().Pending(), 1, task)
	r.db.Client.Del(r.t.Context(), r.keys().Task(task))
}

func TestTheOverviewShowsEveryGateway(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.park(3, `{"amount":500,"currency":"EUR"}`, job.Refused, "HTTP 402: no")
	status, page := r.get("/")
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	wants(t, page, r.g.Name, "limit 100/s", "refused</span> <b>3</b>", `role="img"`, `aria-label="Calls over the last`, `scope="row"`, `<html lang="en">`)
	lacks(t, page, "Log out", "/queues/")
}

func TestPayloadsAreHiddenUntilAskedForAndThenAreText(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	evil := `{"amount":500,"currency":"EUR","name":"<script>alert(1)</script>"}`
	ids := r.park(1, evil, job.Refused, `HTTP 402: <img src=x onerror="alert(2)">`)
	for _, path := range []string{"/", "/gateways/" + r.g.Name, jobLink(r.g.Name, ids[0])} {
		_, page := r.get(path)
		lacks(t, page, "alert(1)", "<img")
	}
	for _, path := range []string{"/gateways/" + r.g.Name + "?payload=1", jobLink(r.g.Name, ids[0]) + "&payload=1"} {
		_, page := r.get(path)
		wants(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x")
		lacks(t, page, "<script>alert", "<img")
	}
	if strings.Contains(r.log.String(), "alert") {
		t.Errorf("a payload is in the log:\n%s", r.log)
	}
}

func TestDeadLettersAreFoundByFilter(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(6, `{}`)
	r.parkOne("j0000", job.Refused, "HTTP 402: card_declined")
	r.parkOne("j0001", job.Refused, "HTTP 402: expired_card")
	r.parkOne("j0002", job.UnknownOutcome, "time-out")
	at := "/gateways/" + r.g.Name
	for query, want := range map[string]string{
		"":                                "j0000 j0001 j0002",
		"reason=refused":                  "j0000 j0001",
		"reason=&match=card_.*declined":   "j0000",
		"match=card":                      "j0000 j0001",
		"id=j0001+j0002":                  "j0001 j0002",
		"batch=2026-11&reason=refused":    "j0000 j0001",
		"batch=2026-12":                   "",
		"since=1h":                        "j0000 j0001 j0002",
		"until=1h":                        "",
		"since=2026-01-01&until=9999-1-1": "status 400",
		"reason=nonsense":                 "status 400",
		"match=%28":                       "status 400",
		"since=1h&until=2h":               "status 400",
	} {
		status, page := r.get(at + "?" + query)
		var got []string
		for _, id := range []string{"j0000", "j0001", "j0002", "j0003"} {
			if strings.Contains(page, ">"+id+"</a>") {
				got = append(got, id)
			}
		}
		found := strings.Join(got, " ")
		if status != 200 {
			found = "status 400"
		}
		if found != want {
			t.Errorf("%q: found %q, want %q", query, found, want)
		}
	}
}

func TestDeadLettersHavePages(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{admission: "{limits: [1/d], burst: 1}"})
	r.put(lettersShown+6, `{}`) // one has room, five more than a page are parked
	_, dead := r.get("/gateways/" + r.g.Name)
	wants(t, dead, "No dead letters.", `<span class="reason rejected">waiting for room</span> <b>55</b>`)
	_, first := r.get("/gateways/" + r.g.Name + "?reason=rejected")
	if n := strings.Count(first, `class="id"><a`); n != lettersShown {
		t.Errorf("the first page has %d jobs, want %d", n, lettersShown)
	}
	_, link, ok := strings.Cut(first, `<nav class="pages" aria-label="Pages"> <a class="button" href="`)
	if !ok {
		t.Fatal("no way to the next page")
	}
	link, _, _ = strings.Cut(link, "#")
	_, second := r.get(unescape(link))
	if n := strings.Count(second, `class="id"><a`); n != 5 {
		t.Errorf("the second page has %d jobs, want 5", n)
	}
	wants(t, second, "First page")
	lacks(t, second, "Next page", ">j0001</a>")
}

func TestAJobsPageSaysWhyItIsWhereItIs(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	r.put(3, `{"amount":4900,"currency":"EUR"}`)
	r.parkOne("j0001", job.UnknownOutcome, "time-out after the request was written")
	_, page := r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "No dispatcher has ever served the gateway: start one with", ", next in the queue.", "EUR 49.00", "2026-11", "Idempotency key")
	_, page = r.get("/jobs?id=j0001")
	wants(t, page, "It may or may not have been charged", "time-out after the request was written", "unknown outcome", "Resolve as done", "Resolve as not done", "none")
	if err := r.db.Client.HSet(t.Context(), redisdb.NewKeys(r.g.Name).Alive(), "at", time.Now().Add(time.Hour).UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	_, page = r.get(jobLink(r.g.Name, "j0002"))
	wants(t, page, "Waiting for a slot, behind 1 other.")
	r.pauseNow("card network is down")
	_, page = r.get(jobLink(r.g.Name, "j0000"))
	wants(t, page, "The gateway is paused: card network is down, next in the queue.")
	if status, page := r.get("/jobs/nothing"); status != 404 || !strings.Contains(page, `no job &#34;nothing&#34;`) {
		t.Errorf("an unknown job: %d", status)
	}
}

func TestIDsOfAnyKindHaveAPage(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	for _, id := range []string{"a/b//c", "..", ".", "%2e", "a?b=c#d", `"><script>`, "a+b&c"} {
		r.accept(id)
		status, page := r.get(jobLink(r.g.Name, id))
		if status != 200 || !strings.Contains(page, `<h1 class="id">`) {
			t.Errorf("%q: status %d", id, status)
		}
		lacks(t, page, `"><script>`)
	}
}

func TestStrangersGetNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{token: "s3cret"})
	ids := r.park(1, `{}`, job.Refused, "no")
	at := "/gateways/" + r.g.Name
	for _, path := range []string{"/", at, at + "/clear?do=discard", at + "/limit?to=1/s", "/jobs/" + ids[0]} {
		status, page := r.send("GET", path, nil, nil)
		if status != 401 || strings.Contains(page, r.g.Name) {
			t.Errorf("GET %s without a token: %d\n%s", path, status, page)
		}
	}
	discard := url.Values{"do": {"discard"}, "who": {"eve"}, "why": {"fun"}, "until": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}}
	for _, path := range []string{at + "/clear", at + "/pause", at + "/resume", at + "/limit"} {
		if status, _ := r.send("POST", path, discard, map[string]string{"Sec-Fetch-Site": "same-origin"}); status != 401 {
			t.Errorf("POST %s without a token: %d", path, status)
		}
	}
	if r.record(ids[0]).State != job.Parked {
		t.Error("a stranger discarded a job")
	}
}

func TestTheTokenIsTypedInOnce(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{token: "s3cret"})
	status, page := r.get("/gateways/" + r.g.Name + "?reason=refused")
	if status != 200 || !strings.Contains(page, "The <code>token</code> of the dispatcher") || !strings.Contains(page, "<h1>Log in</h1>") {
		t.Fatalf("a browser is not asked to log in: %d", status)
	}
	if status, style := r.get("/assets/style.css"); status != 200 || !strings.Contains(style, ":root") {
		t.Errorf("the login page has no style: %d", status)
	}
	f := form(t, page)
	f.Set("token", "wrong")
	if status, page := r.post("/login", f); status != 401 || !strings.Contains(page, "That is not the token") {
		t.Errorf("a wrong token: %d", status)
	}
	f.Set("token", "s3cret")
	status, page = r.post("/login", f)
	if status != 200 || !strings.Contains(page, "Dead letters") || !strings.Contains(page, "Log out") {
		t.Errorf("after the token the browser is not where it wanted to go: %d\n%s", status, page)
	}
	if strings.Contains(r.log.String(), "s3cret") || strings.Contains(page, "s3cret") {
		t.Error("the token shows")
	}
	r.post("/logout", url.Values{})
	if _, page = r.get("/"); !strings.Contains(page, "The <code>token</code> of the dispatcher") {
		t.Error("logged out, the browser is let in")
	}
}

func TestLoginSendsNobodyToAnotherSite(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/gateways/a?x=1": "/gateways/a?x=1", "": "/", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/",
		"/login?next=/": "/", "javascript:alert(1)": "/", "/\t/evil.example": "/", "gateways": "/",
	} {
		if got := local(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

func TestOtherSitesCanDoNothing(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	srv := httptest.NewServer(r.console) // by itself: the HTTP side before it refuses the same
	defer srv.Close()
	r.url = srv.URL
	at := "/gateways/" + r.g.Name
	pause := url.Values{"who": {"eve"}, "why": {"fun"}}
	for name, header := range map[string]map[string]string{
		"a page of another site":           {"Sec-Fetch-Site": "cross-site"},
		"a page of a neighbour":            {"Sec-Fetch-Site": "same-site"},
		"an old browser, from another one": {"Origin": "https://evil.example"},
	} {
		for _, path := range []string{at + "/pause", at + "/clear", at + "/limit", "/logout", "/login"} {
			if status, _ := r.send("POST", path, pause, header); status != 403 {
				t.Errorf("%s: POST %s: %d, want 403", name, path, status)
			}
		}
	}
	if r.paused() {
		t.Error("another site paused the gateway")
	}
	if status, _ := r.send("GET", "/", nil, map[string]string{"Host": "evil.example"}); status != 403 {
		t.Errorf("a name that was made to point here: %d, want 403", status)
	}
}

func TestBrowsersAreToldToRunNothingElse(t *testing.T) {
	t.Parallel()
	r := setup(t, setting{})
	for _, path := range []string{"/", "/login", "/nothing", "/assets/live.js", "/gateways/none"} {
		h := r.headers(path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; ", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		} {
			if !strings.HasPrefix(h.Get(name), want) {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	_, page := r.get("/")
	lacks(t, page, " style=", " onclick=", "<style", "javascript:")
}
