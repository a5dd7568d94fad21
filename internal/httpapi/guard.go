package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// Guard lets in who shows the token: as "Authorization: Bearer TOKEN", or, in a browser, by the cookie of LogIn. All of
// them guard one dispatcher's HTTP side; a Guard without a token lets everybody in. Safe for concurrent use.
type Guard struct{ in atomic.Pointer[access] }

// Access says who is let in.
type Access struct {
	// Token is what callers show. Empty: nobody needs one.
	Token string
	// Previous is let in as well as Token, while callers change from one to the other. Empty: there is none.
	Previous string
	// SecureCookie says that a browser may show its cookie over TLS alone. Default: where the request came by TLS, or a proxy says that it did.
	SecureCookie bool
}

// access is an Access in the form that requests are held against.
type access struct {
	open   bool
	secure bool
	tokens []credential // the one that new cookies are made of first
}

// credential is one token.
type credential struct {
	digest [sha256.Size]byte
	cookie string
}

// cookieName is the cookie's. Its value is made of the token and is not the token; another token makes it worthless.
const cookieName = "spillway_session"

// LoginPath is where a browser without a cookie is sent, if there is a login page.
const LoginPath = "/login"

// NewGuard returns the guard of a token. Empty: nobody needs one.
func NewGuard(token string) *Guard {
	g := &Guard{}
	g.Use(Access{Token: token})
	return g
}

// Use replaces who is let in, for the requests that come from now on. A browser stays let in while the token of its cookie is.
func (g *Guard) Use(a Access) {
	in := &access{open: a.Token == "", secure: a.SecureCookie, tokens: []credential{newCredential(a.Token)}}
	if a.Previous != "" {
		in.tokens = append(in.tokens, newCredential(a.Previous))
	}
	g.in.Store(in)
}

func newCredential(token string) credential {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("console session"))
	return credential{digest: sha256.Sum256([]byte(token)), cookie: hex.EncodeToString(mac.Sum(nil))}
}

// Open says that there is no token: everybody is let in.
func (g *Guard) Open() bool { return g.in.Load().open }

// LogIn gives a browser that shows a token its cookie, and says whether it was one.
func (g *Guard) LogIn(w http.ResponseWriter, r *http.Request, token string) bool {
	in := g.in.Load()
	if !in.open && !in.is(token) {
		return false
	}
	http.SetCookie(w, in.session(r, in.tokens[0].cookie, 0))
	return true
}

// LogOut takes the cookie back.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, g.in.Load().session(r, "", -1))
}

func (a *access) session(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: a.secure || byTLS(r), SameSite: http.SameSiteStrictMode}
}

// byTLS says whether the browser's request came by TLS, to us or to the outermost proxy: what the others added stands behind its word.
func byTLS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	if strings.EqualFold(strings.TrimSpace(first), "https") {
		return true
	}
	hop, _, _ := strings.Cut(r.Header.Get("Forwarded"), ",")
	for pair := range strings.SplitSeq(hop, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "proto") && strings.EqualFold(strings.Trim(value, `"`), "https") {
			return true
		}
	}
	return false
}

// is compares in constant time, over digests, so that not even the token's length shows.
func (a *access) is(token string) bool {
	got, found := sha256.Sum256([]byte(token)), 0
	for _, t := range a.tokens {
		found |= subtle.ConstantTimeCompare(got[:], t.digest[:])
	}
	return found == 1
}

// bearer says whether a request shows a token in its header.
func (a *access) bearer(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return a.open || strings.EqualFold(scheme, "Bearer") && a.is(token)
}

// Knows says whether a request shows a token or a cookie.
func (g *Guard) Knows(r *http.Request) bool {
	in := g.in.Load()
	if in.bearer(r) {
		return true
	}
	c, err := r.Cookie(cookieName)
	found := 0
	for _, t := range in.tokens {
		if err == nil {
			found |= subtle.ConstantTimeCompare([]byte(c.Value), []byte(t.cookie))
		}
	}
	return found == 1
}

// Program lets programs through: only the header counts, which no foreign page can make a browser send.
func (g *Guard) Program(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.in.Load().bearer(r) {
			unauthorized(w)
			return
		}
		letIn(r)
		next.ServeHTTP(w, r)
	})
}

// Person lets people through, by cookie or header. With a login page, a browser that wants to read a page is sent there.
func (g *Guard) Person(login bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g.Knows(r):
			letIn(r)
			next.ServeHTTP(w, r)
		case login && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, LoginPath+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			unauthorized(w)
		}
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	newProblem(codeToken, "this needs the dispatcher's token", "show it as Authorization: Bearer TOKEN").answer(w)
}
