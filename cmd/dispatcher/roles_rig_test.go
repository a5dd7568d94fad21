package main

import (
	"bytes"
	"crypto/sha256"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"spillway/internal/cli"
	"spillway/internal/console"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/oidc"
	"spillway/internal/queue"
	"spillway/internal/redisdb"
	"spillway/internal/roles"
	"spillway/internal/testkit"
)

// house is the HTTP side of a dispatcher. It has two tokens of each role: one for all gateways, and one for gateway one only.
type house struct {
	*rig
	url  string
	page *console.Console
	doc  *openapi3.T
	log  *testkit.Log

	issuer *testkit.Issuer
}

// tokenOf returns the token of a role.
func tokenOf(role roles.Role) string { return "canary-token-of-" + string(role) }

// scopedTo returns the token of a role for gateway one only.
func scopedTo(role roles.Role) string { return "canary-scoped-token-of-" + string(role) }

// More tokens of approvers. The first has ended, and the second has the name of the producer's token.
const (
	endedToken = "canary-token-of-an-approver-that-has-ended"
	namesake   = "canary-token-of-an-approver-who-is-the-producer"
	// These two belong to the operator: one has the operator's name, and the file names the operator as the person of the other.
	ownToken    = "canary-token-of-an-approver-who-is-the-operator"
	personToken = "canary-token-of-an-approver-whose-person-is-the-operator"
)

func newHouse(t *testing.T) *house {
	t.Helper()
	return houseOf(t, newRig(t))
}

func houseOf(t *testing.T, r *rig) *house {
	t.Helper()
	h := &house{rig: r, log: &testkit.Log{}}
	db, err := dispatch.Open(h.ctx, h.cfg, time.Minute)
	h.must(err)
	log := slog.New(slog.NewTextHandler(h.log, nil))
	s := served{file: newInForce(h.cfg), door: newDoor(dispatch.Door(db.Client, h.cfg, apiPatience)), db: db, log: log, gateways: h.cfg.Gateways}
	guard := httpapi.NewGuard("")
	var all []roles.Token
	for _, role := range roles.All() {
		all = append(all, roles.Token{Name: string(role) + "-1", Role: role, SHA256: sha256.Sum256([]byte(tokenOf(role)))},
			roles.Token{Name: string(role) + "-2", Role: role, SHA256: sha256.Sum256([]byte(scopedTo(role))), Gateways: []string{h.one}})
	}
	all = append(all, roles.Token{Name: "approver-3", Role: roles.Approver, SHA256: sha256.Sum256([]byte(endedToken)), Expires: time.Now().Add(-time.Hour)},
		roles.Token{Name: "producer-1", Role: roles.Approver, SHA256: sha256.Sum256([]byte(namesake))},
		roles.Token{Name: "operator-1", Role: roles.Approver, SHA256: sha256.Sum256([]byte(ownToken))},
		roles.Token{Name: "night-shift", Person: "Operator-1", Role: roles.Approver, SHA256: sha256.Sum256([]byte(personToken))})
	h.issuer = testkit.NewIssuer(t)
	guard.Use(httpapi.Access{Tokens: all, Provider: h.provider()})
	guard.Tell(log, nil)
	guard.Keep(sessions{redisdb.NewOnce(db.Client)})
	x := s.examiner()
	h.page = console.New(console.Config{Redis: db.Client, Gateways: h.cfg.Gateways, Listed: h.cfg.Names, Guard: guard, Log: log, Queues: true, Examiner: x})
	api := s.api(httpapi.Config{Guard: guard, Ready: s.takesJobs, Console: h.page, Login: h.page.Login(), Queues: h.page.Protect(queue.Monitor(db.Client, "/queues/")),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })}, x)
	srv := httptest.NewServer(api)
	h.url = srv.URL
	t.Cleanup(func() { srv.Close(); _ = h.page.Stop(t.Context()); _ = db.Close() })
	h.doc, err = parsed()
	h.must(err)
	return h
}

// provider returns the OpenID provider. Each role has two groups: the group ROLE has it for all gateways, and ROLE-2 for gateway one only.
func (h *house) provider() *oidc.Provider {
	cfg := oidc.Config{Issuer: h.issuer.URL, ClientID: "spillway", ClientSecret: "canary-secret-of-the-client", Redirect: "http://127.0.0.1/login/callback", Name: "email"}
	for _, role := range roles.All() {
		cfg.Rules = append(cfg.Rules, roles.Rule{Claim: "groups", Is: string(role), Role: role}, roles.Rule{Claim: "groups", Is: string(role) + "-2", Role: role, Gateways: []string{h.one}})
	}
	return oidc.New(cfg)
}

// member returns the id token of a member of a group.
func (h *house) member(group string) string {
	return h.issuer.Token(map[string]any{"groups": []string{group}, "email": group + "@example.com"})
}

// atProvider logs in at the console through the provider, with these claims. It returns the browser, and the answer to the callback.
func (h *house) atProvider(claims map[string]any) (*http.Client, answer) {
	h.t.Helper()
	jar, err := cookiejar.New(nil)
	h.must(err)
	b := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	sent := h.ask(b, "", http.MethodGet, "/login/provider?next=/batches", "", "")
	to, err := url.Parse(sent.header.Get("Location"))
	h.must(err)
	if sent.code != http.StatusSeeOther || !strings.HasPrefix(to.String(), h.issuer.URL+"/auth?") {
		h.t.Fatalf("on the way to the provider: %d %s", sent.code, to)
	}
	with := map[string]any{"nonce": to.Query().Get("nonce")}
	maps.Copy(with, claims)
	h.issuer.Grant(with)
	return b, h.ask(b, "", http.MethodGet, "/login/callback?code=c&state="+to.Query().Get("state"), "", "")
}

// memberAt returns the browser of a member of a group, who has logged in.
func (h *house) memberAt(group string) *http.Client {
	h.t.Helper()
	b, got := h.atProvider(map[string]any{"groups": []string{group}, "email": group + "@example.com"})
	if got.code != http.StatusOK || got.header.Get("Refresh") != "0; url=/batches" {
		h.t.Fatalf("back from the provider: %d %s", got.code, got.body)
	}
	return b
}

// ask sends a request with a token. If the token is empty, the request has only the cookies of the browser.
func (h *house) ask(browser *http.Client, token, method, path, kind, body string) answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	h.must(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	back, err := browser.Do(r)
	h.must(err)
	defer back.Body.Close()
	text, err := io.ReadAll(back.Body)
	h.must(err)
	return answer{back.StatusCode, back.Header, string(text)}
}

// program sends a request with a token.
func (h *house) program(token, method, path, body string) answer {
	h.t.Helper()
	kind := ""
	if method == http.MethodPost {
		kind = asJSONType
	}
	return h.ask(http.DefaultClient, token, method, path, kind, body)
}

// browser logs in at the console. It follows no redirection.
func (h *house) browser(token string) *http.Client {
	h.t.Helper()
	b := h.visitor(token)
	if b == nil {
		h.t.Fatal("not logged in")
	}
	return b
}

// visitor is like browser, but returns nil if the token is refused.
func (h *house) visitor(token string) *http.Client {
	h.t.Helper()
	jar, err := cookiejar.New(nil)
	h.must(err)
	b := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if got := h.form(b, "/login", url.Values{"token": {token}}); got.code != http.StatusSeeOther {
		return nil
	}
	return b
}

func (h *house) form(browser *http.Client, path string, fields url.Values) answer {
	h.t.Helper()
	return h.ask(browser, "", http.MethodPost, path, "application/x-www-form-urlencoded", fields.Encode())
}

// afar runs a command through --server.
func (h *house) afar(token string, args ...string) ran {
	h.t.Helper()
	var out, err bytes.Buffer
	h.t.Setenv(tokenVariable, token)
	code := cli.Main(name, newCommand, append(args, "--server", h.url, "-c", "none.yaml", "--redis", "redis://127.0.0.1:1"), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	return ran{out.String(), err.String(), code}
}

// mayNot says whether an answer says that the role is not sufficient.
func mayNot(got answer) bool {
	return got.code == http.StatusForbidden
}
