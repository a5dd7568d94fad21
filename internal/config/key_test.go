package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// two returns a file with two gateways, a and b, whose requests are given.
func two(a, b string) string {
	const one = "  %s:\n    request: {%s}\n    leak: {limits: [1/s]}\n"
	return "gateways:\n" + fmt.Sprintf(one, "a", a) + fmt.Sprintf(one, "b", b)
}

// faultsOf returns what is wrong with a text, one line a fault.
func faultsOf(t *testing.T, text string, opt Options) []string {
	t.Helper()
	if opt.Env == nil {
		opt.Env = testEnv
	}
	_, err := Parse("f", []byte(text), opt)
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatal(err)
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = f.Error()
	}
	return lines
}

// Two gateways with one provider share its memory of keys: a job of one could be answered with the charge of the other's.
func TestTwoGatewaysOfOneProviderHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	const url = `url: "https://pay.example/v1/charges"`
	for name, c := range map[string]struct {
		a, b string
		ok   bool
	}{
		"nothing written":                  {url, url, false},
		"other paths of one server":        {url, `url: "https://pay.example/v2/refunds"`, false},
		"the port spelled out":             {url, `url: "https://pay.example:443/x"`, false},
		"http's port spelled out":          {`url: "http://pay.example/x"`, `url: "http://pay.example:80/x"`, false},
		"the host in capitals":             {url, `url: "https://PAY.example/x"`, false},
		"the host with a dot at its end":   {url, `url: "https://pay.example./x"`, false},
		"the header in capitals":           {url + `, idempotency_header: Cko-Key`, url + `, idempotency_header: CKO-KEY`, false},
		"the same prefix":                  {url + `, idempotency_prefix: eu-`, url + `, idempotency_prefix: eu-`, false},
		"a prefix that begins the other":   {url + `, idempotency_prefix: eu-`, url + `, idempotency_prefix: eu-2-`, false},
		"... written the other way round":  {url + `, idempotency_prefix: eu-2-`, url + `, key: {prefix: eu-}`, false},
		"different prefixes":               {url + `, idempotency_prefix: eu-`, url + `, key: {prefix: us-}`, true},
		"a prefix for one":                 {url, url + `, idempotency_prefix: us-`, true},
		"none, and said so for the first":  {url + `, idempotency_prefix: ""`, url, true},
		"none, and said so for the second": {url, url + `, key: {prefix: ""}`, true},
		"none, and said so for both":       {url + `, idempotency_prefix: ""`, url + `, idempotency_prefix: ""`, true},
		"the same prefix, and no other":    {url + `, idempotency_prefix: "eu-"`, `url: "https://other.example/", idempotency_prefix: eu-`, true},
		"another host":                     {url, `url: "https://pay2.example/v1/charges"`, true},
		"another port":                     {url, `url: "https://pay.example:8443/v1/charges"`, true},
		"another scheme":                   {url, `url: "http://pay.example/v1/charges"`, true},
		"another header":                   {url, url + `, idempotency_header: Other-Key`, true},
		"a gateway without keys":           {url, url + `, idempotency_header: ""`, true},
		"neither has keys":                 {url + `, idempotency_header: ""`, url + `, idempotency_header: ""`, true},
	} {
		got := faultsOf(t, two(c.a, c.b), Options{Secrets: true})
		if c.ok && len(got) > 0 || !c.ok && (len(got) != 1 || !strings.HasPrefix(got[0], "f:6:") || !strings.Contains(got[0], ": gateways.b.request.") ||
			!strings.Contains(got[0], `gateway "a" (line 2)`) || !strings.Contains(got[0], "https://pay.example") && !strings.Contains(got[0], "http://pay.example")) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Commands that need no secrets know a url only as the file has it. What they don't know can't be compared.
func TestServersAreComparedAsFarAsTheyAreKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b            string
		without, secret int // faults without the variables' values, and with them
	}{
		"an unset host":   {`url: "https://${A}/x"`, `url: "https://${B}/x"`, 0, 1},
		"other hosts":     {`url: "https://${A}/x"`, `url: "https://${C}/x"`, 0, 0},
		"only the path":   {`url: "https://pay.example/${A}"`, `url: "https://pay.example/${B}"`, 1, 1},
		"half of a host":  {`url: "https://${A}.pay.example/x"`, `url: "https://${B}.pay.example/x"`, 0, 1},
		"the whole url":   {`url: "${URL}"`, `url: "${URL}"`, 0, 1},
		"a variable port": {`url: "https://pay.example:${PORT}/x"`, `url: "https://pay.example:${PORT}/x"`, 0, 1},
	} {
		none := func(string) (string, bool) { return "", false }
		all := func(v string) (string, bool) {
			return map[string]string{"A": "eu", "B": "eu", "C": "us", "URL": "https://pay.example/x", "PORT": "8443"}[v], true
		}
		if got := faultsOf(t, two(c.a, c.b), Options{Env: none}); len(got) != c.without {
			t.Errorf("%s, without the variables: %v", name, got)
		}
		if got := faultsOf(t, two(c.a, c.b), Options{Secrets: true, Env: all}); len(got) != c.secret {
			t.Errorf("%s, with them: %v", name, got)
		}
	}
}

func TestPrefixesOfKeys(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    leak: {limits: [1/s]}\n    request: {url: https://pay.example/x, "
	for name, c := range map[string]struct{ text, want string }{
		"a space":        {`idempotency_prefix: "a b"`, `gateways.g.request.idempotency_prefix: "a b" can't stand before a key`},
		"not ASCII":      {`key: {prefix: "é-"}`, `gateways.g.request.key.prefix: "é-" can't stand before a key`},
		"too long":       {`idempotency_prefix: ` + strings.Repeat("p", 41), `is longer than 40 characters`},
		"written twice":  {`idempotency_prefix: a-, key: {prefix: b-}`, `is the short form of key.prefix: keep one of them`},
		"without a key":  {`idempotency_prefix: a-, idempotency_header: ""`, `without an idempotency header`},
		"unset variable": {`idempotency_prefix: "${NONE}"`, `${NONE}`},
		"an unknown key": {`key: {prefx: a-}`, `did you mean prefix?`},
	} {
		if got := faultsOf(t, head+c.text+"}\n", Options{}); len(got) != 1 || !strings.Contains(got[0], c.want) || !strings.HasPrefix(got[0], "f:4:") {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	for text, want := range map[string]string{"": "", `, idempotency_prefix: ""`: "", ", idempotency_prefix: acme/eu-": "acme/eu-", ", key: {prefix: 7_}": "7_",
		", idempotency_prefix: " + strings.Repeat("p", 40): strings.Repeat("p", 40)} {
		if q := parse(t, strings.TrimSuffix(head, ", ")+text+"}\n").Gateways[0].Request; q.Key.Prefix != want {
			t.Errorf("%s: prefix %q, want %q", text, q.Key.Prefix, want)
		}
	}
}

// A key may be used for a shorter time than the gateway remembers it: when a call begins just before that time is over, the gateway must know the key until the call ends.
func TestAKeyLivesUntilItsLastCallsEnd(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    leak: {limits: [1/s]}\n    request: {url: https://pay.example/x, "
	for text, want := range map[string]time.Duration{
		"method: POST":                                5*time.Minute - 35*time.Second,
		"key_lifetime: 24h":                           24*time.Hour - 35*time.Second,
		"key_lifetime: 24h, timeout: 80s":             24*time.Hour - 85*time.Second,
		"timeout: 4m54s":                              time.Second,
		"key_lifetime: 36s":                           time.Second,
		`idempotency_header: "", key_lifetime: 1s`:    0,
		`idempotency_header: "", timeout: 10m`:        0,
		`key_lifetime: 6s, timeout: 999ms`:            time.Millisecond,
		`key_lifetime: 300s, timeout: 4m54s999ms`:     time.Millisecond,
		`key_lifetime: 36s, timeout: "${NOBODY_HAS}"`: time.Second, // run knows it, and judges
		`key_lifetime: 30s, timeout: "${NOBODY_HAS}"`: 0,
	} {
		c, err := Parse("f", []byte(head+text+"}\n"), Options{Env: testEnv})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.Gateways[0].Request.KeyCovers(); got != want {
			t.Errorf("%s: a key covers another call for %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"key_lifetime: 20s":                `request.key_lifetime: a key that lives for 20s `,
		"key_lifetime: 35s":                `a call may take 30s (the default)`,
		"timeout: 5m":                      `request.timeout: a key that lives for 5m (the default) `,
		"timeout: 4m55s":                   `write the gateway's own key_lifetime, or a timeout below `,
		"key_lifetime: 60s, timeout: 120s": `request.key_lifetime: a key that lives for 1m `,
	} {
		if got := faultsOf(t, head+text+"}\n", Options{}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

func TestWhatDoneNeeds(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    request: {url: https://pay.example/x}\n    leak: {limits: [1/s]}\n    answers: "
	a := parse(t, head+"{profile: stripe, done_needs: {resultCode: [Authorised, 7], paid: true, error: null}, rules: [{status: 409, then: unknown}]}\n").Gateways[0].Answers
	want := map[string][]string{"resultCode": {"Authorised", "7"}, "paid": {"true"}, "error": {"null"}}
	if !reflect.DeepEqual(a.DoneNeeds, want) || a.Profile != "stripe" || len(a.Rules) != 1 {
		t.Errorf("got %+v", a)
	}
	for text, want := range map[string]string{
		"{done_needs: {}}":             "answers.done_needs: this is empty, so it asks for nothing",
		"{done_needs: Authorised}":     "answers.done_needs: this is not a mapping",
		"{done_needs: {a..b: x}}":      "is not a field",
		"{done_needs: {a: []}}":        "answers.done_needs.a: the list is empty",
		"{done_needs: {a: [[x]]}}":     "answers.done_needs.a[0]: this is not a single value",
		"{done_needs: {a: {b: x}}}":    "answers.done_needs.a: this is not a single value",
		"{done_needs: {a: }}":          "answers.done_needs.a: ",
		"{profile: default, needs: x}": "use one of profile, rules, done_needs",
	} {
		if got := faultsOf(t, head+text+"\n", Options{}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
	if a := parse(t, minimal).Gateways[0].Answers; a.DoneNeeds != nil || slices.Contains([]string{"stripe"}, a.Profile) {
		t.Errorf("by default: %+v", a)
	}
}

func TestWhatAnAnswerMatches(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  g:\n    request: {url: https://pay.example/x}\n    leak: {limits: [1/s]}\n    answers: "
	a := parse(t, head+"{matches: {data.ref: order.ref, meta.job: \"{id}\"}}\n").Gateways[0].Answers
	if want := map[string]string{"data.ref": "order.ref", "meta.job": "{id}"}; !reflect.DeepEqual(a.Matches, want) {
		t.Errorf("got %v", a.Matches)
	}
	for text, want := range map[string]string{
		"{matches: {}}":             "answers.matches: this is empty, so it compares nothing",
		"{matches: ref}":            "answers.matches: this is not a mapping",
		"{matches: {a..b: ref}}":    `answers.matches["a..b"]: "a..b" is not a field`,
		"{matches: {a: \"{key}\"}}": `f:5:28: gateways.g.answers.matches.a: "{key}" is not a field of the payload`,
		"{matches: {a: [b]}}":       "answers.matches.a: this is not a single value",
	} {
		if got := faultsOf(t, head+text+"\n", Options{}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}
