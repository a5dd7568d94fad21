package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestInsertKeepsAllElse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ object, path, want, fault string }{
		{`{}`, "k", `{"k":"v"}`, ""},
		{` { "a" : 1.50 }`, "k", ` {"k":"v", "a" : 1.50 }`, ""},
		{`{"a":{"b":1},"z":2}`, "a.k", `{"a":{"k":"v","b":1},"z":2}`, ""},
		{`{"z":2, "a" : {} ,"y":3}`, "a.k", `{"z":2, "a" : {"k":"v"} ,"y":3}`, ""},
		{`{"z":2}`, "a.b.k", `{"a":{"b":{"k":"v"}},"z":2}`, ""},
		{`{"x":"\u0061"}`, `k"`, `{"k\"":"v","x":"\u0061"}`, ""},
		{`{"k":1}`, "k", "", "has a field k, where the gateway's idempotency key goes"},
		{`{"\u006b":1}`, "k", "", "has a field k"},
		{`{"a":{"k":null}}`, "a.k", "", "has a field k"},
		{`{"a":7}`, "a.k", "", "has no object there"},
		{`{"a":null}`, "a.k", "", "has no object there"},
	} {
		got, err := insert(json.RawMessage(tc.object), strings.Split(tc.path, "."), json.RawMessage(`"v"`))
		if string(got) != tc.want || (err == nil) != (tc.fault == "") || err != nil && (!strings.Contains(err.Error(), tc.fault) || job.CodeOf(err) != job.CodeInvalid) {
			t.Errorf("%s at %s: %s, %v; want %s %s", tc.object, tc.path, got, err, tc.want, tc.fault)
		}
		if err == nil && !json.Valid(got) {
			t.Errorf("%s is not JSON", got)
		}
	}
}

// The key stands where the gateway wants it, and nowhere else.
func TestWhereAKeyStands(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key      job.KeyShape
		encoding string
		query    string
		body     string
		header   string
	}{
		"header":        {job.KeyShape{Name: "X-Key", Prefix: "p-"}, "", "a=1", `{"amount":5}`, "p-job/1"},
		"body":          {job.KeyShape{In: job.KeyInBody, Name: "idempotency_key"}, "", "a=1", `{"idempotency_key":"job/1","amount":5}`, ""},
		"body, deeper":  {job.KeyShape{In: job.KeyInBody, Name: "head.id", Prefix: "p-"}, "", "a=1", `{"head":{"id":"p-job/1"},"amount":5}`, ""},
		"body, as form": {job.KeyShape{In: job.KeyInBody, Name: "head.id"}, "form", "a=1", "head[id]=job%2F1&amount=5", ""},
		"query":         {job.KeyShape{In: job.KeyInQuery, Name: "key"}, "", "a=1&key=job%2F1", `{"amount":5}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var query, body, header string
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				query, body, header = r.URL.RawQuery, string(text), r.Header.Get("X-Key")
			}))
			t.Cleanup(srv.Close)
			c, err := New(Config{URL: srv.URL + "/pay?a=1", Key: tc.key, Encoding: tc.encoding})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			for range 2 { // the url is everybody's
				res := c.Send(t.Context(), job.Request{Job: job.Job{ID: "job/1", Payload: json.RawMessage(`{"amount":5}`)}, Key: "job/1"})
				if res.Status != http.StatusOK || query != tc.query || body != tc.body || header != tc.header {
					t.Errorf("%d %v: query %q, body %s, header %q", res.Status, res.Err, query, body, header)
				}
			}
		})
	}
	if _, err := New(Config{URL: "https://a.example", Method: "GET", Key: job.KeyShape{In: job.KeyInBody, Name: "k"}}); err == nil {
		t.Error("a GET has no body")
	}
	if _, err := New(Config{URL: "https://a.example/?k=fixed", Key: job.KeyShape{In: job.KeyInQuery, Name: "k"}}); err == nil || !strings.Contains(err.Error(), "has a parameter k already") {
		t.Errorf("a parameter of the key's name: %v", err)
	}
}

// Two calls of one job are made of the same things only where their keys look the same. The digest of a key in a header is what it was.
func TestTheDigestTellsKeysApart(t *testing.T) {
	t.Parallel()
	seen := map[string]job.KeyShape{}
	for _, k := range []job.KeyShape{{}, {Name: "K"}, {Name: "K", Prefix: "p"}, {Name: "K", Form: job.KeyUUID}, {Name: "K", Form: job.KeyHash}, {In: job.KeyInBody, Name: "K"}, {In: job.KeyInQuery, Name: "K"}} {
		d := Config{URL: "https://a.example", Key: k}.Digest()
		if other, same := seen[d]; same {
			t.Errorf("%+v and %+v are the same", k, other)
		}
		seen[d] = k
	}
	base := Config{URL: "https://a.example", Key: job.KeyShape{Name: "k"}}.Digest()
	if spelt := (Config{URL: "https://a.example", Key: job.KeyShape{In: job.KeyInHeader, Name: "K", Form: job.KeyID, Max: 9}}).Digest(); spelt != base {
		t.Error("the defaults written out make other calls")
	}
	if want := job.SentDigest("POST https://a.example", "json", "K: ", ""); base != want {
		t.Errorf("%s, want %s as in the versions before", base, want)
	}
}
