package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"spillway/internal/oidc"
	"spillway/internal/roles"
)

// Guard authenticates requests: by "Authorization: Bearer TOKEN" or, in a browser, by the cookie of LogIn. A
// Guard without tokens accepts every request. It is safe for concurrent use.
type Guard struct {
	in       atomic.Pointer[access]
	sessions sessions
	guesses  guesses
	log      *slog.Logger
	wrong    func()
}

// Access says who has access.
type Access struct {
	// Token gives full access. Empty: there is none.
	Token string
	// Previous is accepted as well as Token, while callers change from one to the other. Empty: there is none.
	Previous string
	// Tokens have names and roles.
	Tokens []roles.Token
	// Provider is the OpenID provider for logins. Nil: there is none. Without Token, Tokens and Provider,
	// everyone has access.
	Provider *oidc.Provider
	// SecureCookie restricts the cookie to TLS. Default: if the request came over TLS, or a proxy says that it
	// did.
	SecureCookie bool
}

// Open reports whether everyone has access.
func (a Access) Open() bool { return a.Token == "" && len(a.Tokens) == 0 && a.Provider == nil }

// LeastToken is the length of a token, in bytes, from which on it can't be guessed.
const LeastToken = 16

// access is an Access prepared for checking requests.
type access struct {
	open     bool
	secure   bool
	tokens   []credential
	provider *oidc.Provider // nil: none
}

// credential is one token, or a login with the provider.
type credential struct {
	digest  [sha256.Size]byte
	who     roles.Identity
	expires time.Time
	session string // content of its sessions
	short   bool   // it can be guessed
	login   *oidc.Login
}

func (c credential) lives() bool { return c.expires.IsZero() || time.Now().Before(c.expires) }

// LoginPath is where browsers without a cookie are sent, if there is a login page.
const LoginPath = "/login"

// NewGuard returns a Guard for one token. Empty: no token is needed.
func NewGuard(token string) *Guard {
	g := &Guard{log: slog.New(slog.DiscardHandler), wrong: func() {}}
	g.Use(Access{Token: token})
	return g
}

// Tell sets the log and metrics for wrong and expired tokens. It must be called before the first request.
func (g *Guard) Tell(log *slog.Logger, m *Metrics) { g.log, g.wrong = log, m.wrongToken }

// Use replaces who has access, for requests from now on. A browser stays logged in while the token of its login
// is valid.
func (g *Guard) Use(a Access) {
	in := &access{open: a.Open(), secure: a.SecureCookie, provider: a.Provider}
	everything := roles.Identity{Role: roles.Admin, Proof: roles.BySharer}
	for _, text := range []string{a.Token, a.Previous} {
		if text != "" {
			in.tokens = append(in.tokens, newCredential(roles.Token{SHA256: sha256.Sum256([]byte(text)), Length: len(text)}, everything))
		}
	}
	if a.Token != "" && a.Previous != "" {
		in.tokens[1].session = in.tokens[0].session // logins with the old token stay valid when it is removed
		in.tokens = append(in.tokens, credential{who: everything, session: newCredential(roles.Token{SHA256: in.tokens[1].digest}, everything).session})
	}
	for _, t := range a.Tokens {
		in.tokens = append(in.tokens, newCredential(t, roles.Identity{Name: t.Name, Person: t.Person, Role: t.Role, Gateways: t.Gateways, Proof: roles.ByToken}))
	}
	g.in.Store(in)
}

// Open reports whether everyone has access because there is no token.
func (g *Guard) Open() bool { return g.in.Load().open }

// byTLS reports whether the browser's request came over TLS, to this server or to the outermost proxy, whose
// entry precedes those of the others.
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

// is returns the credential for a token. It compares digests in constant time, and all of them, so that neither
// a token's length nor a similar token is revealed.
func (a *access) is(token string) (found credential, known bool) {
	got, at := sha256.Sum256([]byte(token)), -1
	for i := range a.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(got[:], a.tokens[i].digest[:]), i, at)
	}
	if at < 0 || token == "" {
		return found, false
	}
	return a.tokens[at], true
}

// shown returns the credential for a token from an address. after is when an address that has presented too
// many wrong tokens may try again; 0: now.
func (g *Guard) shown(r *http.Request, token string) (who credential, after time.Duration, known bool) {
	from := origin(r)
	c, is := g.in.Load().is(token)
	if is && c.lives() && g.guesses.lets(from, c) {
		return c, 0, true
	}
	if is && !c.lives() {
		g.log.Warn("an expired token was shown", "name", c.who.Name, "expired", c.expires, "from", from)
	}
	return credential{}, g.failed(from), false
}

// failed counts a wrong token from an address, and returns when the address may try again; 0: now.
func (g *Guard) failed(from string) time.Duration {
	g.wrong()
	after, first := g.guesses.failed(from)
	if first {
		g.log.Warn("many wrong tokens were shown from one address: further ones are refused without a word", "from", from, "again_after", after)
	}
	return after
}

// who returns the sender of a request, by its header or else its cookie, or why it is refused. A known sender
// without a role is returned, too.
func (g *Guard) who(r *http.Request, cookies bool) (credential, *problem) {
	in := g.in.Load()
	if in.open {
		return credential{who: roles.Everybody()}, nil
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return g.bearer(r, in, token)
	}
	if cookies {
		if c, known := g.session(r); known {
			return c, nil
		}
	}
	return credential{}, unauthorized()
}

// bearer returns the credential for a token in the header: a configured one, or one of the provider.
func (g *Guard) bearer(r *http.Request, in *access, token string) (credential, *problem) {
	if _, is := in.is(token); !is && in.provider != nil && oidc.LooksLike(token) {
		return g.provided(r, in, token)
	}
	c, after, known := g.shown(r, token)
	switch {
	case known:
		return c, nil
	case after > 0:
		return c, tooMany(after)
	}
	return c, unauthorized()
}

// still reports whether a sender would have the same access now.
func (g *Guard) still(was credential) bool {
	in := g.in.Load()
	if was.login != nil {
		c, err := in.ofLogin(*was.login)
		return err == nil && c.session == was.session && c.same(was)
	}
	return in.open || slices.ContainsFunc(in.tokens, func(c credential) bool { return c.session == was.session && c.lives() && c.same(was) })
}

// takenOut reports whether a sender's token or rule was removed or changed since. A token or login that has only
// expired was not: what it began may go on.
func (g *Guard) takenOut(was credential) bool {
	in := g.in.Load()
	if was.login != nil {
		l := *was.login
		l.Ends = time.Now().Add(time.Hour)
		c, err := in.ofLogin(l)
		return err != nil || c.session != was.session || !c.same(was)
	}
	return !in.open && !slices.ContainsFunc(in.tokens, func(c credential) bool { return c.session == was.session && c.same(was) })
}

// same reports whether two credentials have the same access.
func (c credential) same(other credential) bool {
	return c.who.Role == other.who.Role && slices.Equal(c.who.Gateways, other.who.Gateways)
}

type (
	stillIn  struct{}
	takenOut struct{}
)

// isStillIn reports whether the sender of a request would be accepted again. Long requests check it from time
// to time, because the token may have expired or been removed.
func isStillIn(r *http.Request) bool {
	still, is := r.Context().Value(stillIn{}).(func() bool)
	return !is || still()
}

// Knows reports whether a request has a valid token or cookie.
func (g *Guard) Knows(r *http.Request) bool {
	if _, known := roles.Of(r.Context()); known { // authenticated before
		return true
	}
	_, no := g.who(r, true)
	return no == nil
}

// Program admits programs whose role meets a need. Only the header counts, because a foreign page can't make a
// browser send it.
func (g *Guard) Program(need roles.Need, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.let(w, r, need, next, entry{}) })
}

// Person admits people whose role meets a need, by cookie or header. With a login page, a browser that requests
// a page is sent there.
func (g *Guard) Person(login bool, need roles.Need, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.let(w, r, need, next, entry{cookies: true, login: login && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")})
	})
}

// entry says which ways of authentication are possible: by cookie, and by the login page.
type entry struct{ cookies, login bool }

// let passes a request on with its sender.
func (g *Guard) let(w http.ResponseWriter, r *http.Request, need roles.Need, next http.Handler, by entry) {
	c, no := g.who(r, by.cookies)
	if no != nil {
		g.refuse(w, r, c, no, by)
		return
	}
	who := c.who
	letIn(r)
	note(r, who)
	r = traced(r)
	if p := lacks(who, need); p != nil {
		p.answer(w)
		return
	}
	ctx := context.WithValue(roles.With(r.Context(), who), stillIn{}, func() bool { return g.still(c) })
	ctx = context.WithValue(ctx, takenOut{}, func() bool { return g.takenOut(c) })
	ctx = context.WithValue(ctx, ends{}, c.expires)
	next.ServeHTTP(w, r.WithContext(ctx))
}

// refuse answers a request that is refused.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, c credential, no *problem, by entry) {
	switch {
	case no.Code == codeToken && by.login:
		http.Redirect(w, r, LoginPath+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	case no.Code == codeToken:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case no.Code == codeGuesses:
		refuse(w, time.Second)
	}
	note(r, c.who)
	no.answer(w)
}

// shows describes how a request authenticates, for people.
func shows(who roles.Identity) string {
	if who.Proof == roles.ByLogin {
		return "the login of " + who.Name
	}
	return "the token " + who.Name
}

// lacks returns the problem that a role does not meet a need; nil if it does.
func lacks(who roles.Identity, need roles.Need) *problem {
	if who.May(need) {
		return nil
	}
	p := newProblem(codeForbidden, "this needs the role "+need.String()+", and "+shows(who)+" has the role "+string(who.Role), "ask who keeps the configuration for that role")
	p.NeedsRole, p.Role = need.String(), who.Role
	return &p
}

// partial returns the problem for a sender with access to only some gateways; nil for all.
func partial(who roles.Identity) *problem {
	if !who.Scoped() {
		return nil
	}
	p := newProblem(codeForbidden, "this is about all gateways, and "+shows(who)+" is for some of them", "use a token without gateways")
	p.Role = who.Role
	return &p
}

func unauthorized() *problem {
	p := newProblem(codeToken, "this needs the dispatcher's token", "show it as Authorization: Bearer TOKEN")
	return &p
}

// tokenEnded returns the problem for the rest of a long POST whose token no longer suffices.
func tokenEnded() problem {
	return newProblem(codeToken, "the token has ended, or was taken out or changed, while this was sent", "send the rest again with another token")
}

func tooMany(after time.Duration) *problem {
	p := newProblem(codeGuesses, "too many wrong tokens were shown from this address", "show the right one: it is let in at any time")
	p.RetryAfter = seconds(after)
	return &p
}
