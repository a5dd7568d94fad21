package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const routed = `
gateways:
  stripe:
    request: {url: https://api.example.com/v1/charges, encoding: form, headers: {Authorization: "Bearer ${STRIPE_KEY}"}, key_lifetime: 24h, strip: [note]}
    leak: {limits: [40/s]}
    answers: [{status: 418, then: retry}]
    lookup: {url: "/v1/charges/{id}", matches: {id: "{id}"}, answers: [{body: {status: paid}, then: done}], share: 20%}
    routes:
      refund:
        request: {url: https://api.example.com/v1/refunds, headers: {X-Kind: refund}, encoding: json}
        answers: {rules: [{status: 404, then: retry}], done_needs: {status: refunded}}
        lookup: {url: "/v1/refunds/{id}"}
        reference: refund.id
      void: {request: {url: "https://api.example.com/v1/voids/{id}", method: DELETE}, lookup: off}
`

// ways are the names that Ways yields, each with the URL of its calls.
func ways(g Gateway) map[string]string {
	all := map[string]string{}
	for name, as := range g.Ways() {
		all[name] = as.Request.URL.Reveal()
	}
	return all
}

// A route has its own settings, or else those of the gateway.
func TestRoutes(t *testing.T) {
	t.Parallel()
	g := parse(t, routed).Gateways[0]
	if got := g.RouteNames(); !slices.Equal(got, []string{"refund", "void"}) || g.Routed {
		t.Fatalf("routes %v, routed %v", got, g.Routed)
	}
	want := map[string]string{"": "https://api.example.com/v1/charges", "refund": "https://api.example.com/v1/refunds", "void": "https://api.example.com/v1/voids/{id}"}
	if got := ways(g); !maps.Equal(got, want) {
		t.Errorf("ways %v", got)
	}
	refund, _ := g.On("refund")
	if q := refund.Request; q.Encoding != "json" || q.Headers["Authorization"] != "Bearer "+canary || q.Headers["X-Kind"] != "refund" || q.KeyLifetime != 24*time.Hour ||
		!slices.Equal(q.Strip, []string{"note"}) || refund.Reference != "refund.id" || refund.Leak.Limits[0].N != 40 || len(refund.Routes) > 0 {
		t.Errorf("refund %+v", refund)
	}
	if a := refund.Answers; len(a.Rules) != 2 || a.Rules[0].Status != 404 || a.Rules[1].Status != 418 || a.DoneNeeds["status"][0] != "refunded" {
		t.Errorf("answers of refund: %+v", a)
	}
	if l := refund.Lookup; l == nil || l.Doubted.URL != "https://api.example.com/v1/refunds/{id}" || len(l.Doubted.Answers) != 1 || l.Share != 20 {
		t.Errorf("look-up of refund: %+v", l)
	}
	if void, _ := g.On("void"); void.Lookup != nil || void.Request.Method != "DELETE" || void.Request.Encoding != "json" || void.Request.Strip != nil || len(void.Answers.Rules) != 1 {
		t.Errorf("void %+v", void)
	}
	if own := g.Own(); own.Request.Encoding != "form" || len(own.Answers.Rules) != 1 || own.Reference != "id" {
		t.Errorf("own %+v", own)
	}
	if !g.Asked() {
		t.Error("nobody is asked")
	}
}

// A gateway without a request of its own has its first route for jobs that name none.
func TestRoutesAlone(t *testing.T) {
	t.Parallel()
	g := parse(t, `
gateways:
  psp:
    request: {headers: {Authorization: "${CANARY}"}}
    leak: {limits: [40/s]}
    lookup: {url: "?ref={id}", matches: {id: "{id}"}, answers: [{status: 200, then: done}]}
    routes: {charge: {request: {url: https://psp.example/charges}}, refund: {request: {url: https://psp.example/refunds}, lookup: off}}
`).Gateways[0]
	if !g.Routed || g.Own().Request.URL != "https://psp.example/charges" || g.Lookup != nil || !g.Asked() {
		t.Errorf("routed %v, own %+v", g.Routed, g.Own())
	}
	if l := g.Own().Lookup; l == nil || l.Doubted.URL != "https://psp.example/charges?ref={id}" {
		t.Errorf("look-up of charge: %+v", l)
	}
	for name, want := range map[string]string{"": "charge", "charge": "charge", "refund": "refund"} {
		if got, err := g.Route(name); got != want || err != nil {
			t.Errorf("route %q: %q, %v", name, got, err)
		}
	}
}

func TestRouteOfAJob(t *testing.T) {
	t.Parallel()
	g := parse(t, routed).Gateways[0]
	for name, want := range map[string]string{"": "", "refund": "refund"} {
		if got, err := g.Route(name); got != want || err != nil {
			t.Errorf("route %q: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"refnud": `gateway stripe has no route "refnud": it has refund, void; did you mean refund?`,
		"other":  `gateway stripe has no route "other": it has refund, void`,
	} {
		if _, err := g.Route(name); err == nil || err.Error() != want {
			t.Errorf("route %q: %v", name, err)
		}
		if _, ok := g.On(name); ok {
			t.Errorf("the gateway is on route %q", name)
		}
	}
	g.Routes = nil
	if _, err := g.Route("refund"); err == nil || err.Error() != `route "refund": gateway stripe has no routes: leave the route out, or add it to the configuration` {
		t.Error(err)
	}
}

// A fault is reported once, at its place.
func TestBadRoutes(t *testing.T) {
	t.Parallel()
	const head = "gateways:\n  psp:\n    leak: {limits: [40/s]}\n    request: {url: https://psp.example/charges}\n"
	many := head + "    routes:\n"
	for i := range mostRoutes + 1 {
		many += "      r" + strings.Repeat("x", i) + ": {request: {method: PUT}}\n"
	}
	for text, want := range map[string][]string{
		head + "    routes: {}\n":                                            {`5:5: gateways.psp.routes: there are no routes: name at least one, like refund: {request: {url: https://api.example.com/v1/refunds}}, or take the line out`},
		head + "    routes: [refund]\n":                                      {`5:5: gateways.psp.routes: this is not a mapping: write its keys below it, each as key: value`},
		head + "    routes: {Refund: {}}\n":                                  {`5:14: gateways.psp.routes.Refund: "Refund" is not a route's name: use lower-case letters, digits, _ and -, starting with a letter or digit`},
		head + "    routes: {a: {leak: {}}}\n":                               {`5:18: gateways.psp.routes.a.leak: unknown key: use one of request, answers, lookup, reference, limits, max_in_flight, circuit`},
		head + "    routes: {a: {answers: {saved: {}}}}\n":                   {`5:28: gateways.psp.routes.a.answers.saved: unknown key: use one of profile, rules, done_needs, matches`},
		head + "    routes: {a: {request: {timeout: 5s}}}\n":                 {`5:28: gateways.psp.routes.a.request.timeout: unknown key: use one of url, method, encoding, strip, headers`},
		head + "    routes: {a: {request: {url: ftp://x}}}\n":                {`5:33: gateways.psp.routes.a.request.url: "ftp://x" does not begin with http:// or https://: write one like https://api.example.com/v1/payments`},
		head + "    routes: {a: {request: {method: GET, encoding: form}}}\n": {`5:51: gateways.psp.routes.a.request.encoding: a GET has no body, so there is nothing to encode as a form: take encoding out, or use POST`},
		"gateways:\n  psp:\n    leak: {limits: [40/s]}\n    routes: {a: {request: {url: https://x.example/}}, b: {}}\n": {
			`4:55: gateways.psp.routes.b.request.url: is missing: write where the gateway is called, like https://api.example.com/v1/payments`},
		"gateways:\n  psp:\n    request: {url: https://x.example/, timeout: 1}\n    routes: {b: {}}\n": {
			`2:3: gateways.psp.leak.limits: is missing: write what the gateway allows, like [100/s]`,
			`3:49: gateways.psp.request.timeout: "1" is not a duration: write a number with a unit ns, us, ms, s, m, h or d, like 500ms, 30s, 1h30m or 30d`},
		many: {`5:5: gateways.psp.routes: 33 routes are too many: give at most 32`},
	} {
		_, err := Parse("f.yaml", []byte(text), Options{Secrets: true, Env: testEnv})
		for i := range want {
			want[i] = "f.yaml:" + want[i]
		}
		if err == nil || err.Error() != strings.Join(want, "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, strings.Join(want, "\n"))
		}
	}
}

// A merchants file and a template may have routes.
func TestRoutesEverywhere(t *testing.T) {
	t.Parallel()
	c, err := files(t, map[string]string{"m.csv": "name,routes.refund.request.url\na,https://a.example/r\n"})(`
templates: {base: {request: {url: "https://x.example/{name}"}, leak: {limits: [5/s]}, routes: {refund: {request: {method: PUT}}}}}
merchants: {like: base, file: m.csv}
`)
	if err != nil {
		t.Fatal(err)
	}
	if refund, ok := c.Gateways[0].On("refund"); !ok || refund.Request.URL != "https://a.example/r" || refund.Request.Method != "PUT" {
		t.Errorf("%+v", refund.Request)
	}
}

// config show hides the secrets of routes like those of the gateway.
func TestSecretsOfRoutesAreHidden(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.yaml")
	text := `{gateways: {a: {request: {url: https://x.example/}, leak: {limits: [5/s]}, routes: {r: {request: {headers: {X-Secret: hush-hush}},
  lookup: {url: "/q?key=hush-hush&r={id}", matches: {id: "{id}"}, answers: [{status: 200, then: done}]}}}}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Written(path, nil)
	if err != nil || strings.Contains(string(got), "hush") || !strings.Contains(string(got), "X-Secret: <secret>") {
		t.Errorf("%s %v", got, err)
	}
}
