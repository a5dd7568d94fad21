package oidc

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"spillway/internal/roles"
)

// LoginFor is how long a login with the provider may take.
const LoginFor = 10 * time.Minute

// begun is what a browser stores, sealed, while it is at the provider.
type begun struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Next     string    `json:"next"`
	Ends     time.Time `json:"ends"`
}

// sealedBegun is the purpose for which it is sealed.
const sealedBegun = "a login that was begun"

// Begin returns where to send a browser, and what it must store until it returns, on its way to the page next.
// The error is an *Error.
func (p *Provider) Begin(ctx context.Context, next string) (to, kept string, err error) {
	if p.key == nil {
		return "", "", wrong("no browser can log in with the OpenID provider here", "set oidc.client_secret and oidc.redirect", nil)
	}
	f, err := p.state(ctx)
	if err != nil {
		return "", "", err
	}
	b := begun{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Ends: p.now().Add(LoginFor)}
	to = p.oauth2(f).AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier))
	return to, p.seal(sealedBegun, marshal(b)), nil
}

// errorCode matches an error code of RFC 6749.
var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// Finish logs in a browser that returns from the provider, with the query of its request and what it stored. It
// returns the page to which it was going. The error is an *Error.
func (p *Provider) Finish(ctx context.Context, query url.Values, kept string) (l Login, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*within)
	defer cancel()
	var b begun
	text, opened := p.open(sealedBegun, kept)
	if !opened || json.Unmarshal(text, &b) != nil || p.now().After(b.Ends) {
		return l, "", wrong("this browser has not begun to log in here, or more than "+LoginFor.String()+" ago", "log in again, at the address that oidc.redirect names", nil)
	}
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(b.State)) != 1 {
		return l, "", wrong("this is the end of another login than the one that this browser began", "log in again", nil)
	}
	if iss := query.Get("iss"); iss != "" && iss != p.cfg.Issuer {
		return l, "", wrong("another provider than "+p.cfg.Issuer+" sent this", "log in again", nil)
	}
	if code := query.Get("error"); code != "" {
		if !errorCode.MatchString(code) {
			code = "an error of its own"
		}
		return l, "", wrong("the OpenID provider refused the login: "+code, "log in again, or ask the provider's administrator", nil)
	}
	token, err := p.exchange(ctx, query.Get("code"), b.Verifier)
	if err != nil {
		return l, "", err
	}
	l, err = p.ofBrowser(ctx, token, b.Nonce)
	return l, b.Next, err
}

func wrong(message, hint string, err error) *Error {
	return &Error{Kind: Wrong, Message: message, Hint: hint, Err: err}
}

// exchange exchanges a code for the id token.
func (p *Provider) exchange(ctx context.Context, code, verifier string) (string, error) {
	f, err := p.state(ctx)
	if err != nil {
		return "", err
	}
	got, err := p.oauth2(f).Exchange(oidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(verifier))
	if said, is := errors.AsType[*oauth2.RetrieveError](err); is && said.Response.StatusCode < 500 {
		reason := said.ErrorCode
		if !errorCode.MatchString(reason) {
			reason = said.Response.Status
		}
		return "", wrong("the OpenID provider does not take what the browser came back with: "+reason, "log in again; if it says so each time, check oidc.client_id, client_secret and redirect", nil)
	}
	if err != nil {
		return "", p.away(cleaned(err))
	}
	token, _ := got.Extra("id_token").(string)
	if token == "" {
		return "", wrong("the OpenID provider gave no id token", "is it an OpenID provider, and does its client have the scope openid?", nil)
	}
	return token, nil
}

// cleaned keeps answers, which the library's errors quote, out of the log.
func cleaned(err error) error {
	if said, is := errors.AsType[*oauth2.RetrieveError](err); is {
		return errors.New("it answered " + said.Response.Status)
	}
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err
	}
	return errors.New("its answer can't be read")
}

// ofBrowser checks the id token of a browser's login.
func (p *Provider) ofBrowser(ctx context.Context, token, nonce string) (l Login, err error) {
	got, err := p.verify(ctx, token, p.cfg.ClientID)
	if err != nil {
		return l, err
	}
	var of struct {
		Party string `json:"azp"`
	}
	if subtle.ConstantTimeCompare([]byte(got.Nonce), []byte(nonce)) != 1 {
		return l, wrong("the OpenID provider's token is of another login", "log in again", errors.New("the nonce is another one"))
	}
	if err := got.Claims(&of); err != nil || of.Party != "" && of.Party != p.cfg.ClientID {
		return l, wrong("the OpenID provider's token is for another program", "log in again", err)
	}
	if l, err = p.login(got); err != nil {
		return l, err
	}
	if p.cfg.Session > 0 {
		l.Ends = p.now().Add(p.cfg.Session)
	}
	_, err = p.Who(l)
	return l, err
}

// Seal returns the text for a login in a browser's session. It can be made only with the client's secret, and
// is bound to one session.
func (p *Provider) Seal(session string, l Login) string {
	return p.seal("the session "+session, marshal(l))
}

// Open returns the login in a session's text, and whether the text is valid.
func (p *Provider) Open(session, text string) (l Login, is bool) {
	plain, is := p.open("the session "+session, text)
	return l, is && json.Unmarshal(plain, &l) == nil
}

func (p *Provider) gcm() cipher.AEAD {
	block, err := aes.NewCipher(p.key)
	if err != nil {
		return nil // without a key
	}
	sealer, _ := cipher.NewGCMWithRandomNonce(block) // it never fails for AES
	return sealer
}

func (p *Provider) seal(what string, text []byte) string {
	return base64.RawURLEncoding.EncodeToString(p.gcm().Seal(nil, nil, text, []byte(what)))
}

func (p *Provider) open(what, text string) ([]byte, bool) {
	sealer := p.gcm()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || sealer == nil {
		return nil, false
	}
	plain, err := sealer.Open(nil, nil, raw, []byte(what))
	return plain, err == nil
}

// Login is a logged-in user, according to the provider.
type Login struct {
	Name string `json:"name"`
	// Has is the claims of the login that rules refer to.
	Has []Has `json:"has,omitempty"`
	// Ends is when it expires.
	Ends time.Time `json:"ends"`
}

// Has is a value of a claim.
type Has struct {
	Claim string `json:"claim"`
	Is    string `json:"is"`
}

// mostName bounds a name, in bytes.
const mostName = 100

// login extracts the login from a checked token.
func (p *Provider) login(t *oidc.IDToken) (l Login, err error) {
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return l, &Error{Kind: Wrong, Message: "the token can't be read", Err: err}
	}
	names := values(claims, p.cfg.Name)
	if len(names) != 1 {
		return l, &Error{Kind: Nobody, Message: fmt.Sprintf("the login does not say who it is: it has no claim %q, which oidc.name asks for", p.cfg.Name),
			Hint: "have the provider put the claim into its tokens, or name another one in oidc.name"}
	}
	unverified := !verified(claims["email_verified"])
	if p.cfg.Name == "email" && unverified {
		return l, &Error{Kind: Nobody, Message: "the provider has not verified the e-mail address of the login, so it says nothing of who it is", Hint: "have the address verified there, or name another claim in oidc.name"}
	}
	l.Name, l.Ends = strings.ToLower(names[0]), t.Expiry
	if !isName(l.Name) {
		return Login{}, &Error{Kind: Nobody, Message: fmt.Sprintf("the claim %q of the login is not a name for the trail: up to %d ASCII characters without spaces", p.cfg.Name, mostName),
			Hint: "name another claim in oidc.name"}
	}
	for _, r := range p.cfg.Rules {
		if r.Claim == "email" && unverified {
			continue // unverified: anyone may have entered it
		}
		if has := (Has{r.Claim, r.Is}); slices.Contains(values(claims, r.Claim), r.Is) && !slices.Contains(l.Has, has) {
			l.Has = append(l.Has, has)
		}
	}
	return l, nil
}

// verified reports whether a claim email_verified says so. Providers that verify all addresses send none; some send
// it as a text.
func verified(claim any) bool {
	text, is := claim.(string)
	return claim == nil || claim == true || is && strings.EqualFold(text, "true")
}

// isName refuses names that are hard to tell from others in a list: with blanks, or with similar letters of
// other scripts.
func isName(name string) bool {
	return name != "" && len(name) <= mostName && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' })
}

// values returns the texts of a claim, by its literal name, or else by a dotted path.
func values(claims map[string]any, claim string) (all []string) {
	at, is := claims[claim]
	for inner, rest, more := claims, claim, true; !is && more; {
		var head string
		if head, rest, more = strings.Cut(rest, "."); !more {
			at = inner[head]
			break
		}
		if inner, more = inner[head].(map[string]any); !more {
			return nil
		}
	}
	switch v := at.(type) {
	case string:
		return []string{v}
	case bool:
		return []string{strconv.FormatBool(v)}
	case []any:
		for _, one := range v {
			if text, is := one.(string); is {
				all = append(all, text)
			}
		}
	}
	return all
}

// Who returns the identity of a login. The error is an *Error of kind Nobody, or Wrong if it has expired.
func (p *Provider) Who(l Login) (who roles.Identity, err error) {
	if !p.now().Add(-skew).Before(l.Ends) {
		return who, &Error{Kind: Wrong, Message: "the login has ended", Hint: "log in again"}
	}
	for _, r := range p.cfg.Rules {
		if !slices.Contains(l.Has, Has{r.Claim, r.Is}) || who.Role != "" && who.Role != r.Role {
			continue
		}
		first := who.Role == ""
		switch {
		case first:
			who = roles.Identity{Name: l.Name, Role: r.Role, Gateways: slices.Clone(r.Gateways), Proof: roles.ByLogin}
		case len(who.Gateways) == 0 || len(r.Gateways) == 0:
			who.Gateways = nil // for all gateways
		default:
			who.Gateways = append(who.Gateways, r.Gateways...)
		}
	}
	if who.Role == "" {
		return who, &Error{Kind: Nobody, Name: l.Name, Message: "you are logged in as " + l.Name + ", and nothing in the login gives you a role here",
			Hint: "ask who keeps the configuration: oidc.roles says which " + p.claims() + " has which role"}
	}
	slices.Sort(who.Gateways)
	who.Gateways = slices.Compact(who.Gateways)
	return who, nil
}

// claims lists the claims that rules refer to.
func (p *Provider) claims() string {
	var all []string
	for _, r := range p.cfg.Rules {
		if !slices.Contains(all, r.Claim) {
			all = append(all, r.Claim)
		}
	}
	return cmp.Or(strings.Join(all, " or "), "claim")
}

// marshal encodes values that JSON can always represent.
func marshal(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}
