package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"spillway/internal/roles"
)

// Sessions stores logins for all dispatchers that a browser may reach. A text is found by its id until it
// expires.
type Sessions interface {
	Keep(ctx context.Context, id, text string, within time.Duration) error
	// Find returns a text; empty: there is none.
	Find(ctx context.Context, id string) (string, error)
	Drop(ctx context.Context, id string) error
}

// SessionFor is how long a browser stays logged in.
const SessionFor = 8 * time.Hour

// mostSessions bounds the sessions that one process remembers itself.
const mostSessions = 10_000

// cookieName is the cookie's name. Its value is the random id of a session. Over TLS its name has a prefix that
// makes browsers accept it only from this host.
const (
	cookieName   = "spillway_session"
	secureCookie = "__Host-" + cookieName
)

// sessions are browsers' sessions. This process remembers those that it has seen, in case the store is
// unreachable or there is none.
type sessions struct {
	store Sessions // nil: none

	mu  sync.Mutex
	all map[string]session
}

type session struct {
	text string // credential.session
	ends time.Time
}

// newCredential returns a token prepared for checking requests. Its sessions contain a text that can be made
// only from the token, and from which the token can't be derived.
func newCredential(t roles.Token, who roles.Identity) credential {
	mac := hmac.New(sha256.New, t.SHA256[:])
	mac.Write([]byte("console session"))
	return credential{digest: t.SHA256, who: who, expires: t.Expires, session: hex.EncodeToString(mac.Sum(nil)), short: t.Length > 0 && t.Length < LeastToken}
}

// Keep sets the store shared by dispatchers. It must be called before the first request.
func (g *Guard) Keep(store Sessions) { g.sessions.store = store }

// LogIn gives a browser that presents a valid token its cookie, and reports whether it was valid. after is when
// an address with too many wrong tokens may try again; 0: now.
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

// begin gives a browser the cookie of a new session, which contains text of its id.
func (g *Guard) begin(w http.ResponseWriter, r *http.Request, who roles.Identity, lasts time.Duration, text func(id string) string) {
	note(r, who)
	id := rand.Text()
	g.sessions.begin(r.Context(), id, text(id), lasts)
	http.SetCookie(w, g.cookie(r, id, int(lasts/time.Second)))
}

// LogOut ends a browser's session everywhere.
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

// session returns the credential for a request's cookie.
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

// storeTime bounds access to the store of sessions.
const storeTime = 2 * time.Second

func (s *sessions) begin(ctx context.Context, id, text string, lasts time.Duration) {
	s.remember(id, text, time.Now().Add(lasts))
	if s.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	_ = s.store.Keep(ctx, id, text, lasts) // other dispatchers then ask for the token
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

// find returns the text of a session; empty: there is none.
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
	if err != nil { // the page then says that Redis is unreachable, not that the user is logged out
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
	_ = s.store.Drop(ctx, id) // it expires
}

// HowToLogIn says how the command line logs in with an OpenID provider. It is empty if there is none.
type HowToLogIn struct {
	Issuer   string   `json:"issuer,omitempty"`
	ClientID string   `json:"client_id,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}

// Whoami describes the owner of a token.
type Whoami struct {
	Name     string      `json:"name,omitempty"` // omitted if the token has none
	Role     roles.Role  `json:"role"`
	Gateways []string    `json:"gateways,omitempty"` // visible gateways; omitted if all are
	Via      roles.Proof `json:"via"`
	// Ends is when the token or login expires; omitted if never.
	Ends *time.Time `json:"ends,omitempty"`
}

func (a *API) howToLogIn(w http.ResponseWriter, _ *http.Request) {
	var how HowToLogIn
	how.Issuer, how.ClientID, how.Scopes = a.cfg.Guard.Device()
	answerJSON(w, how)
}

func (a *API) whoami(w http.ResponseWriter, r *http.Request) {
	who, _ := roles.Of(r.Context())
	answer := Whoami{Name: who.Name, Role: who.Role, Gateways: who.Gateways, Via: who.Proof}
	if ends, _ := r.Context().Value(ends{}).(time.Time); !ends.IsZero() {
		ends = ends.UTC().Truncate(time.Second)
		answer.Ends = &ends
	}
	answerJSON(w, answer)
}

// ends is the context key for when the token or login of a request expires.
type ends struct{}

func answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil { // unreachable: it has only texts and times
		body = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
