package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/testkit"
)

// asked is a look-up as a server saw it.
type asked struct {
	method, uri, body string
	header            http.Header
}

// asking returns a looker for a server whose answers a function writes, and the requests that the server sees.
func asking(t *testing.T, cfg Config, look LookConfig, answer http.HandlerFunc) (*Looker, *[]asked) {
	t.Helper()
	seen := &[]asked{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*seen = append(*seen, asked{r.Method, r.RequestURI, string(body), r.Header})
		if answer == nil {
			fmt.Fprint(w, `{}`)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	cfg.URL, look.URL = srv.URL+"/pay", srv.URL+look.URL
	l, err := NewLooker(cfg, look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, seen
}

var inDoubt = job.Look{Job: job.Job{ID: "inv/1", Payload: []byte(`{"order":{"id":"a b"},"n":12}`)}, KeyGeneration: 2, Reference: "pi_1",
	First: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}

func TestWhatALookUpSends(t *testing.T) {
	t.Parallel()
	cfg := Config{Headers: map[string]string{"X-Api-Key": "secret"}, JobHeaders: map[string][]HeaderPart{"X-Order": {{Place: "payload.n"}}}, Encoding: "form", Strip: []string{"n"},
		Key: job.KeyShape{Name: "Idempotency-Key", Prefix: "p-"}, Sign: Sign{Header: "X-Sign", Secret: []byte("k"), Content: "{method} {path} {query}"}}
	l, seen := asking(t, cfg, LookConfig{URL: "/v1/{reference}/{id}?key={key}&since={first_call}&o={payload.order.id}"}, nil)
	res := l.Look(t.Context(), job.LookRequest{Look: inDoubt, Key: inDoubt.Key(), Bearer: "token"})
	if res.Stage != job.Answered || res.Status != 200 || string(res.Body) != "{}" || len(*seen) != 1 {
		t.Fatalf("%+v, %d requests", res, len(*seen))
	}
	got := (*seen)[0]
	if want := "/v1/pi_1/inv%2F1?key=p-inv%2F1~2&since=2026-11-24T11%3A55%3A00Z&o=a+b"; got.method != "GET" || got.uri != want || got.body != "" {
		t.Errorf("%s %s %q, want GET %s", got.method, got.uri, got.body, want)
	}
	for name, want := range map[string]string{"X-Api-Key": "secret", "X-Order": "12", "Authorization": "Bearer token", "Idempotency-Key": "", "Content-Type": ""} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	if len(got.header.Get("X-Sign")) != 64 {
		t.Errorf("it is not signed: %v", got.header)
	}
}

func TestALookUpWithABody(t *testing.T) {
	t.Parallel()
	l, seen := asking(t, Config{Key: job.KeyShape{Name: "K", In: job.KeyInBody}}, LookConfig{URL: "/search", Method: "POST", Body: `{"query":"query($id: ID!) { a(id: $id) }","variables":{"id":"{id}","o":"{payload.order.id}"}}`}, nil)
	look := inDoubt
	look.Job.ID = `a"b`
	if res := l.Look(t.Context(), job.LookRequest{Look: look, Key: look.Key()}); res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := (*seen)[0]; got.method != "POST" || got.body != `{"query":"query($id: ID!) { a(id: $id) }","variables":{"id":"a\"b","o":"a b"}}` || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", got)
	}
}

func TestFurtherPagesStandAtTheSameServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ parameter, page, uri, fault string }{
		"a whole address":    {"", "{server}/v1/list?page=2", "/v1/list?page=2", ""},
		"a path":             {"", "/v2/list?page=2#x", "/v2/list?page=2", ""},
		"a query":            {"", "?page=2", "/v1/list?page=2", ""},
		"a cursor":           {"cursor", "a b&c=d", "/v1/list?cursor=a+b%26c%3Dd&limit=5&r=inv%2F1", ""},
		"an address, as one": {"cursor", "https://evil.example/", "/v1/list?cursor=https%3A%2F%2Fevil.example%2F&limit=5&r=inv%2F1", ""},
		"another server":     {"", "https://evil.example/v1/list", "", "the list goes on at another server, and nothing is sent there"},
		"another port":       {"", "http://127.0.0.1:1/v1/list", "", "at another server"},
		"without a scheme":   {"", "//evil.example/v1", "", "at another server"},
		"with a password":    {"", "{with-user}/v1", "", "at another server"},
		"no address":         {"", "ht tp://\x7f", "", "can't be read"},
		"too long":           {"", strings.Repeat("x", 5000), "", "longer than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, seen := asking(t, Config{}, LookConfig{URL: "/v1/list?limit=5&r={id}", Parameter: tc.parameter}, nil)
			host := l.client.shape.url.base.Host
			page := strings.NewReplacer("{server}", "http://"+host, "{with-user}", "http://u:p@"+host).Replace(tc.page)
			res := l.Look(t.Context(), job.LookRequest{Look: inDoubt, Page: page})
			if tc.fault != "" {
				if res.Stage != job.NotSent || job.CodeOf(res.Err) != job.CodeInvalid || !strings.Contains(res.Err.Error(), tc.fault) || len(*seen) > 0 {
					t.Errorf("%+v, %d requests", res, len(*seen))
				}
				return
			}
			if len(*seen) != 1 || (*seen)[0].uri != tc.uri {
				t.Errorf("%+v, want %s; %v", *seen, tc.uri, res.Err)
			}
		})
	}
}

func TestAJobThatLacksWhatALookUpNeedsIsNotAskedFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		look LookConfig
		job  job.Look
		want string
	}{
		"no reference yet": {LookConfig{URL: "/{reference}"}, job.Look{Job: job.Job{ID: "a"}}, "the gateway's lookup.url needs {reference}, and the job has none yet"},
		"no first call":    {LookConfig{URL: "/?t={first_call}"}, job.Look{Job: job.Job{ID: "a"}}, "needs {first_call}"},
		"no keys":          {LookConfig{URL: "/{key}"}, inDoubt, "needs {key}"},
		"no such field":    {LookConfig{URL: "/{payload.x}"}, inDoubt, "the gateway's lookup.url needs {payload.x}"},
		"in a body":        {LookConfig{URL: "/", Method: "POST", Body: `{"r":"{reference}"}`}, job.Look{Job: job.Job{ID: "a"}}, "the gateway's lookup.body needs {reference}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, seen := asking(t, Config{}, tc.look, nil)
			res := l.Look(t.Context(), job.LookRequest{Look: tc.job, Key: tc.job.Key()})
			if res.Stage != job.NotSent || job.CodeOf(res.Err) != job.CodeInvalid || !strings.Contains(res.Err.Error(), tc.want) || len(*seen) > 0 {
				t.Errorf("%+v, %d requests", res, len(*seen))
			}
		})
	}
}

func TestTheAnswerToALookUpMayBeLonger(t *testing.T) {
	t.Parallel()
	for n, whole := range map[int]bool{200 << 10: true, 1 << 20: true, 1<<20 + 1: false} {
		l, _ := asking(t, Config{}, LookConfig{URL: "/"}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", n)) })
		res := l.Look(t.Context(), job.LookRequest{Look: inDoubt})
		if whole != (res.Err == nil) || len(res.Body) > 1<<20 || whole && len(res.Body) != n || !whole && res.Err.Error() != "the answer is longer than 1024 KiB" {
			t.Errorf("%d bytes: %d, %v", n, len(res.Body), res.Err)
		}
	}
}

func TestALookUpWaitsForItsSlotAndEndsInTime(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64 // the server may still be answering when the look-up has ended
	l, _ := asking(t, Config{Timeout: 2 * time.Second}, LookConfig{URL: "/"}, func(_ http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		<-r.Context().Done()
	})
	due, wrote := time.Now().Add(30*time.Millisecond), time.Time{}
	res := l.Look(t.Context(), job.LookRequest{Look: inDoubt, Due: due, Wrote: func(at time.Time) { wrote = at }})
	if res.Stage != job.Sent || wrote.Before(due) || !strings.Contains(res.Err.Error(), "no answer came within 2s") {
		t.Errorf("%+v, written at %s, due at %s", res, wrote, due)
	}
	res = l.Look(t.Context(), job.LookRequest{Look: inDoubt, TooLate: func(time.Time) bool { return true }})
	if !res.Late || res.Stage != job.NotSent {
		t.Errorf("%+v", res)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res = l.Look(ctx, job.LookRequest{Look: inDoubt}); res.Stage != job.NotSent || res.Err == nil {
		t.Errorf("%+v", res)
	}
	testkit.Eventually(t, 10*time.Second, "the one question to arrive", func() bool { return seen.Load() > 0 })
	if n := seen.Load(); n != 1 {
		t.Errorf("%d questions arrived, want the first alone", n)
	}
}

func TestLookUpsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, look := range []LookConfig{{URL: "https://a.example/{what}"}, {URL: "https://a.example/", Method: "PUT"}, {URL: "https://{id}.example/"}, {}} {
		if _, err := NewLooker(Config{URL: "https://a.example/"}, look); err == nil {
			t.Errorf("%+v was taken", look)
		}
	}
}

// The digest of calls does not depend on look-ups.
func TestTheDigestOfCallsIsNotThatOfLookUps(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: "https://a.example/pay", Key: job.KeyShape{Name: "K"}}
	before := cfg.Digest()
	if _, err := NewLooker(cfg, LookConfig{URL: "https://a.example/{id}"}); err != nil || cfg.Digest() != before {
		t.Error(err, before, cfg.Digest())
	}
}
