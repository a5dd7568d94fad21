package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/internal/job"
	"spillway/internal/packs"
)

// like reads a gateway that is like a pack, with more of its keys.
func like(t *testing.T, pack, more string) (*Config, error) {
	t.Helper()
	return Parse("x.yaml", []byte("gateways:\n  shop:\n    like: "+pack+"\n    request: {url: \"https://pay.example/v1\"}\n    leak: {limits: [5/s]}\n"+more), Options{})
}

func TestEveryPackMakesAGateway(t *testing.T) {
	t.Parallel()
	if len(packs.Names()) < 10 {
		t.Fatalf("only %d packs", len(packs.Names()))
	}
	for _, name := range packs.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := like(t, name, "")
			if err != nil {
				t.Fatal(err)
			}
			g := c.Gateways[0]
			p, err := packs.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			if g.Pack != name || p.Name != name {
				t.Errorf("the gateway's pack is %q, and the file calls itself %q", g.Pack, p.Name)
			}
			if published, ok := PackLifetime(p); ok && g.Request.Key.Any() && g.Request.KeyLifetime != published {
				t.Errorf("keys live for %s, the pack says %s", g.Request.KeyLifetime, published)
			}
			events := map[string]bool{}
			for _, r := range g.Answers.Rules {
				events[r.Event] = true
			}
			if events[""] {
				t.Error("a rule has no event")
			}
			for _, path := range p.Unverified {
				if event, rule := strings.CutPrefix(path, "answers.rules."); rule && !events[event] {
					t.Errorf("unverified names %s, and no rule has that event", path)
				}
			}
			// A bare id is refused as it comes in, or is a key of the gateway.
			if err := g.Request.Key.Check("inv-2026-11-000001"); err != nil {
				t.Errorf("a usual id: %v", err)
			}
		})
	}
}

func TestTheFileWinsOverItsPack(t *testing.T) {
	t.Parallel()
	base, err := like(t, "stripe/v1", "")
	if err != nil {
		t.Fatal(err)
	}
	pack := base.Gateways[0].Answers.Rules
	if len(pack) == 0 || base.Gateways[0].Request.KeyLifetime != 24*time.Hour || base.Gateways[0].Request.Encoding != EncodingForm {
		t.Fatalf("%+v", base.Gateways[0])
	}
	for name, tc := range map[string]struct {
		more   string
		own    int // rules of the file
		theirs int
		check  func(Gateway) bool
	}{
		"a list of rules":         {"    answers: [{status: 418, then: refused}]\n", 1, len(pack), func(g Gateway) bool { return g.Answers.Rules[0].Status == 418 }},
		"a mapping with rules":    {"    answers: {rules: [{status: 418, then: refused}], done_needs: {status: ok}}\n", 1, len(pack), func(g Gateway) bool { return slices.Equal(g.Answers.DoneNeeds["status"], []string{"ok"}) }},
		"a mapping without":       {"    answers: {saved: {5xx: runs_again}}\n", 0, len(pack), func(g Gateway) bool { return g.Request.KeyForgets && g.Request.KeyCovers() == 0 }},
		"failures charge once":    {"    answers: {saved: {5xx: charges_once}}\n", 0, len(pack), func(g Gateway) bool { return !g.Request.KeyForgets && g.Request.KeyCovers() > 0 }},
		"successes are not saved": {"    answers: {saved: {2xx: runs_again}}\n", 0, len(pack), func(g Gateway) bool { return g.Request.KeyCovers() == 0 }},
		"another profile":         {"    answers: default\n", 0, 0, func(g Gateway) bool { return g.Answers.DoneNeeds == nil }},
		"a reference":             {"    reference: other\n", 0, len(pack), func(g Gateway) bool { return g.Reference == "other" }},
		"defaults stand above it": {"defaults: {retry: {attempts: 3}, request: {key_lifetime: 2h}}\n", 0, len(pack), func(g Gateway) bool { return g.Retry.Attempts == 3 && g.Request.KeyLifetime == 2*time.Hour }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := like(t, "stripe/v1", tc.more)
			if err != nil {
				t.Fatal(err)
			}
			g := c.Gateways[0]
			if len(g.Answers.Rules) != tc.own+tc.theirs || !tc.check(g) {
				t.Errorf("%d rules, want %d and %d: %+v", len(g.Answers.Rules), tc.own, tc.theirs, g)
			}
		})
	}
}

func TestATemplateAndMerchantsCanBeLikeAPack(t *testing.T) {
	t.Parallel()
	text := `
templates:
  base: {like: stripe/v1, request: {url: "https://pay.example/{name}", key: {prefix: "{name}:"}}, leak: {limits: [5/s]}, answers: [{status: 418, then: refused}]}
gateways:
  a: {like: base}
  b: {like: base, answers: [{status: 419, then: unknown}]}
`
	c, err := Parse("x.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, first := range []int{418, 419} {
		g := c.Gateways[i]
		if g.Pack != "stripe/v1" || g.Request.Key.Prefix != g.Name+":" || g.Request.Key.Max != 255 || g.Answers.Rules[0].Status != first || len(g.Answers.Rules) < 3 {
			t.Errorf("%+v", g)
		}
	}
}

func TestAPackThatDoesNotExistIsNamedWhereItStands(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"gateways:\n  a: {like: strip/v1, request: {url: \"https://a.example\"}, leak: {limits: [1/s]}}\n", `x.yaml:2:13: gateways.a.like: there is no pack "strip/v1": did you mean stripe/v1?`},
		{"templates:\n  t: {like: no/pack}\ngateways:\n  a: {like: t, request: {url: \"https://a.example\"}, leak: {limits: [1/s]}}\n", `x.yaml:2:13: templates.t.like: there is no pack "no/pack"`},
		{"defaults: {like: stripe/v1}\ngateways:\n  a: {request: {url: \"https://a.example\"}, leak: {limits: [1/s]}}\n", "only gateways and merchants are like a template"},
	} {
		_, err := Parse("x.yaml", []byte(tc.text), Options{})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%v\nwant one line with %s", err, tc.want)
		}
	}
}

// A contradiction to a pack's value is reported in the line that names the pack, not in the line of the pack's own file.
func TestAContradictionWithAPackStandsWhereThePackIsNamed(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte("gateways:\n  a:\n    like: mollie/v2\n    request: {url: \"https://a.example\", timeout: 2h}\n    leak: {limits: [1/s]}\n"), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:3:11: gateways.a.request.key_lifetime: ") {
		t.Error(err)
	}
}

func TestTheKeyOfAGateway(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.KeyShape{
		`{}`: {Name: "Idempotency-Key"},
		`{key: {in: body, name: meta.key, form: uuid}}`:             {In: "body", Name: "meta.key", Form: "uuid"},
		`{key: {name: X-Key, min: 16, max: 36, alphabet: a-zA-Z-}}`: {Name: "X-Key", Min: 16, Max: 36, Alphabet: "a-zA-Z-"},
		`{idempotency_header: ""}`:                                  {},
		`{like: pack, idempotency_header: ""}`:                      {Max: 255},
		`{like: pack, idempotency_header: Other}`:                   {Name: "Other", Max: 255},
		`{like: pack, key: {in: query, name: k}}`:                   {In: "query", Name: "k", Max: 255},
	} {
		pack := ""
		if strings.Contains(text, "like: pack, ") {
			text, pack = strings.Replace(text, "like: pack, ", "", 1), "    like: stripe/v1\n"
		}
		body := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
		if body != "" {
			body = ", " + body
		}
		c, err := Parse("x.yaml", []byte("gateways:\n  a:\n"+pack+"    request: {url: \"https://a.example\""+body+"}\n    leak: {limits: [1/s]}\n"), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := c.Gateways[0].Request.Key
		if got.In == job.KeyInHeader {
			got.In = ""
		}
		if got.Form == job.KeyID {
			got.Form = ""
		}
		if got != want {
			t.Errorf("%s%s: %+v, want %+v", pack, text, got, want)
		}
	}
	for text, want := range map[string]string{
		`key: {in: body}`:                       "is missing: write what the body calls the key",
		`key: {name: "A B"}`:                    "without spaces",
		`key: {name: X}, idempotency_header: Y`: "idempotency_header is the short form of key.name",
		`key: {min: 9, max: 3}`:                 "no key has at least 9 and at most 3 characters",
		`key: {form: uuid, max: 20}`:            "a key of the form uuid has 36 characters",
		`key: {alphabet: "[a]"}`:                "is not an alphabet",
		`key: {form: guid}`:                     "did you mean uuid?",
		`key: {in: body, name: k}, method: GET`: "has no body",
	} {
		_, err := Parse("x.yaml", []byte("gateways: {a: {request: {url: \"https://a.example\", "+text+"}, leak: {limits: [1/s]}}}\n"), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestRulesWithClassesListsAndExpressions(t *testing.T) {
	t.Parallel()
	read := func(rule string) ([]job.Rule, error) {
		c, err := Parse("x.yaml", []byte("gateways: {a: {request: {url: \"https://a.example\"}, leak: {limits: [1/s]}, answers: ["+rule+"]}}\n"), Options{})
		if err != nil {
			return nil, err
		}
		return c.Gateways[0].Answers.Rules, nil
	}
	rules, err := read(`{event: done_already, when: repeat, status: [409, 5xx], body: {code: [a, b], text: /^x/}, then: accepted, reference: data.id}`)
	if err != nil || len(rules) != 4 {
		t.Fatalf("%d rules, %v; want 4", len(rules), err)
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if r.Event != "done_already" || r.When != "repeat" || r.Then != "accepted" || r.Reference != "data.id" || r.Body["text"] != "/^x/" {
			t.Errorf("%+v", r)
		}
		seen[string(rune('0'+r.Status%10))+r.Body["code"]] = true
	}
	if len(seen) != 4 {
		t.Errorf("not each combination: %v", rules)
	}
	for rule, want := range map[string]string{
		`{status: 6xx, then: done}`:                   "6xx",
		`{status: 200, body: {a: "/(/"}, then: done}`: "not a regular expression",
		`{when: again, status: 200, then: done}`:      "is not a call",
		`{event: "a b", status: 200, then: done}`:     "is not an event",
		`{status: [], then: done}`:                    "the list is empty",
		`{when: first, then: done}`:                   "would match every answer",
		`{status: [400,401,402,403,404,405,406,407,408,409,410,411,412,413,414], body: {a: [1,2,3,4,5,6,7,8,9,10,11,12,13,14]}, then: done}`: "more than 200 combinations",
	} {
		if _, err := read(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", rule, err, want)
		}
	}
}
