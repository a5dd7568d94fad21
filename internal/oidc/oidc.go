// Package oidc supports logins with an OpenID provider: it checks the provider's tokens, maps logins to roles,
// takes a browser through the provider's login, and logs in the command line by way of another device.
package oidc

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"spillway/internal/roles"
)

const (
	// within bounds each request to the provider.
	within = 5 * time.Second
	// pause is the shortest time between two requests for the same document of the provider.
	pause = 5 * time.Second
	// keysFor is how long keys are used that the provider may have revoked.
	keysFor = time.Hour
	// mostAnswer bounds an answer of the provider, in bytes.
	mostAnswer = 1 << 20
	// skew is the allowed clock difference, in both directions.
	skew = 30 * time.Second
)

// algorithms are the accepted signature algorithms: only asymmetric ones, so that a verifier can't create
// signatures.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// Config says which logins are accepted, and for what.
type Config struct {
	// Issuer is the provider's address, as in its tokens.
	Issuer string
	// ClientID and ClientSecret are the dispatcher's credentials at the provider. Without a secret browsers
	// can't log in.
	ClientID, ClientSecret string
	// Redirect is the address to which the provider redirects browsers. Empty: browsers can't log in.
	Redirect string
	// DeviceClientID is the command line's client id. Empty: ClientID.
	DeviceClientID string
	// Audiences are further accepted audiences of tokens at the API, besides the two clients.
	Audiences []string
	// Scopes are requested in addition to openid.
	Scopes []string
	// Name is the claim with the user's name.
	Name string
	// Session is how long a browser stays logged in. Zero: as long as the provider's token is valid.
	Session time.Duration
	// Rules map logins to roles. The first match gives the role; later matches with the same role add their
	// gateways.
	Rules []roles.Rule
}

// Kind says what is wrong with a login.
type Kind int

// The kinds.
const (
	Away   Kind = iota // the provider can't be reached
	Wrong              // it is not the provider's, or has expired
	Nobody             // it is valid, but has no role here
)

// Error is why a login is rejected.
type Error struct {
	Kind Kind
	// Name is the user's name; only for Nobody, and empty if the login has none.
	Name string
	// Message and Hint are for people, and reveal nothing of a token.
	Message, Hint string
	// Err is for the log. It reveals nothing of a token either.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + short(e.Err.Error())
	}
	return e.Message
}

// Unwrap implements errors.Unwrap.
func (e *Error) Unwrap() error { return e.Err }

// short shortens a text that others have written.
func short(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Provider is the OpenID provider. Nothing is requested from it before someone logs in. It is safe for
// concurrent use.
type Provider struct {
	cfg    Config
	client *http.Client
	key    []byte // seals what browsers and Redis store; nil: browsers can't log in
	now    func() time.Time
	gets   *spaced

	turn  chan struct{} // held while reading the provider's description
	found atomic.Pointer[found]
}

// found is the provider's description.
type found struct {
	provider *oidc.Provider
	keys     oidc.KeySet
	before   oidc.KeySet // the previous ones, for when the provider is unreachable; nil: none
	at       time.Time
}

// New returns a Provider. It requests nothing.
func New(cfg Config) *Provider {
	p := &Provider{cfg: cfg, now: time.Now, turn: make(chan struct{}, 1), gets: &spaced{next: bounded{http.DefaultTransport.(*http.Transport).Clone()}, every: pause}}
	p.client = &http.Client{Timeout: within, Transport: p.gets, CheckRedirect: stay}
	if cfg.ClientSecret != "" && cfg.Redirect != "" {
		p.key, _ = hkdf.Key(sha256.New, []byte(cfg.ClientSecret), nil, "spillway console\x00"+cfg.Issuer+"\x00"+cfg.ClientID+"\x00"+cfg.Name, sha256.Size) // it never fails for this length
	}
	return p
}

// stay follows no redirects, so that the client's secret is sent nowhere else.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// ID is equal for providers whose logins are the same.
func (p *Provider) ID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.cfg.Issuer, p.cfg.ClientID, p.cfg.DeviceClientID, strings.Join(p.cfg.Audiences, "\x01"), p.cfg.Name}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Issuer returns the provider's address.
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// Device returns the command line's client, and its scopes.
func (p *Provider) Device() (client string, scopes []string) {
	if p.cfg.DeviceClientID != "" {
		return p.cfg.DeviceClientID, p.scopes()
	}
	return p.cfg.ClientID, p.scopes()
}

func (p *Provider) scopes() []string { return append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...) }

// Browsers reports whether browsers can log in.
func (p *Provider) Browsers() bool { return p.key != nil }

// Reach reads the provider's description, unless it has been read. The error is an *Error of kind Away.
func (p *Provider) Reach(ctx context.Context) error {
	_, err := p.state(ctx)
	return err
}

// state returns the provider's description. One older than an hour is read again in the background, so that an
// unreachable provider delays nobody.
func (p *Provider) state(ctx context.Context) (*found, error) {
	f := p.found.Load()
	switch {
	case f != nil && p.now().Sub(f.at) < keysFor:
		return f, nil
	case f != nil:
		select {
		case p.turn <- struct{}{}:
			go func() {
				defer func() { <-p.turn }()
				_, _ = p.discover(context.WithoutCancel(ctx)) // on failure the old one stays
			}()
		default:
		}
		return f, nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, p.away(ctx.Err())
	}
	if f = p.found.Load(); f != nil {
		return f, nil
	}
	return p.discover(ctx)
}

// discover reads the provider's description. The caller holds turn.
func (p *Provider) discover(ctx context.Context) (*found, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.cfg.Issuer)
	if err != nil {
		return nil, p.away(err)
	}
	said, err := described(provider, p.cfg.Issuer)
	if err != nil {
		return nil, p.away(err)
	}
	f := &found{provider: provider, at: p.now(), keys: oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), said.Keys)}
	if old := p.found.Load(); old != nil {
		f.before = old.keys
	}
	p.found.Store(f)
	return f, nil
}

// description is the part of a provider's description that the library does not read.
type description struct {
	Keys   string   `json:"jwks_uri"`
	Login  string   `json:"authorization_endpoint"`
	Tokens string   `json:"token_endpoint"`
	Device string   `json:"device_authorization_endpoint"`
	Revoke string   `json:"revocation_endpoint"`
	Scopes []string `json:"scopes_supported"`
}

// described reads a description, and refuses one that leads from https to http.
func described(provider *oidc.Provider, issuer string) (d description, err error) {
	if err := provider.Claims(&d); err != nil {
		return d, err
	}
	if d.Keys == "" || d.Tokens == "" {
		return d, errors.New("its description names no keys or no token endpoint")
	}
	for _, at := range []string{d.Keys, d.Login, d.Tokens, d.Device, d.Revoke} {
		if strings.HasPrefix(issuer, "https://") && at != "" && !strings.HasPrefix(at, "https://") {
			return d, errors.New("its description leads away from https")
		}
	}
	return d, nil
}

// away returns the error for an unreachable provider.
func (p *Provider) away(err error) *Error {
	return &Error{Kind: Away, Message: "the OpenID provider " + p.cfg.Issuer + " can't be asked, so logins with it can't be taken now",
		Hint: "try again soon; tokens of the configuration go on", Err: err}
}

// oauth2 returns the library's form of the client.
func (p *Provider) oauth2(f *found) *oauth2.Config {
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.Redirect, Endpoint: f.provider.Endpoint(), Scopes: p.scopes()}
}

// bounded ends the reading of an answer with an error if it is too long: the libraries read all of it into memory.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	got, err := b.next.RoundTrip(r)
	if err == nil {
		got.Body = http.MaxBytesReader(nil, got.Body, mostAnswer)
	}
	return got, err
}

// spaced spaces requests, so that invalid tokens can't make the same document be requested again and again.
type spaced struct {
	next  http.RoundTripper
	every time.Duration

	mu   sync.Mutex
	last map[string]time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *spaced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		if ago, soon := s.soon(r.URL.String()); soon {
			return nil, fmt.Errorf("it was asked %s ago, and is asked again %s after that", ago.Round(time.Millisecond), s.every)
		}
	}
	return s.next.RoundTrip(r)
}

func (s *spaced) soon(url string) (ago time.Duration, soon bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, asked := s.last[url]; asked && time.Since(at) < s.every {
		return time.Since(at), true
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[url] = time.Now()
	return 0, false
}

// LooksLike reports whether a text has the form of a provider's signed token.
func LooksLike(token string) bool {
	return strings.Count(token, ".") == 2 && strings.HasPrefix(token, "ey")
}

// Check returns the login of a provider's token, an id token or an access token. The error is an *Error.
func (p *Provider) Check(ctx context.Context, token string) (Login, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	got, err := p.verify(ctx, token, append([]string{p.cfg.ClientID, p.cfg.DeviceClientID}, p.cfg.Audiences...)...)
	if err != nil {
		return Login{}, err
	}
	return p.login(got)
}

// verify checks issuer, audience and expiry of a token.
func (p *Provider) verify(ctx context.Context, token string, audiences ...string) (*oidc.IDToken, error) {
	f, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	keys := &keys{of: f}
	got, err := oidc.NewVerifier(p.cfg.Issuer, keys, &oidc.Config{SkipClientIDCheck: true, // checked below, for several audiences
		SupportedSigningAlgs: algorithms, Now: func() time.Time { return p.now().Add(-skew) }}).Verify(ctx, token)
	if keys.away != nil {
		return nil, p.away(keys.away)
	}
	if ended, is := errors.AsType[*oidc.TokenExpiredError](err); is {
		return nil, &Error{Kind: Wrong, Message: "the login has ended", Hint: "log in again: dispatcher login, or at the console", Err: ended}
	}
	if err == nil && !slices.ContainsFunc(got.Audience, func(one string) bool { return one != "" && slices.Contains(audiences, one) }) {
		err = errors.New("it is made for another audience")
	}
	if err == nil && got.Subject == "" {
		err = errors.New("it does not say whose it is")
	}
	if err != nil {
		return nil, &Error{Kind: Wrong, Message: "the token is none that the OpenID provider made for this dispatcher", Hint: "log in again", Err: err}
	}
	return got, nil
}

// keys are the provider's keys; it remembers whether they could be read.
type keys struct {
	of   *found
	away error
}

// unread is part of the library's error if it could not read the keys. It has no type for that; a test guards
// the text.
const unread = "fetching keys"

// VerifySignature implements oidc.KeySet.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.of.keys.VerifySignature(ctx, token)
	if err == nil || !strings.HasPrefix(err.Error(), unread) {
		return payload, err
	}
	if k.of.before != nil {
		if payload, again := k.of.before.VerifySignature(ctx, token); again == nil {
			return payload, nil
		}
	}
	k.away = err
	return nil, err
}
