package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
)

// asking reads a gateway with these keys of lookup.
func asking(t *testing.T, request, lookup string) (*Config, error) {
	t.Helper()
	return Parse("x.yaml", []byte("gateways:\n  shop:\n    request: {"+request+"}\n    leak: {limits: [5/s]}\n    lookup: "+lookup+"\n"), Options{})
}

const (
	payURL = `url: "https://pay.example:8443/v1/pay?x=1"`
	found  = `matches: {reference: "{id}"}, answers: [{body: {status: paid}, then: done}]`
)

func TestALookupIsReadWithItsDefaults(t *testing.T) {
	t.Parallel()
	c, err := asking(t, payURL, `{url: "/v1/payments?reference={id}", `+found+`}`)
	if err != nil {
		t.Fatal(err)
	}
	l := c.Gateways[0].Lookup
	if l.Share != 10 || l.Limits != nil || l.For(true) != l.For(false) {
		t.Errorf("%+v", l)
	}
	want := &Query{URL: "https://pay.example:8443/v1/payments?reference={id}", URLText: "/v1/payments?reference={id}", Method: "GET",
		Schedule: []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour, 24 * time.Hour},
		Matches:  map[string]string{"reference": job.OwnID}, Answers: []job.LookRule{{Body: map[string]string{"status": "paid"}, Then: "done"}}}
	if !reflect.DeepEqual(l.Doubted, want) {
		t.Errorf("%+v\nwant %+v", l.Doubted, want)
	}
	if n := l.Doubted.Pages(); n != 1 {
		t.Error(n)
	}
	if n := (&Query{Scan: &job.Scan{Pages: usualPages}}).Pages(); n != 1 {
		t.Errorf("a list that says nothing of a next page has %d", n)
	}
	var none *Lookup
	if none.For(true) != nil || none.For(false) != nil {
		t.Error("no look-up has one")
	}
}

func TestEveryKeyOfALookupIsRead(t *testing.T) {
	t.Parallel()
	c, err := asking(t, payURL+", idempotency_header: K", `
      url: https://look.example/{key}/{reference}?since={first_call}&a={payload.order.id}
      method: POST
      body: '{"q": "{id}"}'
      schedule: [1s, 1m]
      share: 25%
      limits: [10/s, 100/m]
      scan: {items: data, match: {metadata.job: "{id}", k: "{key}", r: "{reference}", o: order.id}, next: cursor, parameter: after, until: created, pages: 3}
      matches: {amount: amount}
      answers:
        - {status: [404, 410], body: {code: [a, b]}, then: not_done, after: 1m}
        - {absent: true, then: not_done, after: 0s}
        - {header: {X-Now: "yes"}, then: refused, reference: ref}`)
	if err != nil {
		t.Fatal(err)
	}
	l := c.Gateways[0].Lookup
	want := &Query{URL: "https://look.example/{key}/{reference}?since={first_call}&a={payload.order.id}", URLText: "https://look.example/{key}/{reference}?since={first_call}&a={payload.order.id}",
		Method: "POST", Body: `{"q": "{id}"}`, Schedule: []time.Duration{time.Second, time.Minute}, OneKey: true,
		Scan:    &job.Scan{Items: "data", Match: map[string]string{"metadata.job": "{id}", "k": "{key}", "r": "{reference}", "o": "order.id"}, Next: "cursor", Parameter: "after", Until: "created", Pages: 3},
		Matches: map[string]string{"amount": "amount"}, Answers: []job.LookRule{
			{Status: 404, Body: map[string]string{"code": "a"}, Then: "not_done", After: time.Minute}, {Status: 404, Body: map[string]string{"code": "b"}, Then: "not_done", After: time.Minute},
			{Status: 410, Body: map[string]string{"code": "a"}, Then: "not_done", After: time.Minute}, {Status: 410, Body: map[string]string{"code": "b"}, Then: "not_done", After: time.Minute},
			{Absent: true, Then: "not_done"}, {Header: map[string]string{"X-Now": "yes"}, Then: "refused", Reference: "ref"}}}
	if !reflect.DeepEqual(l.Doubted, want) {
		t.Errorf("%+v\nwant %+v", l.Doubted, want)
	}
	if l.Share != 25 || len(l.Limits) != 2 || l.Doubted.Pages() != 3 {
		t.Errorf("%+v", l)
	}
}

func TestHowAcceptedJobsAreAskedFor(t *testing.T) {
	t.Parallel()
	rule := func(status string) []job.LookRule {
		return []job.LookRule{{Body: map[string]string{"status": status}, Then: "done"}}
	}
	for name, tc := range map[string]struct {
		lookup string
		check  func(l *Lookup) bool
	}{
		"what is not written is as for the others": {`{url: "/p?r={id}", ` + found + `, accepted: {schedule: [1h]}}`, func(l *Lookup) bool {
			return l.Accepted.URL == l.Doubted.URL && reflect.DeepEqual(l.Accepted.Schedule, []time.Duration{time.Hour}) && len(l.Doubted.Schedule) == 6 && reflect.DeepEqual(l.Accepted.Answers, rule("paid"))
		}},
		"a url of its own goes without the list": {`{url: "/p", scan: {items: data, match: {r: "{id}"}}, answers: [{absent: true, then: later}, {body: {status: paid}, then: done}], ` +
			`accepted: {url: "/p/{reference}", matches: {id: "{reference}"}}}`, func(l *Lookup) bool {
			return l.Accepted.Scan == nil && l.Doubted.Scan != nil && reflect.DeepEqual(l.Accepted.Answers, rule("paid")) && l.Accepted.OneKey && !l.Doubted.OneKey
		}},
		"accepted jobs alone": {`{accepted: {url: "/p/{reference}", ` + found + `}}`, func(l *Lookup) bool {
			return l.Doubted == nil && l.Accepted.URL == "https://pay.example:8443/p/{reference}" && len(l.Accepted.Schedule) == 6
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := asking(t, payURL, tc.lookup)
			if err != nil {
				t.Fatal(err)
			}
			if l := c.Gateways[0].Lookup; !tc.check(l) {
				t.Errorf("%+v and %+v", l.Doubted, l.Accepted)
			}
		})
	}
}

func TestTheURLOfALookup(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"/v1/{id}":                    "https://pay.example:8443/v1/{id}",
		"?reference={id}":             "https://pay.example:8443/v1/pay?reference={id}",
		"./{reference}":               "https://pay.example:8443/v1/pay/{reference}",
		"..":                          "https://pay.example:8443/v1",
		"../payments/{id}":            "https://pay.example:8443/v1/payments/{id}",
		"../../v2/{id}":               "https://pay.example:8443/v2/{id}",
		"../../../../responses/{key}": "https://pay.example:8443/responses/{key}",
		"..?a={id}":                   "https://pay.example:8443/v1?a={id}",
		"https://other.example/{id}":  "https://other.example/{id}",
	} {
		c, err := asking(t, payURL, `{url: "`+url+`", `+found+`}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Gateways[0].Lookup.Doubted.URL.Reveal(); got != want {
			t.Errorf("%s is %s, want %s", url, got, want)
		}
	}
}

// A request whose URL is unknown, as in commands without secrets, does not make a look-up count as one of another server.
func TestALookupBehindAnUnknownServerHasNoURL(t *testing.T) {
	t.Parallel()
	text := "gateways: {a: {request: {url: \"${NO_SUCH}\"}, leak: {limits: [1/s]}, lookup: {url: \"/p?r={id}\", " + found + "}}}"
	c, err := Parse("x.yaml", []byte(text), Options{Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	if q := c.Gateways[0].Lookup.Doubted; q.URL != "" || q.URLText == "" {
		t.Errorf("%q", q.URL.Reveal())
	}
}

func TestAnUnusableLookupIsNamedWhereItStands(t *testing.T) {
	t.Parallel()
	const at = "x.yaml:5:"
	for lookup, want := range map[string]string{
		`on`:                                    `13: gateways.shop.lookup: "on" is not a look-up: write off, or its keys, like {url: /v1/payments/{reference}, answers: […]}`,
		`{` + found + `}`:                       `5: gateways.shop.lookup.url: is missing: write where the gateway is asked, like https://api.example.com/v1/payments?reference={id}`,
		`{url: "payments/{id}", ` + found + `}`: `19: gateways.shop.lookup.url: "payments/{id}" is not a URL: write one like https://api.example.com/v1/payments?reference={id}, or /v1/payments?reference={id} for the request's server`,
		`{url: "//evil.example/{id}", ` + found + `}`:                                                                   `19: gateways.shop.lookup.url: "//evil.example/{id}" is not a URL: write one like https://api.example.com/v1/payments?reference={id}, or /v1/payments?reference={id} for the request's server`,
		`{url: "http://pay.example/{id}", ` + found + `}`:                                                               `19: gateways.shop.lookup.url: the look-up carries the headers of the request, whose url is https: write https here too`,
		`{url: "/{what}", ` + found + `}`:                                                                               `19: gateways.shop.lookup.url: "/{what}" has an unknown placeholder: {id}, {lane}, {key}, {reference}, {first_call} and {payload.FIELD} are all there is`,
		`{url: "/{id}", method: PUT, ` + found + `}`:                                                                    `36: gateways.shop.lookup.method: "PUT" is not a method of look-ups: use one of GET, POST`,
		`{url: "/{id}", body: '{}', ` + found + `}`:                                                                     `34: gateways.shop.lookup.body: a GET has no body: write method: POST, or take body out`,
		`{url: "/{id}", method: POST, body: 'x', ` + found + `}`:                                                        `48: gateways.shop.lookup.body: "x" is not a JSON object: write one, with places in its texts alone, like '{"reference": "{id}"}'`,
		`{url: "/{id}", method: POST, body: '{"n": {id}}', ` + found + `}`:                                              `48: gateways.shop.lookup.body: "{\"n\": {id}}" is not a JSON object: write one, with places in its texts alone, like '{"reference": "{id}"}'`,
		`{url: "/{id}", schedule: [], ` + found + `}`:                                                                   `28: gateways.shop.lookup.schedule: the list is empty: write at least one time, like [5s, 1m, 10m, 1h]`,
		`{url: "/{id}", schedule: [5s, 1ms], ` + found + `}`:                                                            `43: gateways.shop.lookup.schedule[1]: "1ms" is too short: give at least 100ms`,
		`{url: "/{id}", schedule: [91d], ` + found + `}`:                                                                `39: gateways.shop.lookup.schedule[0]: "91d" is too long: give at most 90d`,
		`{url: "/{id}", share: 0%, ` + found + `}`:                                                                      `35: gateways.shop.lookup.share: "0%" is not a share: write whole percent, from 1% to 100%`,
		`{url: "/{id}", share: 101%, ` + found + `}`:                                                                    `35: gateways.shop.lookup.share: "101%" is not a share: write whole percent, from 1% to 100%`,
		`{url: "/{id}", limits: [x], ` + found + `}`:                                                                    `37: gateways.shop.lookup.limits[0]: "x" is not a limit: write N/unit with unit s, m, h, d or a duration, like 100/s or 300/10s`,
		`{url: "/{id}", answers: [{body: {s: paid}, then: done}]}`:                                                      `5: gateways.shop.lookup.matches: is missing: say by what an answer is known to be about the job's payment, like {reference: "{id}"}`,
		`{url: "/{id}", matches: {r: "{id}"}}`:                                                                          `5: gateways.shop.lookup.answers: is missing: say what the gateway's answers mean, like [{body: {status: paid}, then: done}]`,
		`{url: "/{id}", matches: {r: "{x}"}, answers: [{body: {s: paid}, then: done}]}`:                                 `41: gateways.shop.lookup.matches.r: "{x}" is not a field of the payload: write its name, with dots between the levels, or "{id}", "{key}" or "{reference}"`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{then: done}]}`:                                                 `61: gateways.shop.lookup.answers[0]: the rule would match every answer: give it a status, a header, a body or absent`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, then: accepted}]}`:                                `80: gateways.shop.lookup.answers[0].then: "accepted" is not a verdict of look-ups: use one of done, refused, later, not_done`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404}]}`:                                                `61: gateways.shop.lookup.answers[0].then: is missing: say what such an answer means: done, refused, later or not_done`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, then: not_done}]}`:                                `61: gateways.shop.lookup.answers[0].after: is missing: say how long after the call the gateway may still make the payment, or not show it yet; 0s if it promises that a look-up sees all that was made before`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, then: refused, after: 1s}]}`:                      `96: gateways.shop.lookup.answers[0].after: only a not_done is believed later than it is seen: take after out`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 503, then: later}]}`:                                   `69: gateways.shop.lookup.answers[0].status: a 429 or 5xx says nothing of the payment, and is asked again in any case: take it out`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{absent: true, then: later}]}`:                                  `50: gateways.shop.lookup.answers: absent is the end of a list, and there is no scan that walks one: write scan, or a status or body in place of absent`,
		`{url: "/", scan: {match: {r: "{id}"}}, answers: [{absent: true, body: {a: b}, then: later}]}`:                  `77: gateways.shop.lookup.answers[0].body: absent is the end of a list without the payment, so there is no body to look at: take one of the two out`,
		`{url: "/", scan: {items: data}, answers: [{body: {a: b}, then: later}]}`:                                       `24: gateways.shop.lookup.scan.match: is missing: write by which field of an item the job's payment is found, like {metadata.job_id: "{id}"}`,
		`{url: "/", scan: {match: {r: "{id}"}, pages: 0}, answers: [{body: {a: b}, then: later}]}`:                      `58: gateways.shop.lookup.scan.pages: "0" is too small: give at least 1`,
		`{url: "/", scan: {match: {r: "{id}"}, parameter: c}, answers: [{body: {a: b}, then: later}]}`:                  `62: gateways.shop.lookup.scan.parameter: nothing says what the parameter is to take: write next, the field that has it`,
		`{url: "/{id}", schedule: [1m], matches: {r: "{id}"}, answers: [{status: 404, then: not_done, after: 1s}]}`:     `28: gateways.shop.lookup.schedule: a not_done is believed only when two look-ups in a row say it, and there is one: give the schedule one more time`,
		`{url: "/{id}", schedule: [5s, 1m], matches: {r: "{id}"}, answers: [{status: 404, then: not_done, after: 5m}]}`: `28: gateways.shop.lookup.schedule: the last look-up is made 1m5s after the call, and a not_done is believed only 5m after it: make the schedule longer, or after shorter`,
		`{url: "/{id}", matches: {r: "{id}"}, answers: [{status: 404, then: not_done, after: 30d}]}`:                    `50: gateways.shop.lookup.answers: the last look-up is made 49h11m5s after the call (the default), and a not_done is believed only 30d after it: make the schedule longer, or after shorter`,
		`{accepted: {` + found + `}}`:                                                                                   `14: gateways.shop.lookup.accepted.url: is missing: write where the gateway is asked for accepted jobs, like https://api.example.com/v1/payments/{reference}`,
	} {
		_, err := asking(t, payURL, lookup)
		if err == nil || err.Error() != at+want {
			t.Errorf("%s\n%v\nwant\n%s%s", lookup, err, at, want)
		}
	}
	for request, lookup := range map[string]string{
		payURL + `, idempotency_header: ""`: `{url: "/{key}", ` + found + `}`,
	} {
		if _, err := asking(t, request, lookup); err == nil || !strings.Contains(err.Error(), "the look-up uses {key}, and the gateway has no keys: use {id} or {reference}") {
			t.Errorf("%s: %v", lookup, err)
		}
	}
	mapped := "gateways: {a: {map: {amount: {from: Total}}, request: {url: \"https://a.example\"}, leak: {limits: [1/s]}, lookup: {url: \"/{payload.order}\", " + found + "}}}"
	if _, err := Parse("x.yaml", []byte(mapped), Options{}); err == nil || !strings.Contains(err.Error(), `gateways.a.lookup.url: the look-up takes the payload's field "order", and the map does not make it: name it there`) {
		t.Error(err)
	}
	if _, err := Parse("x.yaml", []byte("gateways: {a: {reference: \"\", request: {url: \"https://a.example\"}, leak: {limits: [1/s]}, lookup: {url: \"/{reference}\", "+found+"}}}"), Options{}); err == nil ||
		!strings.Contains(err.Error(), "the look-up uses {reference}, and the gateway's reference is \"\", so none is kept") {
		t.Error(err)
	}
}

// defaults, templates and merchants can have look-ups like the other keys; off removes one.
func TestALookupInLayers(t *testing.T) {
	t.Parallel()
	text := `
defaults: {lookup: {share: 20%}}
templates:
  base: {request: {url: "https://pay.example/{name}/pay", key: {prefix: "{name}-"}}, leak: {limits: [5/s]}, lookup: {url: "/{name}?r={id}", schedule: [1s, 2s], ` + found + `}}
gateways:
  one: {like: base}
  two: {like: base, lookup: {share: 50%, schedule: [3s]}}
  three: {like: base, lookup: off}
`
	c, err := Parse("x.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Gateways[0].Lookup, c.Gateways[1].Lookup
	if a.Share != 20 || a.Doubted.URL != "https://pay.example/one?r={id}" || len(a.Doubted.Schedule) != 2 {
		t.Errorf("%+v", a.Doubted)
	}
	if b.Share != 50 || b.Doubted.URL != "https://pay.example/two?r={id}" || len(b.Doubted.Schedule) != 1 || len(b.Doubted.Answers) != 1 {
		t.Errorf("%+v", b.Doubted)
	}
	if c.Gateways[2].Lookup != nil {
		t.Error("off is a look-up")
	}
}

// Look-ups by the job's id say so where calls carry it in the payload at most.
func TestLookupsByAnIDInThePayload(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		`url: "https://x/"`: false, // the key is the id
		`url: "https://x/", key: {in: header, name: K, form: uuid}`:       true,
		`url: "https://x/", idempotency_header: ""`:                       true,
		`url: "https://x/{id}", idempotency_header: ""`:                   false,
		`url: "https://x/", idempotency_header: "", headers: {R: "{id}"}`: false,
	} {
		text := `gateways: {g: {request: {` + request + `}, leak: {limits: [1/s]}, lookup: {url: "/?r={id}", matches: {r: "{id}"}, answers: [{status: 200, then: done}]}}}`
		cfg, err := Parse("g.yaml", []byte(text), Options{Secrets: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Gateways[0].Lookup.Doubted.ByID; got != want {
			t.Errorf("%s: %v", request, got)
		}
	}
}
