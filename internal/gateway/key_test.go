package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// The prefix is part of the key wherever the gateway sees it, and of nothing else.
func TestAKeyGoesOutWithItsPrefix(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer srv.Close()
	for prefix, want := range map[string]string{"": "inv-1~2", "eu-": "eu-inv-1~2"} {
		c, err := New(Config{URL: srv.URL + "/{id}", Key: job.KeyShape{Name: "Idempotency-Key", Prefix: prefix},
			Sign: Sign{Header: "X-Sign", Secret: []byte("s"), Content: "{key} {id}"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Send(t.Context(), job.Request{Job: job.Job{ID: "inv-1"}, Key: "inv-1~2"})
		r := <-got
		n, err := newSigner(Sign{Header: "X-Sign", Secret: []byte("s"), Content: want + " inv-1"})
		if err != nil {
			t.Fatal(err)
		}
		m := message{head: *httptest.NewRequest(http.MethodPost, srv.URL, nil)}
		n.sign(&m, job.Request{}, time.Unix(0, 0))
		if r.Header.Get("Idempotency-Key") != want || r.URL.Path != "/inv-1" || r.Header.Get("X-Sign") != m.head.Header.Get("X-Sign") {
			t.Errorf("prefix %q: key %q, path %s, signature of %q is another", prefix, r.Header.Get("Idempotency-Key"), r.URL.Path, want+" inv-1")
		}
	}
	if _, err := New(Config{URL: srv.URL, Key: job.KeyShape{Name: "K", Prefix: "a b"}}); err == nil || !strings.Contains(err.Error(), "idempotency_prefix") {
		t.Errorf("a prefix that breaks the header: %v", err)
	}
}

// What would make another request of the same payload under the same key is noticed, and nothing else is: secrets are rotated while calls are unsure.
func TestTheDigestOfARequestFollowsWhatIsSent(t *testing.T) {
	t.Parallel()
	base := Config{URL: "https://api.test/v1?k=1", Key: job.KeyShape{Name: "Idempotency-Key"}}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"nothing":            {func(*Config) {}, ""},
		"defaults, written":  {func(c *Config) { c.Method, c.Encoding = "POST", "json" }, ""},
		"the header's case":  {func(c *Config) { c.Key.Name = "idempotency-key" }, ""},
		"headers":            {func(c *Config) { c.Headers = map[string]string{"Authorization": "Bearer new"} }, ""},
		"signature, timeout": {func(c *Config) { c.Sign.Header, c.Timeout = "X", time.Hour }, ""},
		"path":               {func(c *Config) { c.URL = "https://api.test/v2?k=1" }, "url or method"},
		"query":              {func(c *Config) { c.URL = "https://api.test/v1?k=2" }, "url or method"},
		"placeholder":        {func(c *Config) { c.URL = "https://api.test/v1?k={id}" }, "url or method"},
		"method":             {func(c *Config) { c.Method = "PUT" }, "url or method"},
		"a job's header":     {func(c *Config) { c.JobHeaders = accountHeader() }, "headers with placeholders"},
		"strip":              {func(c *Config) { c.Strip = []string{"account"} }, "encoding or strip"},
		"encoding":           {func(c *Config) { c.Encoding = "form" }, "encoding or strip"},
		"prefix":             {func(c *Config) { c.Key.Prefix = "eu-" }, "idempotency_header, prefix or key"},
		"the key's header":   {func(c *Config) { c.Key.Name = "X-Key" }, "idempotency_header, prefix or key"},
	} {
		now := base
		c.change(&now)
		if got := strings.Join(job.SentChanges(base.Digest(), now.Digest()), ", "); got != c.want || len(now.Digest()) != 16 && now.JobHeaders == nil || (now.Digest() == base.Digest()) != (c.want == "") {
			t.Errorf("%s: %q changed, want %q (%s, %s)", name, got, c.want, base.Digest(), now.Digest())
		}
	}
	if one, other := (Config{URL: base.URL, Strip: []string{"a", "b"}}), (Config{URL: base.URL, Strip: []string{"b", "a"}}); one.Digest() != other.Digest() {
		t.Error("the order of strip makes another request")
	}
	account := func(parts ...HeaderPart) string {
		return Config{URL: base.URL, Key: base.Key, JobHeaders: map[string][]HeaderPart{"X-Account": parts}}.Digest()
	}
	first := account(HeaderPart{Secret: "old"}, HeaderPart{Text: " "}, HeaderPart{Place: "payload.a"})
	if now := account(HeaderPart{Secret: "new"}, HeaderPart{Text: " "}, HeaderPart{Place: "payload.a"}); now != first {
		t.Error("a secret that was rotated makes another request")
	}
	for name, now := range map[string]string{
		"place": account(HeaderPart{Secret: "old"}, HeaderPart{Text: " "}, HeaderPart{Place: "payload.b"}),
		"text":  account(HeaderPart{Secret: "old"}, HeaderPart{Text: "-"}, HeaderPart{Place: "payload.a"}),
	} {
		if got := job.SentChanges(first, now); strings.Join(got, ", ") != "headers with placeholders" {
			t.Errorf("another %s: %q changed", name, got)
		}
	}
	spelt := func(a, b string) string {
		place := []HeaderPart{{Place: "id"}}
		return Config{URL: base.URL, JobHeaders: map[string][]HeaderPart{a: place, b: place}}.Digest()
	}
	if spelt("x-a", "X-B") != spelt("X-A", "x-b") {
		t.Error("the case of a header's name makes another request")
	}
	keyless := Config{URL: base.URL}.Digest()
	if got := job.SentChanges(keyless, base.Digest()); len(keyless) != 16 || strings.Join(got, ", ") != "idempotency_header, prefix or key" {
		t.Errorf("from no keys to keys: %q changed (%s)", got, keyless)
	}
}
