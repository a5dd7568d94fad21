// Package oidc lets people in who have logged in with an OpenID provider: it checks the provider's tokens, says which role a login has here, leads a browser through the
// provider's login, and has the command line log in on another device.
package oidc

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"spillway/internal/roles"
)

const (
	// within bounds each question to the provider.
	within = 5 * time.Second
	// pause is how long the provider is left alone between two looks at the same document of its.
	pause = 5 * time.Second
	// keysFor is how long keys count that the provider may have taken back.
	keysFor = time.Hour
	// skew is how far the clocks may differ, in both directions.
	skew = 30 * time.Second
)

// algorithms are those of signatures that are taken: with a key pair, so that who can check one can't make one.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// Config says whose logins count, and for what.
type Config struct {
	// Issuer is the provider's address, as its tokens have it.
	Issuer string
	// ClientID and ClientSecret are what the provider knows the dispatcher by. Without a secret no browser can log in.
	ClientID, ClientSecret string
	// Redirect is the address to which the provider sends browsers back. Empty: no browser can log in.
	Redirect string
	// DeviceClientID is what the provider knows the command line by. Empty: ClientID.
	DeviceClientID string
	// Audiences are further ones for whom tokens at the API may be made, beside the two clients.
	Audiences []string
	// Scopes are asked for, beside openid.
	Scopes []string
	// Name is the claim with the name of who has logged in.
	Name string
	// Session is how long a browser stays logged in. Zero: as long as the provider's token lives.
	Session time.Duration
	// Rules say which role a login has. The first that fits gives the role; later ones with the same role add their gateways.
	Rules []Rule
}

// Rule gives those a role whose login says something of them.
type Rule struct {
	// Claim is what has to be Is, or has to have it among its values.
	Claim, Is string
	Role      roles.Role
	// Gateways are those that exist for it. None: all.
	Gateways []string
}

// Kind says what is wrong with a login.
type Kind int

// The kinds.
const (
	Away   Kind = iota // the provider can't be asked
	Wrong              // it is none of the provider's, or has ended
	Nobody             // it is right, and nothing here is for it
)

// Error is why somebody is not let in.
type Error struct {
	Kind Kind
	// Name is who has logged in; of Nobody alone, and empty where the login does not say.
	Name string
	// Message and Hint are for people, and show nothing of a token.
	Message, Hint string
	// Err is what the log hears. It shows nothing of a token either.
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

// short cuts a text that others have written into.
func short(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// Provider is the OpenID provider as a dispatcher sees it. It is asked for nothing before somebody logs in. Safe for concurrent use.
type Provider struct {
	cfg    Config
	client *http.Client
	key    []byte // seals what browsers and Redis keep, under these names; nil: no browser can log in
	now    func() time.Time
	gets   *spaced

	turn  chan struct{} // holds who reads the provider's description
	found atomic.Pointer[found]
}

// found is what the provider says of itself.
type found struct {
	provider *oidc.Provider
	keys     oidc.KeySet
	before   oidc.KeySet // those of an hour ago, for when the provider is away; nil: none
	at       time.Time
}

// New returns the provider. It asks it for nothing.
func New(cfg Config) *Provider {
	p := &Provider{cfg: cfg, now: time.Now, turn: make(chan struct{}, 1), gets: &spaced{next: http.DefaultTransport.(*http.Transport).Clone(), every: pause}}
	p.client = &http.Client{Timeout: within, Transport: p.gets, CheckRedirect: stay}
	if cfg.ClientSecret != "" && cfg.Redirect != "" {
		p.key, _ = hkdf.Key(sha256.New, []byte(cfg.ClientSecret), nil, "spillway console\x00"+cfg.Issuer+"\x00"+cfg.ClientID+"\x00"+cfg.Name, sha256.Size) // of that length it has no error
	}
	return p
}

// stay follows no redirect: the client's secret goes nowhere else.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// ID is the same for providers whose logins are the same.
func (p *Provider) ID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.cfg.Issuer, p.cfg.ClientID, p.cfg.DeviceClientID, strings.Join(p.cfg.Audiences, "\x01"), p.cfg.Name}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Issuer is the provider's address.
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// Device is the client of the command line, and the scopes that it asks for.
func (p *Provider) Device() (client string, scopes []string) {
	if p.cfg.DeviceClientID != "" {
		return p.cfg.DeviceClientID, p.scopes()
	}
	return p.cfg.ClientID, p.scopes()
}

func (p *Provider) scopes() []string { return append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...) }

// Browsers says whether browsers can log in.
func (p *Provider) Browsers() bool { return p.key != nil }

// Reach asks the provider to describe itself, unless it has. The error is an *Error of the kind Away.
func (p *Provider) Reach(ctx context.Context) error {
	_, err := p.state(ctx)
	return err
}

// state returns what the provider says of itself. What is older than an hour is read again in the background, so that a provider that is away holds up nobody.
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
				_, _ = p.discover(context.WithoutCancel(ctx)) // it goes on with the old one
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

// discover reads the provider's description. The caller has the turn.
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

// description is what a provider says of itself, beside what the library reads.
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

// away is the error of a provider that can't be asked.
func (p *Provider) away(err error) *Error {
	return &Error{Kind: Away, Message: "the OpenID provider " + p.cfg.Issuer + " can't be asked, so logins with it can't be taken now",
		Hint: "try again soon; tokens of the configuration go on", Err: err}
}

// oauth2 is the library's form of a client.
func (p *Provider) oauth2(f *found) *oauth2.Config {
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.Redirect, Endpoint: f.provider.Endpoint(), Scopes: p.scopes()}
}

// spaced keeps callers with made-up tokens from having the provider asked again and again for the same document.
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
