package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"spillway/internal/oidc"
)

// sessionOfLogin is the prefix of the text of a session that began with a login.
const sessionOfLogin = "oidc "

// The cookie of a browser that is at the provider. Unlike a session's cookie, it is sent when the provider
// redirects the browser back.
const (
	begunCookie       = "spillway_login"
	secureBegunCookie = "__Host-" + begunCookie
)

// ofLogin returns the credential for a login with the provider. The error is an *oidc.Error.
func (a *access) ofLogin(l oidc.Login) (credential, error) {
	if a.provider == nil {
		return credential{}, &oidc.Error{Kind: oidc.Wrong, Message: "there are no logins with a provider any more"}
	}
	who, err := a.provider.Who(l)
	return credential{who: who, expires: l.Ends, session: a.provider.ID(), login: &l}, err
}

// ofSession returns the credential for the text of a session that began with a login, and whether it did.
func (a *access) ofSession(id, text string) (credential, bool) {
	sealed, is := strings.CutPrefix(text, sessionOfLogin)
	if !is || a.provider == nil {
		return credential{}, false
	}
	l, is := a.provider.Open(id, sealed)
	if !is {
		return credential{}, false
	}
	c, err := a.ofLogin(l)
	return c, err == nil
}

// provided returns the credential for a token of the provider.
func (g *Guard) provided(r *http.Request, in *access, token string) (credential, *problem) {
	l, err := in.provider.Check(r.Context(), token)
	var c credential
	if err == nil {
		if c, err = in.ofLogin(l); err == nil {
			return c, nil
		}
	}
	e, _ := err.(*oidc.Error)
	g.tellOf(r, e)
	c.who.Name = e.Name
	switch e.Kind {
	case oidc.Away:
		p := newProblem(codeUnavailable, e.Message, e.Hint)
		return c, &p
	case oidc.Nobody:
		p := newProblem(codeForbidden, e.Message, e.Hint)
		return c, &p
	}
	if after := g.failed(origin(r)); after > 0 {
		return c, tooMany(after)
	}
	p := newProblem(codeToken, e.Message, e.Hint)
	return c, &p
}

// tellOf logs why a login was rejected.
func (g *Guard) tellOf(r *http.Request, e *oidc.Error) {
	g.log.Warn("a login with the OpenID provider was not taken", "why", e.Error(), "name", e.Name, "from", origin(r))
}

// Provider returns the address of the provider for browser logins, empty if there is none, and whether tokens
// are accepted as well.
func (g *Guard) Provider() (issuer string, tokens bool) {
	in := g.in.Load()
	if in.provider != nil && in.provider.Browsers() {
		issuer = in.provider.Issuer()
	}
	return issuer, len(in.tokens) > 0
}

// BeginLogin sends a browser to the provider, which sends it back to FinishLogin, on its way to the page next.
// Its error is an *oidc.Error.
func (g *Guard) BeginLogin(w http.ResponseWriter, r *http.Request, next string) error {
	in := g.in.Load()
	if in.provider == nil {
		return noProvider()
	}
	to, kept, err := in.provider.Begin(r.Context(), next)
	if err != nil {
		return g.said(r, err)
	}
	http.SetCookie(w, g.begun(r, kept, int(oidc.LoginFor/time.Second)))
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// FinishLogin gives a browser that returns from the provider its session, and returns the page to which it was
// going. Its error is an *oidc.Error.
func (g *Guard) FinishLogin(w http.ResponseWriter, r *http.Request) (next string, err error) {
	in := g.in.Load()
	if in.provider == nil {
		return "", noProvider()
	}
	kept := ""
	for _, name := range []string{begunCookie, secureBegunCookie} {
		if c, err := r.Cookie(name); err == nil {
			kept = c.Value
		}
	}
	http.SetCookie(w, g.begun(r, "", -1))
	l, next, err := in.provider.Finish(r.Context(), r.URL.Query(), kept)
	if err != nil {
		return "", g.said(r, err)
	}
	c, err := in.ofLogin(l)
	if err != nil {
		return "", g.said(r, err)
	}
	lasts := max(time.Second, min(SessionFor, time.Until(l.Ends)))
	g.begin(w, r, c.who, lasts, func(id string) string { return sessionOfLogin + in.provider.Seal(id, l) })
	return next, nil
}

func (g *Guard) begun(r *http.Request, value string, age int) *http.Cookie {
	c := g.cookie(r, value, age)
	c.Name, c.SameSite = begunCookie, http.SameSiteLaxMode
	if c.Secure {
		c.Name = secureBegunCookie
	}
	return c
}

func noProvider() error {
	return &oidc.Error{Kind: oidc.Wrong, Message: "logins with an OpenID provider are not configured", Hint: "set oidc in the configuration"}
}

// said logs why a login was rejected.
func (g *Guard) said(r *http.Request, err error) error {
	if e, is := err.(*oidc.Error); is {
		g.tellOf(r, e)
	}
	return err
}

// Reach logs if the provider can't be reached now. Only logins depend on it.
func (g *Guard) Reach(ctx context.Context) {
	in := g.in.Load()
	if in.provider == nil {
		return
	}
	if err := in.provider.Reach(ctx); err != nil {
		g.log.Warn("logins with the OpenID provider can't be taken now; payments and tokens go on", "error", err)
	}
}

// Device returns the provider, client and scopes for command-line logins; empty if there are none.
func (g *Guard) Device() (issuer, client string, scopes []string) {
	in := g.in.Load()
	if in.provider == nil {
		return "", "", nil
	}
	client, scopes = in.provider.Device()
	return in.provider.Issuer(), client, scopes
}
