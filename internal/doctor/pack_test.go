package doctor

import (
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
	"spillway/internal/job"
	"spillway/internal/packs"
)

func TestWhatContradictsAPack(t *testing.T) {
	t.Parallel()
	const req = `request: {url: "https://pay.example/"}`
	for name, c := range map[string]struct {
		gateway []string
		message string // empty: nothing but what is unverified is said of the pack
		hint    string
	}{
		"as published":             {[]string{"like: stripe/v1", req, "leak: {limits: [25/s]}"}, "", ""},
		"less than published":      {[]string{"like: stripe/v1", `request: {url: "https://pay.example/", key_lifetime: 1h}`, "leak: {limits: [10/s]}"}, "", ""},
		"too long":                 {[]string{"like: qonto/v2", `request: {url: "https://pay.example/", key_lifetime: 24h}`, "leak: {limits: [1/s]}"}, "keeps them for 30m: a late retry charges twice", "key_lifetime: 30m"},
		"no lifetime is published": {[]string{"like: gocardless/v1", `request: {url: "https://pay.example/", key_lifetime: 24h}`, "leak: {limits: [1/s]}"}, "publishes no lifetime", "ask the gateway"},
		"too fast":                 {[]string{"like: stripe/v1", req, "leak: {limits: [100/s]}"}, "publishes 25/s for one endpoint", "limits: [25/s]"},
		"no keys at all":           {[]string{"like: stripe/v1", `request: {url: "https://pay.example/", idempotency_header: ""}`, "leak: {limits: [25/s]}"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, "redis://127.0.0.1:1/0", c.gateway...)
			said := false
			for _, got := range lintPack(p.p.Gateways[0]) {
				if strings.Contains(got.Message, "no source was found") {
					continue
				}
				said = true
				if c.message == "" || !strings.Contains(got.Message, c.message) || !strings.Contains(got.Hint, c.hint) {
					t.Errorf("%+v", got)
				}
			}
			if said != (c.message != "") {
				t.Errorf("said something: %v, want %q", said, c.message)
			}
		})
	}
}

// Only unverified values that are in force are named. A value in the file replaces that of the pack.
func TestUnverifiedValuesThatHold(t *testing.T) {
	t.Parallel()
	p := packs.Pack{Unverified: []string{"answers.rules.running", "answers.rules.done", "request.key_lifetime", "reference"},
		Gateway: map[string]any{"request": map[string]any{"key_lifetime": "24h"}}}
	g := config.DefaultGateway()
	g.Request.KeyLifetime = 24 * time.Hour
	g.Answers.Rules = []job.Rule{{Event: "running", Status: 409, Then: "retry"}}
	if got := strings.Join(unverified(g, p), " "); got != "answers.rules.running request.key_lifetime reference" {
		t.Error(got)
	}
	g.Request.KeyLifetime = time.Hour
	g.Answers.Rules = nil
	if got := strings.Join(unverified(g, p), " "); got != "reference" {
		t.Error(got)
	}
	p.Unverified = []string{"lookup", "lookup.accepted.answers"}
	if got := unverified(g, p); len(got) > 0 {
		t.Errorf("a gateway without a look-up: %v", got)
	}
	g.Lookup = &config.Lookup{}
	if got := unverified(g, p); len(got) != 2 {
		t.Error(got)
	}
}

func TestAnOldPackIsNamed(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)
	if age := (packs.Pack{Read: "2026-11-22"}).Age(now); age <= packAge {
		t.Errorf("%s", age)
	}
	if age := (packs.Pack{Read: "2027-05-01"}).Age(now); age >= packAge {
		t.Errorf("%s", age)
	}
}
