package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/internal/cli"
	"spillway/internal/httpapi"
	"spillway/internal/roles"
	"spillway/internal/testkit"
)

// pauseOne pauses gateway one through the API.
func (h *house) pauseOne(token, by string) answer {
	h.t.Helper()
	return h.program(token, http.MethodPost, "/v1/gateways/"+h.one+"/pause", `{"by":"`+by+`","why":"x"}`)
}

// The trail names a person who has logged in. The groups of that person decide which gateways they see.
func TestALoginIsNamedInTheTrail(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	var who httpapi.Whoami
	got := h.program(h.member("operator-2"), http.MethodGet, "/v1/whoami", "")
	if err := json.Unmarshal([]byte(got.body), &who); err != nil || who.Name != "operator-2@example.com" || who.Role != roles.Operator || who.Via != roles.ByLogin || len(who.Gateways) != 1 || who.Ends == nil {
		t.Fatalf("%d %s", got.code, got.body)
	}
	if got := h.program(h.member("operator-2"), http.MethodGet, "/v1/status", ""); strings.Contains(got.body, h.two) || !strings.Contains(got.body, h.one) {
		t.Errorf("a group of one gateway sees %s", got.body)
	}
	if got := h.program(h.member("operator-2"), http.MethodPost, "/v1/gateways/"+h.two+"/pause", `{"by":"x","why":"x"}`); got.code != http.StatusNotFound {
		t.Errorf("a group of another gateway: %d %s", got.code, got.body)
	}
	if got := h.program(h.member("operator-2"), http.MethodGet, "/v1/doctor", ""); got.code != http.StatusForbidden || !strings.Contains(got.body, "the login of operator-2@example.com is for some of them") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := h.pauseOne(h.member("operator"), "somebody else"); got.code != http.StatusOK {
		t.Fatalf("%d %s", got.code, got.body)
	}
	got = h.program(h.member("viewer"), http.MethodGet, "/v1/history", "")
	if !strings.Contains(got.body, `"who":"operator@example.com"`) || !strings.Contains(got.body, `"said":"somebody else"`) || !strings.Contains(got.body, `"via":"oidc"`) {
		t.Errorf("the trail: %d %s", got.code, got.body)
	}
	if log := h.log.String(); strings.Contains(log, "canary") || strings.Contains(log, "eyJ") {
		t.Error("the log has a token")
	}
}

// A person whose groups have no role gets 403 and an explanation. An invalid token gets 401.
func TestALoginWithoutARole(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var p struct{ Code, Detail, Hint string }
	got := h.program(h.member("strangers"), http.MethodGet, "/v1/status", "")
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.code != http.StatusForbidden || p.Code != "forbidden" || !strings.Contains(p.Detail, "strangers@example.com") || !strings.Contains(p.Hint, "oidc.roles") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := h.program(h.issuer.Token(map[string]any{"aud": "payroll"}), http.MethodGet, "/v1/status", ""); got.code != http.StatusUnauthorized {
		t.Errorf("another audience: %d %s", got.code, got.body)
	}
	b, got := h.atProvider(map[string]any{"groups": []string{"strangers"}})
	if got.code != http.StatusForbidden || !strings.Contains(got.body, "nothing in the login gives you a role here") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if got := h.ask(b, "", http.MethodGet, "/v1/status", "", ""); got.code != http.StatusUnauthorized {
		t.Errorf("who was refused has a session: %d", got.code)
	}
}

// The login of a browser is one cookie. Pages of other sites can't make the browser send it. It ends when the person logs out, or when the provider's
// token ends.
func TestABrowserOfTheProvider(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.stock()
	b, got := h.atProvider(map[string]any{"groups": []string{"operator"}})
	all := strings.Join(got.header.Values("Set-Cookie"), "\n")
	if !strings.Contains(all, "spillway_login=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax") || !strings.Contains(all, "HttpOnly; SameSite=Strict") || strings.Count(all, "spillway_session=") != 1 || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("cookies: %s", all)
	}
	if got := h.ask(b, "", http.MethodGet, "/", "", ""); got.code != http.StatusOK || !strings.Contains(got.body, "ann@example.com (operator)") {
		t.Errorf("%d %s", got.code, got.body)
	}
	at, _ := url.Parse(h.url)
	id := b.Jar.Cookies(at)[0].Value
	for _, altered := range []string{id[:len(id)-1] + "x", id + "x", "", "oidc x"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v1/status", nil)
		h.must(err)
		r.AddCookie(&http.Cookie{Name: "spillway_session", Value: altered})
		back, err := http.DefaultClient.Do(r)
		h.must(err)
		_ = back.Body.Close()
		if back.StatusCode != http.StatusUnauthorized {
			t.Errorf("the cookie %q: %d", altered, back.StatusCode)
		}
	}
	if got := h.form(b, "/logout", nil); got.code != http.StatusSeeOther {
		t.Error(got.code)
	}
	b.Jar.SetCookies(at, []*http.Cookie{{Name: "spillway_session", Value: id}})
	if got := h.ask(b, "", http.MethodGet, "/v1/status", "", ""); got.code != http.StatusUnauthorized {
		t.Errorf("after logging out, with the cookie of before: %d", got.code)
	}
	// The token of the provider ended almost 30 s ago, which is the allowed difference of the clocks. On a slow machine, a token with more time left is
	// tried.
	for _, left := range []time.Duration{2 * time.Second, 10 * time.Second, 25 * time.Second} {
		if b, got = h.atProvider(map[string]any{"groups": []string{"operator"}, "exp": time.Now().Add(left - 30*time.Second).Unix()}); got.code == http.StatusOK {
			break
		}
	}
	if got.code != http.StatusOK {
		t.Fatal(got.code, got.body)
	}
	testkit.Eventually(t, 30*time.Second, "the session to end with the login", func() bool {
		return h.ask(b, "", http.MethodGet, "/v1/status", "", "").code == http.StatusUnauthorized
	})
}

// A login that was not started at this console is refused. A login never leads to another site.
func TestABrowserIsSentNowhereElse(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, query := range []string{"", "?code=c", "?code=c&state=x", "?error=access_denied&state=x"} {
		if got := h.ask(http.DefaultClient, "", http.MethodGet, "/login/callback"+query, "", ""); got.code != http.StatusBadRequest || !strings.Contains(got.body, "has not begun to log in here") || got.header.Get("Refresh") != "" {
			t.Errorf("%q: %d %s", query, got.code, got.body)
		}
	}
	for _, next := range []string{"//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "/login", ""} {
		b, _ := h.atProvider(nil)
		sent := h.ask(b, "", http.MethodGet, "/login/provider?next="+url.QueryEscape(next), "", "")
		to, err := url.Parse(sent.header.Get("Location"))
		h.must(err)
		h.issuer.Grant(map[string]any{"nonce": to.Query().Get("nonce"), "groups": []string{"viewer"}})
		got := h.ask(b, "", http.MethodGet, "/login/callback?code=c&state="+to.Query().Get("state"), "", "")
		if got.code != http.StatusOK || got.header.Get("Refresh") != "0; url=/" || strings.Contains(got.body, "evil") {
			t.Errorf("%q: %d, sent to %q", next, got.code, got.header.Get("Refresh"))
		}
	}
}

// What the provider and the dispatcher say during a login controls no terminal.
func TestALoginControlsNoTerminal(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	i := testkit.NewIssuer(t)
	i.Asked = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/device":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"device_code":"d","user_code":"\u001b[2Jcode","verification_uri":"http://x/\u202ey","verification_uri_complete":"http://x/\u009b1m","expires_in":1,"interval":1}`)
		case "/token":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"authorization_pending"}`)
		default:
			return false
		}
		return true
	}
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(httpapi.HowToLogIn{Issuer: i.URL, ClientID: "cli\x1b]0;x\a"})
	}))
	t.Cleanup(at.Close)
	var err strings.Builder
	if code := cli.Main(name, newCommand, []string{"login", "--server", at.URL}, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &err}); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if text := err.String(); strings.ContainsAny(text, "\x1b\a\u202e\u009b") || !strings.Contains(text, "[2Jcode") || !strings.Contains(text, "not completed in time") {
		t.Errorf("%q", text)
	}
}
