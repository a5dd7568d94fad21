package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestStripKeepsAllElse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ object, fields, want string }{
		{`{"a":1,"b":2,"c":3}`, "a", `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "b", `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, "c", `{"a":1,"b":2}`},
		{`{"a":1,"b":2,"c":3}`, "a b c", `{}`},
		{` { "a" : 1.50 , "b":2 ,"c":"\u0061" } `, "b", ` { "a" : 1.50 ,"c":"\u0061" } `},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", "b", "{\n  \"a\": 1}"},
		{`{ "a":1 }`, "a", `{}`},
		{`{ "a":1e5,"b":[ 1,2 ]}`, "x", `{ "a":1e5,"b":[ 1,2 ]}`},
		{`{"r":{"to" : "x", "n":1}, "z":0}`, "r.to", `{"r":{ "n":1}, "z":0}`},
		{`{"r":{"to":"x"},"z":0}`, "r.to", `{"r":{},"z":0}`},
		{`{"r":{"to":"x"},"to":0,"z":{"r":{"to":1}}}`, "r.to", `{"r":{},"to":0,"z":{"r":{"to":1}}}`},
		{`{"r":{"a":{"b":{"c":1,"d":2}}}}`, "r.a.b.c", `{"r":{"a":{"b":{"d":2}}}}`},
		{`{"r":"x","z":0}`, "r.to", `{"r":"x","z":0}`},
		{`{"r":[{"to":1}],"z":null}`, "r.to r.0 z.a", `{"r":[{"to":1}],"z":null}`},
		{`{"a":1,"a":2,"\u0061":3,"b":"}, {"}`, "a", `{"b":"}, {"}`},
		{`{"r":{"to":1,"n":2}}`, "r r.to", `{}`},
		{`{}`, "a", `{}`},
		{`[{"a":1}]`, "a", `[{"a":1}]`},
		{`"a"`, "a", `"a"`},
	} {
		got, err := Strip(json.RawMessage(tc.object), strings.Fields(tc.fields))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s without %s: %s, %v; want %s", tc.object, tc.fields, got, err, tc.want)
		}
	}
	for _, bad := range []string{`{"a":1`, `{"a"`, `{"a":1 x}`, `{"b":{"a":}}`} {
		if got, err := Strip(json.RawMessage(bad), []string{"a"}); job.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%s: %s, %v", bad, got, err)
		}
	}
}

// Any object without a field is the same as if it had been taken out of what was decoded, and the other members are the bytes they were.
func FuzzStrip(f *testing.F) {
	f.Add(`{"a":1, "r":{"to":[1,{"a":2}],"n":"\u00e4"} ,"z":"}"}`)
	f.Add(`{"r":{"to":1},"r":{"to":2,"n":[]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var doc map[string]any
		if json.Unmarshal([]byte(text), &doc) != nil || doc == nil {
			return
		}
		got, err := Strip(json.RawMessage(text), []string{"a", "r.to"})
		if err != nil {
			t.Fatal(err)
		}
		var now map[string]any
		if err := json.Unmarshal(got, &now); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		delete(doc, "a")
		if r, ok := doc["r"].(map[string]any); ok {
			delete(r, "to")
		}
		if !reflect.DeepEqual(now, doc) {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// The url and headers have what the body is without, and what is signed is what is sent.
func TestFieldsThatAreLeftOutOfTheBody(t *testing.T) {
	t.Parallel()
	var body, path string
	var head http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, path, head = string(text), r.URL.Path, r.Header
	}))
	t.Cleanup(srv.Close)
	for encoding, want := range map[string]string{
		"json": `{"key":"k-1", "amount" : 1.50, "to":{ "n":1} }`,
		"form": "key=k-1&amount=1.50&to[n]=1",
	} {
		c := client(t, Config{URL: srv.URL + "/{payload.region}", Encoding: encoding, Strip: []string{"to.account", "region", "none"}, JobHeaders: accountHeader(),
			Key: job.KeyShape{In: job.KeyInBody, Name: "key"}, Sign: Sign{Header: "X-Sign", Secret: []byte("s"), Content: "{body}"}})
		payload := `{"region":"eu", "amount" : 1.50, "to":{"account" : "acct_1", "n":1} }`
		res := c.Send(context.Background(), job.Request{Job: job.Job{ID: "j-1", Payload: json.RawMessage(payload)}, Key: "k-1"})
		mac := hmac.New(sha256.New, []byte("s"))
		io.WriteString(mac, body)
		if res.Status != http.StatusOK || body != want || path != "/eu" || head.Get("Stripe-Account") != "acct_1" || head.Get("X-Sign") != hex.EncodeToString(mac.Sum(nil)) {
			t.Errorf("%s: %+v, body %s, want %s; path %s, %v", encoding, res, body, want, path, head)
		}
	}
}
