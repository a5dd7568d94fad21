package config

import (
	"reflect"
	"strings"
	"testing"
)

func headerFile(value string) string {
	return "gateways:\n  g:\n    leak: {limits: [1/s]}\n    request:\n      url: https://pay.example/{id}\n      headers: {X-H: '" + value + "', X-Same: a}\n"
}

// A value is parsed as it is in the file: braces in the value of a variable are not a placeholder.
func TestHeadersFromTheJob(t *testing.T) {
	t.Parallel()
	braces := func(string) (string, bool) { return "x{id}y", true }
	for value, want := range map[string][]HeaderPart{
		"{id}":                                {{Place: "id"}},
		"{payload.account}":                   {{Place: "payload.account"}},
		"acct {payload.a.b}!":                 {{Text: "acct "}, {Place: "payload.a.b"}, {Text: "!"}},
		"Bearer ${KEY}{id}":                   {{Text: "Bearer "}, {Variable: "x{id}y"}, {Place: "id"}},
		"$${id}":                              {{Text: "$"}, {Place: "id"}},
		`{name} {"id":{payload.n}} {payload}`: {{Text: `g {"id":`}, {Place: "payload.n"}, {Text: "} {payload}"}},
	} {
		c, err := Parse("f", []byte(headerFile(value)), Options{Secrets: true, Env: braces})
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if q := c.Gateways[0].Request; !reflect.DeepEqual(q.JobHeaders, map[string][]HeaderPart{"X-H": want}) || len(q.Headers) != 1 || q.Headers["X-Same"] != "a" {
			t.Errorf("%s: %#v, want %#v; and %#v", value, q.JobHeaders["X-H"], want, q.Headers)
		}
	}
	for _, value := range []string{"{}", `{"id":1}`, "{ids}", "payload.x", "{tenant}", "${id}"} {
		c, err := Parse("f", []byte(headerFile(value)), Options{Secrets: true, Env: braces})
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if q := c.Gateways[0].Request; q.JobHeaders != nil || len(q.Headers) != 2 {
			t.Errorf("%s: %#v, %#v", value, q.JobHeaders, q.Headers)
		}
	}
}

func TestHeadersFromTheJobThatCantBe(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"{payload.}":          "X-H: has the placeholder {payload.}, which names no field",
		"{payload.a..b}":      "X-H: has the placeholder {payload.a..b}, which names no field",
		"${NOT_SET} {id}":     "X-H: ${NOT_SET} is not set",
		"${CANARY_LINE} {id}": "has a line end in it",
		"{id} $":              "has a $ that begins no variable",
	} {
		got := faultsOf(t, headerFile(value), Options{Secrets: true})
		if len(got) != 1 || !strings.HasPrefix(got[0], "f:6:22: gateways.g.request.headers.X-H: ") || !strings.Contains(got[0], want) || strings.Contains(got[0], canary) {
			t.Errorf("%s: %v", value, got)
		}
	}
	if got := faultsOf(t, headerFile("${NOT_SET} {id}"), Options{}); len(got) > 0 {
		t.Errorf("a command that makes no calls needs no secrets: %v", got)
	}
	for line, want := range map[string]string{
		"headers: {Idempotency-Key: '{id}'}":                                                                  "this is the idempotency header",
		"headers: {Host: '{payload.host}'}":                                                                   `"Host" is a header that HTTP fills in by itself`,
		"headers: {X-S: '{id}'}\n      sign: {header: x-s, secret: a, content: '{body}'}":                     "x-s is among headers too",
		"headers: {X-A: '{payload.account}'}\n    map: {amount: {from: Betrag}}\n    amount: {field: amount}": "the header takes the payload's field \"account\", and the map does not make it",
	} {
		if got := faultsOf(t, withRequest(line), Options{}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
}
