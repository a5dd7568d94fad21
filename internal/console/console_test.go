package console

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/bucket"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// rig is a console behind the HTTP side, with one gateway that no dispatcher serves, and a browser without JavaScript.
type rig struct {
	t       *testing.T
	cfg     *config.Config
	db      *redisdb.DB
	g       config.Gateway
	console *Console
	url     string
	log     *strings.Builder
	browser *http.Client
}

type setting struct {
	token     string
	admission string // burst of admission; empty means room for all
	lookup    bool   // the gateway can be asked what became of a call
	more      string // further keys of the gateway
}

func setup(t *testing.T, s setting) *rig {
	t.Helper()
	return setupAt(t, testkit.Redis(t), s)
}

func setupAt(t *testing.T, address string, s setting) *rig {
	t.Helper()
	r := &rig{t: t, log: &strings.Builder{}}
	name := testkit.Gateway(t)
	if s.admission == "" {
		s.admission = "{limits: [1000/s], burst: 1000}"
	}
	text := fmt.Sprintf("redis: %s\ngateways:\n  %s:\n    request: {url: \"http://127.0.0.1:1/\"}\n    amount: {field: amount, currency: currency}\n"+
		"    leak: {limits: [100/s]}\n    admission: %s\n    replay: manual\n", address, name, s.admission)
	if s.lookup {
		text += "    lookup: {url: \"/payments?reference={id}\", matches: {amount: amount}, answers: [{status: 200, body: {status: paid}, then: done}]}\n"
	}
	text += s.more
	var err error
	if r.cfg, err = config.Parse("x.yaml", []byte(text), config.Options{Secrets: true}); err != nil {
		t.Fatal(err)
	}
	r.g = r.cfg.Gateways[0]
	if r.db, err = dispatch.Open(t.Context(), r.cfg, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	r.start(s.token)
	return r
}

func (r *rig) start(token string) {
	guard := httpapi.NewGuard(token)
	r.console = New(Config{Redis: r.db.Client, Gateways: r.cfg.Gateways, Guard: guard, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	srv := httptest.NewServer(httpapi.New(httpapi.Config{Guard: guard, Console: r.console, Login: r.console.Login()}))
	r.t.Cleanup(srv.Close)
	r.t.Cleanup(func() { _ = r.console.Stop(r.t.Context()) })
	r.url = srv.URL
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.browser = &http.Client{Jar: jar}
}

// put accepts jobs with this payload and returns their ids.
func (r *rig) put(n int, payload string) []string {
	r.t.Helper()
	jobs, ids := make([]job.Job, n), make([]string, n)
	for i := range jobs {
		ids[i] = fmt.Sprintf("j%04d", i)
		jobs[i] = job.Job{ID: ids[i], Gateway: r.g.Name, Payload: []byte(payload), Cost: 1, Batch: "2026-11"}
	}
	if _, err := dispatch.Door(r.db.Client, r.cfg, 0).Admit(r.t.Context(), r.g.Name, jobs, admission.Park); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// park accepts jobs and parks each after one call, as a worker does.
func (r *rig) park(n int, payload string, reason job.Reason, message string) []string {
	r.t.Helper()
	ids := r.put(n, payload)
	for _, id := range ids {
		r.parkOne(id, reason, message)
	}
	return ids
}

func (r *rig) record(id string) job.Record {
	r.t.Helper()
	rec, ok, err := dispatch.Books(r.db.Client, r.g).Find(r.t.Context(), id)
	if err != nil || !ok {
		r.t.Fatalf("the record of %s: %v, %v", id, ok, err)
	}
	return rec
}

func (r *rig) standing() record.Standing {
	r.t.Helper()
	s, err := dispatch.Books(r.db.Client, r.g).Look(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// get reads a page as a browser does.
func (r *rig) get(path string) (status int, page string) {
	r.t.Helper()
	return r.send("GET", path, nil, map[string]string{"Accept": "text/html", "Sec-Fetch-Site": "same-origin"})
}

// post sends a form as the console's own pages do, and follows the redirection.
func (r *rig) post(path string, form url.Values) (status int, page string) {
	r.t.Helper()
	return r.send("POST", path, form, map[string]string{"Accept": "text/html", "Sec-Fetch-Site": "same-origin"})
}

func (r *rig) send(method, path string, form url.Values, header map[string]string) (status int, page string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	if host := header["Host"]; host != "" {
		req.Host = host
	}
	answer, err := r.browser.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func (r *rig) headers(path string) http.Header {
	r.t.Helper()
	answer, err := r.browser.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.Header
}

func (r *rig) keys() redisdb.Keys { return redisdb.NewKeys(r.g.Name) }

func (r *rig) store() *deadletter.Store { return deadletter.New(r.db.Client, r.g.Name) }

func (r *rig) accept(id string) {
	r.t.Helper()
	j := job.Job{ID: id, Gateway: r.g.Name, Payload: []byte(`{}`), Cost: 1}
	if _, err := dispatch.Door(r.db.Client, r.cfg, 0).Admit(r.t.Context(), r.g.Name, []job.Job{j}, admission.Park); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pauseNow(why string) {
	r.t.Helper()
	p, err := dispatch.Pacer(r.db.Client, r.g, bucket.NewMetrics(nil))
	if err != nil {
		r.t.Fatal(err)
	}
	defer p.Close(r.t.Context())
	if err := p.Pause(r.t.Context(), why); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) paused() bool {
	r.t.Helper()
	h, err := dispatch.Hold(r.t.Context(), r.db.Client, r.g)
	if err != nil {
		r.t.Fatal(err)
	}
	return h.Paused
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// form returns the hidden fields of a page's POST form, which a browser without JavaScript would send.
func form(t *testing.T, page string) url.Values {
	t.Helper()
	_, inside, ok := strings.Cut(page[strings.Index(page, "<main"):], `method="post">`)
	if !ok {
		t.Fatal("no form in the page")
	}
	inside, _, _ = strings.Cut(inside, "</form>")
	v := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(inside, -1) {
		v.Add(unescape(m[1]), unescape(m[2]))
	}
	return v
}

func unescape(s string) string {
	return strings.NewReplacer("&#43;", "+", "&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

func wants(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, text := range all {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

func lacks(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, text := range all {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}
