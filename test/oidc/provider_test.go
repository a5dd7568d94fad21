package oidc

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientSecret = "canary-secret-of-the-client"
	password     = "canary-password"
)

// people are those who can log in, by their ids, with their groups.
var people = map[string]struct{ email, groups string }{
	"ann":  {"ann@example.com", "payments-ops everybody"},
	"bob":  {"bob@example.com", "support"},
	"carl": {"carl@example.com", "everybody"},
}

// users are the people in the provider's own form.
type users struct{}

func (users) GetUserByID(id string) *storage.User {
	p, is := people[id]
	if !is {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: password, Email: p.email, EmailVerified: true}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }
func (users) ExampleClientID() string                       { return "none" }

// key is one that signs.
type key struct {
	id      string
	private *rsa.PrivateKey
}

func newKey(t *testing.T, id string) *key {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &key{id, private}
}

func (k *key) ID() string                                  { return k.id }
func (k *key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k *key) Key() any                                    { return k.private }

// public is its other half.
type public struct{ *key }

func (p public) Key() any                         { return p.private.Public() }
func (public) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (public) Use() string                        { return "sig" }

// store is the provider's storage, with groups in its tokens, keys that change, and tokens that expire when the test wants.
type store struct {
	*storage.Storage
	mu   sync.Mutex
	key  *key
	life time.Duration
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, nil
}

func (s *store) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []op.Key{public{s.key}}, nil
}

func (s *store) use(k *key, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.life = k, life
}

func (s *store) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

func (s *store) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, _ []string) error {
	p := people[r.GetSubject()]
	info.Subject, info.Email, info.EmailVerified = r.GetSubject(), p.email, true
	info.AppendClaims("groups", strings.Fields(p.groups))
	return nil
}

// TokenRequestByRefreshToken and RevokeToken name the client of the token: the example's storage forgets it for tokens of a device.
func (s *store) TokenRequestByRefreshToken(ctx context.Context, token string) (op.RefreshTokenRequest, error) {
	r, err := s.Storage.TokenRequestByRefreshToken(ctx, token)
	return ofDevice{r}, err
}

func (s *store) RevokeToken(ctx context.Context, token, user, _ string) *oidc.Error {
	return s.Storage.RevokeToken(ctx, token, user, "")
}

type ofDevice struct{ op.RefreshTokenRequest }

func (ofDevice) GetClientID() string { return "spillway-cli" }

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return client{c, s.life}, nil
}

// client is a client whose id tokens have the claims of its scopes.
type client struct {
	op.Client
	life time.Duration
}

func (client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c client) IDTokenLifetime() time.Duration     { return c.life }

func (c client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
}

// ApplicationType makes the command line a public client.
func (c client) ApplicationType() op.ApplicationType {
	if c.GetID() == "spillway-cli" {
		return op.ApplicationTypeNative
	}
	return c.Client.ApplicationType()
}

// AuthMethod makes the command line need no secret.
func (c client) AuthMethod() oidc.AuthMethod {
	if c.GetID() == "spillway-cli" {
		return oidc.AuthMethodNone
	}
	return c.Client.AuthMethod()
}

// realProvider runs the OpenID provider of github.com/zitadel/oidc, which is certified. The console's client may come back to redirect.
func realProvider(t *testing.T, redirect string) (url string, s *store, srv *httptest.Server) {
	t.Helper()
	var handler http.Handler
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(srv.Close)
	s = &store{key: newKey(t, "k1"), life: 5 * time.Minute}
	s.Storage = storage.NewStorageWithClients(users{}, map[string]*storage.Client{
		"spillway":     storage.WebClient("spillway", clientSecret, redirect),
		"spillway-cli": storage.DeviceClient("spillway-cli", ""),
	})
	handler = exampleop.SetupServer(srv.URL, s, slog.New(slog.DiscardHandler), false)
	return srv.URL, s, srv
}
