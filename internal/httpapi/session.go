package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"spillway/internal/roles"
)

// Sessions keep who has logged in, for all dispatchers that a browser may reach. A text is found by an id until its time is over.
type Sessions interface {
	Keep(ctx context.Context, id, text string, within time.Duration) error
	// Find returns a text; empty: there is none.
	Find(ctx context.Context, id string) (string, error)
	Drop(ctx context.Context, id string) error
}

// SessionFor is how long a browser stays logged in.
const SessionFor = 8 * time.Hour

// mostSessions bounds the sessions that one process remembers by itself.
const mostSessions = 10_000

// cookieName is the cookie's. Its value is the random id of a session. Over TLS its name has a prefix by which browsers take it from this host alone.
const (
	cookieName   = "spillway_session"
	secureCookie = "__Host-" + cookieName
)

// sessions are those of the browsers. What this process has seen of them it remembers, for when their store is away, or where there is none.
type sessions struct {
	store Sessions // nil: there is none

	mu  sync.Mutex
	all map[string]session
}

type session struct {
	text string // credential.session
	ends time.Time
}

// newCredential returns a token as requests are held against it. Its sessions hold what only the token can make, and from which nobody can make the token.
func newCredential(t Token, who roles.Identity) credential {
	mac := hmac.New(sha256.New, t.SHA256[:])
	mac.Write([]byte("console session"))
	return credential{digest: t.SHA256, who: who, expires: t.Expires, session: hex.EncodeToString(mac.Sum(nil)), short: t.Length > 0 && t.Length < LeastToken}
}

// Keep has the sessions kept where other dispatchers find them. It comes before the first request.
func (g *Guard) Keep(store Sessions) { g.sessions.store = store }

// LogIn gives a browser that shows a token its cookie, and says whether it was one. after is when an address may try again that has shown too many wrong ones; 0: now.
func (g *Guard) LogIn(w http.ResponseWriter, r *http.Request, token string) (ok bool, after time.Duration) {
	if g.Open() {
		return true, 0
	}
	c, after, known := g.shown(r, token)
	if !known {
		return false, after
	}
	lasts := SessionFor
	if !c.expires.IsZero() {
		lasts = min(lasts, time.Until(c.expires))
	}
	g.begin(w, r, c.who, lasts, func(string) string { return c.session })
	return true, 0
}

// begin gives a browser the cookie of a new session, which holds text of its id.
func (g *Guard) begin(w http.ResponseWriter, r *http.Request, who roles.Identity, lasts time.Duration, text func(id string) string) {
	note(r, who)
	id := rand.Text()
	g.sessions.begin(r.Context(), id, text(id), lasts)
	http.SetCookie(w, g.cookie(r, id, int(lasts/time.Second)))
}

// LogOut ends a browser's session, wherever its cookie is.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{secureCookie, cookieName} {
		if c, err := r.Cookie(name); err == nil {
			g.sessions.end(r.Context(), c.Value)
		}
	}
	http.SetCookie(w, g.cookie(r, "", -1))
}

func (g *Guard) cookie(r *http.Request, value string, age int) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: g.in.Load().secure || byTLS(r), SameSite: http.SameSiteStrictMode}
	if c.Secure {
		c.Name = secureCookie
	}
	return c
}

// session returns the token that a request's cookie stands for.
func (g *Guard) session(r *http.Request) (credential, bool) {
	for _, name := range []string{secureCookie, cookieName} {
		cookie, err := r.Cookie(name)
		if err != nil || cookie.Value == "" {
			continue
		}
		text, in := g.sessions.find(r.Context(), cookie.Value), g.in.Load()
		if c, is := in.ofSession(cookie.Value, text); is {
			return c, true
		}
		for _, c := range in.tokens {
			if text != "" && hmac.Equal([]byte(text), []byte(c.session)) && c.lives() {
				return c, true
			}
		}
	}
	return credential{}, false
}

// storeTime bounds what is asked of the store of sessions.
const storeTime = 2 * time.Second

func (s *sessions) begin(ctx context.Context, id, text string, lasts time.Duration) {
	s.remember(id, text, time.Now().Add(lasts))
	if s.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	_ = s.store.Keep(ctx, id, text, lasts) // the other dispatchers ask for the token then
}

func (s *sessions) remember(id, text string, ends time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for old, one := range s.all {
		if now.After(one.ends) || len(s.all) >= mostSessions {
			delete(s.all, old)
		}
	}
	if s.all == nil {
		s.all = map[string]session{}
	}
	s.all[id] = session{text, ends}
}

// find returns what a session holds; empty: there is none.
func (s *sessions) find(ctx context.Context, id string) string {
	s.mu.Lock()
	mine := s.all[id]
	s.mu.Unlock()
	if time.Now().After(mine.ends) {
		mine.text = ""
	}
	if s.store == nil {
		return mine.text
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	text, err := s.store.Find(ctx, id)
	if err != nil { // the page says that Redis is away, and not that nobody has logged in
		return mine.text
	}
	switch {
	case text == "": // it has ended, perhaps at another dispatcher
		s.forget(id)
	case mine.text == "":
		s.remember(id, text, time.Now().Add(SessionFor))
	}
	return text
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

func (s *sessions) end(ctx context.Context, id string) {
	s.forget(id)
	if s.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	_ = s.store.Drop(ctx, id) // it ends by itself
}
