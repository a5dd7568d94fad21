package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spillway/internal/admission"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/roles"
)

// For a token, a gateway outside its scope does not exist: not by its name, not in a list, and not in a sum.
func TestAGatewayOutsideTheScopeIsNotThere(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	both := func(gateway string, amount string) {
		_, err := dispatch.Door(h.c, h.cfg, 0).Admit(h.ctx, gateway, []job.Job{{ID: "s" + amount, Gateway: gateway, Payload: []byte(`{"amount":` + amount + `,"currency":"EUR"}`), Cost: 1, Batch: "both"}}, admission.Park)
		h.must(err)
	}
	both(h.one, "100")
	both(h.two, "70000")
	gone := "gone-" + h.two
	h.must(redisdb.Register(h.ctx, h.c, gone))
	for what, need := range h.needsOf(t) {
		method, path, _ := strings.Cut(what, " ")
		if method != http.MethodGet || need == roles.Nothing || path == "/metrics" {
			continue
		}
		role := roles.Admin
		got := h.program(scopedTo(role), method, strings.Replace(h.filled(path), "/b1", "/both", 1), "")
		for _, name := range []string{h.two, gone, "70000", "70100"} {
			if strings.Contains(got.body, name) {
				t.Errorf("%s shows %s: %s", what, name, got.body)
			}
		}
		if strings.Contains(path, "{gateway}") {
			there, nowhere := h.program(scopedTo(role), method, strings.Replace(path, "{gateway}", h.two, 1), ""), h.program(scopedTo(role), method, strings.Replace(path, "{gateway}", "nowhere", 1), "")
			h.sameNo(what, there, nowhere)
		}
	}
	for _, o := range remote.Table() {
		about := o.Described()
		if about.Elsewhere || about.Method != http.MethodPost || about.Whole {
			continue
		}
		for name, text := range map[string]string{"there": h.two, "nowhere": "nowhere"} {
			body := `{"by":"x","why":"x","gateways":["` + text + `"]}`
			if strings.Contains(about.Path, "{gateway}") {
				body = `{"by":"x","why":"x","limits":["1/s"]}`
				if !strings.Contains(about.Path, "limits/set") {
					body = `{"by":"x","why":"x"}`
				}
			}
			switch about.Name {
			case "liftBrakes":
				body = `{"by":"x","why":"x","for":"0"}`
			case "setLane":
				body = `{"by":"x","why":"x","lane":"l","limits":["1/s"]}`
			case "previewDeadLetters", "clearDeadLetters":
				body = `{"action":"replay","gateways":["` + text + `"]}`
				if about.Name == "clearDeadLetters" {
					body = `{"action":"replay","by":"x","token":"e30","gateways":["` + text + `"]}`
				}
			case "searchJobs":
				body = `{"id":"s","gateways":["` + text + `"]}`
			case "forgetJobs":
				body = `{"by":"x","why":"x","older_than":"1h","gateways":["` + text + `"]}`
			case "audit", "verifyTrail":
				body = `{"gateways":["` + text + `"]}`
			}
			path := strings.NewReplacer("{gateway}", text, "{id}", "a", "{name}", "both").Replace(about.Path)
			got := h.program(scopedTo(roles.Admin), about.Method, path, body)
			if about.Name == "clearDeadLetters" && got.code == http.StatusBadRequest {
				continue // its token stands for a preview, which is refused
			}
			if got.code != http.StatusNotFound || !strings.Contains(got.body, `"unknown_gateway"`) || strings.Contains(got.body, h.two) && name != "there" {
				t.Errorf("%s of a gateway that is %s: %d %s", about.Name, name, got.code, got.body)
			}
		}
	}
	for _, path := range []string{"/metrics", "/queues/", "/v1/processes", "/v1/doctor"} {
		if got := h.program(scopedTo(roles.Admin), http.MethodGet, path, ""); got.code != http.StatusForbidden {
			t.Errorf("%s for some gateways: %d %s", path, got.code, got.body)
		}
	}
	var b struct{ Jobs int64 }
	got := h.program(scopedTo(roles.Viewer), http.MethodGet, "/v1/batches/both", "")
	if json.Unmarshal([]byte(got.body), &b) != nil || b.Jobs != 1 {
		t.Errorf("a batch of two gateways: %s", got.body)
	}
	h.scopedPages(gone)
}

// sameNo checks that two refusals are the same apart from the names of the gateways.
func (h *house) sameNo(what string, there, nowhere answer) {
	h.t.Helper()
	hint := regexp.MustCompile(`; did you mean [^?"]*\?`) // names are alike or not
	got, same := hint.ReplaceAllString(there.body, ""), strings.ReplaceAll(hint.ReplaceAllString(nowhere.body, ""), "nowhere", h.two)
	if there.code != http.StatusNotFound || there.code != nowhere.code || got != same {
		h.t.Errorf("%s: %d %s, and of no gateway %d %s", what, there.code, there.body, nowhere.code, nowhere.body)
	}
}

// scopedPages visits each page of the console with a token for gateway one only.
func (h *house) scopedPages(gone string) {
	h.t.Helper()
	b := h.browser(scopedTo(roles.Operator))
	for _, p := range h.page.Pages() {
		method, path, _ := strings.Cut(p.Pattern, " ")
		if method != http.MethodGet {
			continue
		}
		got := h.ask(b, "", method, strings.Replace(h.filled(path), "/b1", "/both", 1), "", "")
		for _, name := range []string{h.two, gone, "700.00", "701.00"} {
			if strings.Contains(got.body, name) {
				h.t.Errorf("%s shows %s", p.Pattern, name)
			}
		}
		if strings.Contains(path, "{gateway}") {
			if got := h.ask(b, "", method, strings.Replace(path, "{gateway}", h.two, 1)+"?id=e", "", ""); got.code != http.StatusNotFound {
				h.t.Errorf("%s of another gateway: %d", p.Pattern, got.code)
			}
		}
	}
	if got := h.form(b, "/gateways/"+h.two+"/pause", url.Values{"who": {"x"}, "why": {"x"}}); got.code != http.StatusNotFound {
		h.t.Errorf("another gateway is paused: %d", got.code)
	}
	if got := h.ask(b, "", http.MethodGet, "/health", "", ""); got.code != http.StatusForbidden {
		h.t.Errorf("health for some gateways: %d", got.code)
	}
}

// The token of a producer for one gateway can post jobs there and see them. It does not learn that another gateway exists or knows an id.
func TestAProducerOfOneGateway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	mine, others := "/v1/gateways/"+h.one+"/jobs", "/v1/gateways/"+h.two+"/jobs"
	token := scopedTo(roles.Producer)
	if got := h.program(token, http.MethodPost, mine, `{"id":"p1","payload":{"amount":5}}`); got.code != http.StatusAccepted {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := h.program(token, http.MethodGet, mine+"/p1", ""); got.code != http.StatusOK {
		t.Errorf("%d %s", got.code, got.body)
	}
	h.sameNo("posting elsewhere", h.program(token, http.MethodPost, others, `{"id":"p1"}`), h.program(token, http.MethodPost, "/v1/gateways/nowhere/jobs", `{"id":"p1"}`))
	got := h.program(token, http.MethodPost, mine, `{"id":"p2","gateway":"`+h.two+`"}`)
	none := h.program(token, http.MethodPost, mine, `{"id":"p2","gateway":"nowhere"}`)
	hint := regexp.MustCompile(`[;,:]? did you mean [^?"]*\?`)
	if got.code != http.StatusBadRequest || hint.ReplaceAllString(strings.ReplaceAll(got.body, h.two, "nowhere"), "") != hint.ReplaceAllString(none.body, "") {
		t.Errorf("a line for another gateway: %s, for none: %s", got.body, none.body)
	}
}

// The trail has the name of the token, the name that its holder gave, and how the holder was identified.
func TestTheTrailSaysHowItIsKnownWho(t *testing.T) {
	h := newHouse(t)
	h.stock()
	token := tokenOf(roles.Operator)
	h.program(token, http.MethodPost, "/v1/gateways/"+h.one+"/pause", `{"by":"cfo@corp","why":"by API"}`)
	if got := h.form(h.browser(token), "/gateways/"+h.one+"/resume", nil); got.code != http.StatusSeeOther {
		t.Fatalf("%d %s", got.code, got.body)
	}
	if got := h.afar(token, "limit", "set", "-g", h.one, "50/s", "--why", "from afar"); got.code != 0 {
		t.Fatal(got)
	}
	t.Setenv(tokenVariable, "")
	r := h.command("pause", "-g", h.one, "--why", "by Redis")
	if r.code != 0 {
		t.Fatal(r)
	}
	if got := h.form(h.browser(token), "/gateways/"+h.one+"/clear", url.Values{"do": {"discard"}, "id": {"a"}, "why": {"x"}, "until": {"2030-01-01T00:00:00Z"}}); got.code != http.StatusSeeOther {
		t.Fatalf("%d %s", got.code, got.body)
	}
	lines, err := h.c.LRange(h.ctx, redisdb.NewKeys(h.one).Trail(), 0, -1).Result()
	h.must(err)
	var got []string
	for _, line := range lines {
		var a struct{ Who, Said, Via, What string }
		h.must(json.Unmarshal([]byte(line), &a))
		if a.Who != "operator-1" {
			a.Who = "WHO"
		}
		if strings.Contains(a.Said, "@") && a.Said != "cfo@corp" {
			a.Said = "ME"
		}
		got = append(got, a.What+": "+a.Who+"/"+a.Said+"/"+a.Via)
	}
	want := []string{"pause: operator-1/cfo@corp/token", "resume: operator-1/operator-1 (console)/token", "limit set 50/s: operator-1/ME/token", "pause: WHO//redis", "discard: operator-1/operator-1 (console)/token"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// For each way to ask for payloads, the log has a line with the name of the person. These lines begin with the same words.
func TestTheLogSaysWhoAskedForPayloads(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	b := h.browser(tokenOf(roles.Operator))
	for path, do := range map[string]func(path string) answer{
		"/v1/dead-letters/export":                  nil,
		"/v1/dead-letters?payload=true":            nil,
		"/v1/jobs/a?payload=true":                  nil,
		"/v1/batches/b1/jobs?field=payload.amount": nil,
		"/jobs/a?payload=1":                        func(path string) answer { return h.ask(b, "", http.MethodGet, path, "", "") },
		"/gateways/" + h.one + "?payload=1":        func(path string) answer { return h.ask(b, "", http.MethodGet, path, "", "") },
		"/search":                                  func(path string) answer { return h.form(b, path, url.Values{"field": {"amount"}, "value": {"1050"}}) },
		"/v1/search": func(string) answer {
			return h.program(tokenOf(roles.Operator), http.MethodPost, "/v1/search", `{"fields":{"payload.amount":"1050"}}`)
		},
	} {
		if do == nil {
			do = func(path string) answer { return h.program(tokenOf(roles.Operator), http.MethodGet, path, "") }
		}
		before := len(h.log.String())
		got := do(path)
		if said := h.log.String()[before:]; got.code >= http.StatusInternalServerError || !regexp.MustCompile(`msg="payloads[^"]* asked for.* who=operator-1`).MatchString(said) {
			t.Errorf("%s: %d %s, the log has %s", path, got.code, got.body, said)
		}
	}
}
