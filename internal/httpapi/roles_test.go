package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/roles"
)

func named(name string, role roles.Role, secret string) roles.Token {
	return roles.Token{Name: name, Role: role, SHA256: sha256.Sum256([]byte(secret)), Length: len(secret)}
}

const longSecret = "a secret of more than sixteen bytes"

func codeOf(api *API, path, token, from string) int {
	return visit(api, path, func(r *http.Request) {
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+token)
	}).Code
}

// An operation that does not say which role it needs refuses all requests, also without tokens.
func TestARouteWithoutARoleIsNotServed(t *testing.T) {
	t.Parallel()
	api := New(Config{Metrics: http.NotFoundHandler(), Operations: []Operation{{Method: http.MethodGet, Path: "/v1/new", Do: func(context.Context, any, LineWriter) (any, error) {
		t.Error("it is served")
		return nil, nil
	}}}})
	if got := codeOf(api, "/v1/new", "", "192.0.2.1:1"); got != http.StatusForbidden {
		t.Errorf("status %d, want %d", got, http.StatusForbidden)
	}
}

// Two tokens can have one name, and each has its own end. After its end a token and its sessions are refused, and the log has its name.
func TestATokenEnds(t *testing.T) {
	t.Parallel()
	api := guarded("", http.NotFoundHandler())
	var log bytes.Buffer
	api.cfg.Guard.Tell(slog.New(slog.NewTextHandler(&log, nil)), nil)
	first, second := named("billing", roles.Viewer, longSecret+" 1"), named("billing", roles.Viewer, longSecret+" 2")
	first.Expires = time.Now().Add(time.Hour)
	api.cfg.Guard.Use(Access{Tokens: []roles.Token{first, second}})
	for _, token := range []string{longSecret + " 1", longSecret + " 2"} {
		if got := codeOf(api, "/metrics", token, "192.0.2.1:1"); got != 200 {
			t.Errorf("%s: %d", token, got)
		}
	}
	w := httptest.NewRecorder()
	if !loggedIn(api.cfg.Guard, w, longSecret+" 1") {
		t.Fatal("the token is not enough")
	}
	cookie := w.Result().Cookies()[0]
	if cookie.MaxAge <= 0 || cookie.MaxAge > int(time.Hour/time.Second) {
		t.Errorf("the cookie lasts %d s, and the token an hour", cookie.MaxAge)
	}
	with := func(r *http.Request) { r.AddCookie(cookie) }
	if got := visit(api, "/", with).Code; got != 200 {
		t.Errorf("the cookie: %d", got)
	}
	first.Expires = time.Now().Add(-time.Second)
	api.cfg.Guard.Use(Access{Tokens: []roles.Token{first, second}})
	if one, two, page := codeOf(api, "/metrics", longSecret+" 1", "192.0.2.1:1"), codeOf(api, "/metrics", longSecret+" 2", "192.0.2.1:1"), visit(api, "/", with).Code; one != 401 || two != 200 || page != 401 {
		t.Errorf("after the end of the first: %d, the second %d, its cookie %d", one, two, page)
	}
	if !strings.Contains(log.String(), "expired token") || !strings.Contains(log.String(), "name=billing") || strings.Contains(log.String(), longSecret) {
		t.Error(log.String())
	}
}

// The configuration has the digest of the empty text. An empty token is still refused.
func TestNothingIsNoToken(t *testing.T) {
	t.Parallel()
	api := guarded("", http.NotFoundHandler())
	api.cfg.Guard.Use(Access{Tokens: []roles.Token{{Name: "x", Role: roles.Admin, SHA256: sha256.Sum256(nil)}}})
	for _, header := range []string{"Bearer", "Bearer ", "bearer"} {
		if got := visit(api, "/metrics", func(r *http.Request) { r.Header.Set("Authorization", header) }).Code; got != 401 {
			t.Errorf("%q: %d", header, got)
		}
	}
	if loggedIn(api.cfg.Guard, httptest.NewRecorder(), "") {
		t.Error("nothing logs in at the console")
	}
}

// kept is a store of sessions. It can be unavailable.
type kept struct {
	mu   sync.Mutex
	all  map[string]string
	away bool
}

func (k *kept) Keep(_ context.Context, id, text string, _ time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[id] = text
	return nil
}

func (k *kept) Find(_ context.Context, id string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		return "", errors.New("away")
	}
	return k.all[id], nil
}

func (k *kept) Drop(_ context.Context, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
	return nil
}

// A session is valid at each dispatcher of one Redis until its browser logs out, at any of them. Each login has its own session. The cookie does not
// contain the token.
func TestALogOutEndsTheSession(t *testing.T) {
	t.Parallel()
	store := &kept{all: map[string]string{}}
	var both [2]*API
	for i := range both {
		both[i] = guarded(longSecret, http.NotFoundHandler())
		both[i].cfg.Guard.Keep(store)
	}
	in := func() *http.Cookie {
		w := httptest.NewRecorder()
		if !loggedIn(both[0].cfg.Guard, w, longSecret) {
			t.Fatal("the token is not enough")
		}
		return w.Result().Cookies()[0]
	}
	one, two := in(), in()
	if one.Value == two.Value || len(one.Value) < 20 {
		t.Errorf("two logins have the cookies %s and %s", one.Value, two.Value)
	}
	at := func(i int, c *http.Cookie) int {
		return visit(both[i], "/", func(r *http.Request) { r.AddCookie(c) }).Code
	}
	if at(0, one) != 200 || at(1, one) != 200 {
		t.Error("the cookie is not enough")
	}
	store.away = true
	if at(0, one) != 200 {
		t.Error("nobody has logged in where the store is away")
	}
	store.away = false
	r := httptest.NewRequest(http.MethodPost, "/logout", nil)
	r.AddCookie(one)
	both[1].cfg.Guard.LogOut(httptest.NewRecorder(), r)
	if at(0, one) != 401 || at(1, one) != 401 || at(0, two) != 200 {
		t.Errorf("after logging out: %d and %d, the other session %d", at(0, one), at(1, one), at(0, two))
	}
	store.away = true
	if at(0, one) != 401 || at(1, one) != 401 {
		t.Error("the session is remembered after logging out")
	}
}

// Over TLS, the cookie has the prefix __Host-: browsers accept it from this host only.
func TestTheCookieIsOfThisHost(t *testing.T) {
	t.Parallel()
	api := guarded(longSecret, http.NotFoundHandler())
	w := httptest.NewRecorder()
	if ok, _ := api.cfg.Guard.LogIn(w, httptest.NewRequest(http.MethodPost, "https://d.example/login", nil), longSecret); !ok {
		t.Fatal("the token is not enough")
	}
	c := w.Result().Cookies()[0]
	if c.Name != "__Host-spillway_session" || c.Path != "/" || c.Domain != "" || c.MaxAge != int(SessionFor/time.Second) {
		t.Errorf("%+v", c)
	}
	if got := visit(api, "/", func(r *http.Request) { r.AddCookie(c) }).Code; got != 200 {
		t.Errorf("%d", got)
	}
}

// An address with many wrong tokens has to wait. A valid token is accepted at any time, also from that address, so that guessing locks nobody out.
func TestGuessesAreLimited(t *testing.T) {
	t.Parallel()
	api := guarded(longSecret, http.NotFoundHandler())
	const from, elsewhere = "192.0.2.1:1", "192.0.2.2:1"
	told, began := map[int]int{}, time.Now()
	for i := range 1000 {
		told[codeOf(api, "/metrics", fmt.Sprint("guess ", i), from)]++
	}
	most := guessesMost + int(time.Since(began)/guessesAgain) // on a busy machine some are allowed again meanwhile
	if told[401] < guessesMost || told[401] > most || told[429] != 1000-told[401] {
		t.Errorf("1000 guesses: %v, want %d to %d of them taken", told, guessesMost, most)
	}
	if a, b, c := codeOf(api, "/metrics", longSecret, from), codeOf(api, "/metrics", longSecret, elsewhere), codeOf(api, "/metrics", "wrong", elsewhere); a != 200 || b != 200 || c != 401 {
		t.Errorf("the right one from there: %d, from elsewhere %d; a wrong one from elsewhere %d", a, b, c)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	r.RemoteAddr = from
	if ok, after := api.cfg.Guard.LogIn(w, r, "wrong"); ok || after <= 0 || after > guessesAgain {
		t.Errorf("logging in with a wrong one: %v, again after %s", ok, after)
	}
	if ok, _ := api.cfg.Guard.LogIn(w, r, longSecret); !ok {
		t.Error("logging in with the right one is refused")
	}
	got := visit(api, "/metrics", func(r *http.Request) { r.RemoteAddr = from; r.Header.Set("Authorization", "Bearer x") })
	if got.Header().Get("Retry-After") == "" || got.Header().Get("Connection") != "close" {
		t.Errorf("%v", got.Header())
	}
}

// On loopback the token may be short enough to be guessed. Then it is refused, too, from an address with many wrong tokens, unless it was used from there
// before.
func TestAShortTokenIsNotFoundOut(t *testing.T) {
	t.Parallel()
	api := guarded("4711", http.NotFoundHandler())
	const from, known = "127.0.0.1:1", "127.0.0.2:1"
	if got := codeOf(api, "/metrics", "4711", known); got != 200 {
		t.Fatal(got)
	}
	for _, address := range []string{known, from} {
		for i := range 200 {
			codeOf(api, "/metrics", fmt.Sprint(i), address)
		}
	}
	if a, b := codeOf(api, "/metrics", "4711", from), codeOf(api, "/metrics", "4711", known); a != 429 || b != 200 {
		t.Errorf("after 200 wrong ones: %d, and where it was shown before %d", a, b)
	}
}

// The memory for addresses with wrong tokens is bounded. The network of one IPv6 customer counts as one address.
func TestGuessesTakeLittleMemory(t *testing.T) {
	t.Parallel()
	var g guesses
	for i := range 2 * originsMost {
		g.failed(fmt.Sprint(i))
	}
	if len(g.from) > originsMost {
		t.Errorf("%d addresses are remembered", len(g.from))
	}
	for from, want := range map[string]string{"192.0.2.1:99": "192.0.2.1", "[2001:db8:1:2:3::4]:99": "2001:db8:1:2::", "[::ffff:192.0.2.1]:99": "::ffff:192.0.2.1", "@": "@"} {
		if got := origin(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%s is %s", from, got)
		}
	}
}
