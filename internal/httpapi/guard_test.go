package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func guarded(token string, login http.Handler) *API {
	said := func(word string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(word)) })
	}
	return New(Config{Guard: NewGuard(token), Console: said("console"), Queues: said("queues"), Metrics: said("metrics"), Login: login,
		Ready: func(context.Context) error { return nil }})
}

func loggedIn(g *Guard, w http.ResponseWriter, token string) bool {
	ok, _ := g.LogIn(w, httptest.NewRequest(http.MethodPost, "/login", nil), token)
	return ok
}

func visit(api http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://dispatcher.example"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

func TestABrowserGetsInByCookie(t *testing.T) {
	t.Parallel()
	api := guarded("s3cret", http.NotFoundHandler())
	guard := api.cfg.Guard
	for _, wrong := range []string{"", "s3cre", "s3cret "} {
		w := httptest.NewRecorder()
		if loggedIn(guard, w, wrong) || len(w.Result().Cookies()) > 0 {
			t.Errorf("%q let in", wrong)
		}
	}
	in := httptest.NewRecorder()
	if ok, _ := guard.LogIn(in, httptest.NewRequest(http.MethodPost, "https://d.example/login", nil), "s3cret"); !ok {
		t.Fatal("the token is not enough")
	}
	cookie := in.Result().Cookies()[0]
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(cookie.Value, "s3cret") {
		t.Errorf("the cookie %v", cookie)
	}
	for _, path := range []string{"/", "/gateways/x", "/queues/", "/metrics"} {
		if w := visit(api, path, func(r *http.Request) { r.AddCookie(cookie) }); w.Code != 200 {
			t.Errorf("%s with the cookie: %d", path, w.Code)
		}
		if w := visit(guarded("another", nil), path, func(r *http.Request) { r.AddCookie(cookie) }); w.Code != 401 {
			t.Errorf("%s with the cookie of another token: %d", path, w.Code)
		}
	}
	post := func(r *http.Request) { r.Method = http.MethodPost; r.AddCookie(cookie) }
	if w := visit(api, "/v1/gateways/x/jobs", post); w.Code != 401 {
		t.Errorf("a cookie posts jobs: %d", w.Code)
	}
	out := httptest.NewRecorder()
	guard.LogOut(out, httptest.NewRequest(http.MethodPost, "/login", nil))
	if c := out.Result().Cookies()[0]; c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("logging out leaves %v", c)
	}
}

func TestABrowserIsSentToTheLoginPage(t *testing.T) {
	t.Parallel()
	html := func(r *http.Request) { r.Header.Set("Accept", "text/html,*/*") }
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("login")) })
	api := guarded("s3cret", page)
	if w := visit(api, "/gateways/x?a=b", html); w.Code != 303 || w.Header().Get("Location") != "/login?next=%2Fgateways%2Fx%3Fa%3Db" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := visit(api, "/login", html); w.Body.String() != "login" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for what, w := range map[string]*httptest.ResponseRecorder{"a program": visit(api, "/", nil), "the API": visit(api, "/v1/status", html),
		"without a login page": visit(guarded("s3cret", nil), "/", html)} {
		if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
	}
}

// A page of the web can make its own name resolve to 127.0.0.1, and then has the same origin. So without a token only local names are answered.
func TestWithoutATokenOnlyLocalNamesAreAnswered(t *testing.T) {
	t.Parallel()
	api := guarded("", nil)
	for host, want := range map[string]int{"localhost:9400": 200, "127.0.0.1": 200, "[::1]:9400": 200, "[::1]": 200, "spillway.localhost": 200,
		"evil.example:9400": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403} {
		if w := visit(api, "/", func(r *http.Request) { r.Host = host }); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
	if w := visit(guarded("s3cret", nil), "/healthz", nil); w.Code != 200 {
		t.Errorf("with a token any name will do: %d", w.Code)
	}
}

// If the browser has reached the outermost proxy with TLS, its cookie is Secure, with each header in which proxies say so.
func TestTheCookieIsSecureBehindTLS(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"X-Forwarded-Proto: https": true, "X-Forwarded-Proto: HTTPS": true, "X-Forwarded-Proto: https, http": true, "X-Forwarded-Proto:  https ,http": true,
		"Forwarded: proto=https": true, `Forwarded: for="[2001:db8::1]";Proto="https"`: true, "Forwarded: for=192.0.2.1; proto=HTTPS;by=x, for=10.0.0.1;proto=http": true,
		"X-Forwarded-Proto: http": false, "X-Forwarded-Proto: http, https": false, "Forwarded: proto=http, proto=https": false, "Forwarded: for=https": false, "X-Other: https": false,
	} {
		name, value, _ := strings.Cut(header, ":")
		r := httptest.NewRequest(http.MethodPost, "http://d.example/login", nil)
		r.Header.Set(name, strings.TrimPrefix(value, " "))
		w := httptest.NewRecorder()
		if ok, _ := NewGuard("s3cret").LogIn(w, r, "s3cret"); !ok {
			t.Fatal("the token is not enough")
		}
		if got := w.Result().Cookies()[0].Secure; got != want {
			t.Errorf("%s: Secure is %v", header, got)
		}
	}
}

// A token is changed while it is used. For a time both tokens are valid. Then the old one and its sessions are invalid.
func TestATokenIsChangedWithoutAGap(t *testing.T) {
	t.Parallel()
	api := guarded("old token", http.NotFoundHandler())
	guard := api.cfg.Guard
	cookie := func(token string) *http.Cookie {
		w := httptest.NewRecorder()
		if !loggedIn(guard, w, token) {
			t.Fatalf("%q is not let in", token)
		}
		return w.Result().Cookies()[0]
	}
	before := cookie("old token")
	codes := func(cookies ...*http.Cookie) (all []int) {
		for _, token := range []string{"old token", "new token"} {
			all = append(all, visit(api, "/v1/none", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }).Code)
		}
		for _, c := range cookies {
			all = append(all, visit(api, "/", func(r *http.Request) { r.AddCookie(c) }).Code)
		}
		return all
	}
	if got := codes(before); !slices.Equal(got, []int{404, 401, 200}) {
		t.Errorf("before: %v", got)
	}
	guard.Use(Access{Token: "new token", Previous: "old token"})
	during := cookie("old token")
	if got := codes(before, during); !slices.Equal(got, []int{404, 404, 200, 200}) {
		t.Errorf("during: %v", got)
	}
	guard.Use(Access{Token: "new token", SecureCookie: true})
	if got := codes(before, during); !slices.Equal(got, []int{401, 404, 401, 200}) {
		t.Errorf("after: %v", got)
	}
	if !cookie("new token").Secure {
		t.Error("cookie_secure is not obeyed")
	}
}
