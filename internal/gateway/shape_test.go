package gateway

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"spillway/internal/job"
)

func TestForms(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{}`:                          "",
		`{"a":"b c","z":1,"m":"ü&="}`: "a=b+c&z=1&m=%C3%BC%26%3D",
		`{"amount":1.10,"big":12345678901234567890,"e":1e+5}`:              "amount=1.10&big=12345678901234567890&e=1e%2B5",
		`{"card":{"number":"42","exp":{"month":1}},"t":true,"f":false}`:    "card[number]=42&card[exp][month]=1&t=true&f=false",
		`{"items":[{"id":"x"},null,"y"],"none":null,"empty":{},"list":[]}`: "items[0][id]=x&items[2]=y",
		`{"a":[[1,2],[3]]}`:            "a[0][0]=1&a[0][1]=2&a[1][0]=3",
		`{"we[ird":{"k]y":"v"}}`:       "we%5Bird[k%5Dy]=v",
		`{"a":1,"a":2,"text":"null"}`:  "a=1&a=2&text=null",
		`{"line":"a\nb","quote":"\""}`: "line=a%0Ab&quote=%22",
	} {
		got, err := encodeForm(json.RawMessage(payload))
		if err != nil || string(got) != want {
			t.Errorf("%s:\n%s %v, want\n%s", payload, got, err, want)
		}
	}
}

func TestPayloadsThatAreNoForm(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 1<<19)
	for name, payload := range map[string]string{
		"a list": "[1]", "a text": `"x"`, "cut off": `{"a":`, "cut off in a list": `{"a":[1,`, "not JSON": `{"a":1,}`, "nothing": "",
		"too deep":              strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101),
		"names without an end":  `{"` + long + `":[` + strings.Repeat("1,", 100) + `1]}`,
		"nulls with long names": `{"` + long + `":[` + strings.Repeat("null,", 100) + `1]}`,
	} {
		out, err := encodeForm(json.RawMessage(payload))
		if err == nil || job.CodeOf(err) != job.CodeInvalid || len(err.Error()) > 200 {
			t.Errorf("%s: %.50s %v", name, out, err)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(`{"a":{"b":[1,null,true,"x"]}}`)
	f.Add(`{"":"","[":{"]":1}}`)
	f.Fuzz(func(t *testing.T, payload string) {
		out, err := encodeForm(json.RawMessage(payload))
		if err != nil {
			return
		}
		if _, err := url.ParseQuery(string(out)); err != nil {
			t.Errorf("%q becomes %q: %v", payload, out, err)
		}
	})
}

func TestURLs(t *testing.T) {
	t.Parallel()
	payload := `{"customer":{"id":"a/b?c#d%e f","n":1.0,"ok":true,"none":null,"empty":"","up":".."},"x":"1&y=2"}`
	for _, c := range []struct{ template, want, err string }{
		{"https://api.test", "https://api.test", ""},
		{"https://api.test/v1?a=b%20c", "https://api.test/v1?a=b%20c", ""},
		{"https://api.test/{id}/capture", "https://api.test/inv%2F7+&/capture", ""},
		{"https://api.test/v1/{payload.customer.id}", "https://api.test/v1/a%2Fb%3Fc%23d%25e%20f", ""},
		{"https://api.test/v1?c={payload.customer.id}&i={id}", "https://api.test/v1?c=a%2Fb%3Fc%23d%25e+f&i=inv%2F7%2B%26", ""},
		{"https://api.test/{payload.customer.n}/{payload.customer.ok}?e={payload.customer.empty}", "https://api.test/1.0/true?e=", ""},
		{"https://api.test/?x={payload.x}", "https://api.test/?x=1%26y%3D2", ""},
		{"https://api.test/{payload.customer}", "", "no text, number or boolean"},
		{"https://api.test/{payload.customer.none}", "", "no text, number or boolean"},
		{"https://api.test/{payload.nothing.there}", "", "no text, number or boolean"},
		{"https://api.test/{payload.customer.empty}/x", "", "can't be empty"},
		{"https://api.test/{payload.customer.up}/x", "", "can't be empty, . or .."},
	} {
		tmpl, err := parseTemplate(c.template, parsePlace)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		u, err := tmpl.render(&values{job: job.Job{ID: "inv/7+&"}, payload: json.RawMessage(payload)})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || job.CodeOf(err) != job.CodeInvalid):
			t.Errorf("%s: %v, want %q", c.template, err, c.err)
		case c.err == "" && (err != nil || u.String() != c.want):
			t.Errorf("%s: %v %v, want %s", c.template, u, err, c.want)
		}
	}
}

func TestConfigurationsThatCantBe(t *testing.T) {
	t.Parallel()
	good := "https://api.test/v1"
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "url: it must be a whole one"},
		{Config{URL: "api.test/v1"}, "url: it must be a whole one"},
		{Config{URL: "ftp://api.test/v1"}, "url: it must be a whole one"},
		{Config{URL: "https://api.test/%zz?k=" + canary}, "url: it can't be read"},
		{Config{URL: "https://u:" + canary + "@api.test/"}, "url: it holds a user or password"},
		{Config{URL: "https://api.test/#" + canary}, "url: it holds a #"},
		{Config{URL: "https://{payload.host}/v1"}, "url: its host must be fixed"},
		{Config{URL: "https://api.test{id}/v1"}, "url: its host must be fixed"},
		{Config{URL: "{payload.url}"}, "url: "},
		{Config{URL: good + "/{invoice}"}, "url: {invoice} is unknown"},
		{Config{URL: good + "/{payload.}"}, "url: {payload.} is unknown"},
		{Config{URL: good + "/{id"}, "url: a { has no }"},
		{Config{URL: good + "/id}"}, "url: a } has no {"},
		{Config{URL: good, Method: "post"}, "method: \"post\" can't be used"},
		{Config{URL: good, Encoding: "xml"}, "encoding: \"xml\" is unknown"},
		{Config{URL: good, Key: job.KeyShape{Name: "Idempotency Key"}}, "key.name"},
		{Config{URL: good, Headers: map[string]string{"Content-length": canary}}, "headers: Content-Length is set by the call itself"},
		{Config{URL: good, Headers: map[string]string{"X-A": canary + "\r\nX-B: c"}}, "headers: the value of X-A holds a line break"},
		{Config{URL: good, Headers: map[string]string{"X A": canary}}, "headers: \"X A\" is not a header's name"},
		{Config{URL: good, Key: job.KeyShape{Name: "idempotency-key"}, Headers: map[string]string{"Idempotency-Key": canary}}, "headers: Idempotency-Key carries the idempotency key"},
	} {
		_, err := New(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}
