package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Authority is a certificate authority that no system knows.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its own certificate.
	PEM string
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.PEM, a.key = a.sign(a.cert, nil)
	return a
}

// Issue returns a certificate for 127.0.0.1 and for clients, and its key, in PEM. valid is how long it is valid.
func (a *Authority) Issue(name string, valid time.Duration) (cert, key string) {
	a.t.Helper()
	made := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(valid),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, private := a.sign(made, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	a.must(err)
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// sign makes a key and its certificate, signed by the authority's key, or by itself if that is nil.
func (a *Authority) sign(made *x509.Certificate, by *ecdsa.PrivateKey) (string, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	if by == nil {
		by = key
	}
	if made.NotAfter.IsZero() {
		made.NotAfter = time.Now().Add(time.Hour)
	}
	made.NotBefore, made.SerialNumber = made.NotAfter.Add(-1000*time.Hour), big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, made, a.cert, key.Public(), by)
	a.must(err)
	if made == a.cert {
		a.cert, err = x509.ParseCertificate(der)
		a.must(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key
}

// Server returns the configuration of a server with a certificate of this authority. clients, if not nil, is the authority of the clients that it accepts.
func (a *Authority) Server(clients *Authority) *tls.Config {
	a.t.Helper()
	own, err := tls.X509KeyPair(bytesOf(a.Issue("server", 1000*time.Hour)))
	a.must(err)
	conf := &tls.Config{Certificates: []tls.Certificate{own}}
	if clients != nil {
		conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		conf.ClientCAs.AddCert(clients.cert)
	}
	return conf
}

func bytesOf(cert, key string) (c, k []byte) { return []byte(cert), []byte(key) }

// Files writes the authority's certificate to ca.pem, and a new certificate to NAME.pem and NAME.key. It returns the directory.
func (a *Authority) Files(name string, valid time.Duration) (dir string) {
	a.t.Helper()
	dir = a.t.TempDir()
	cert, key := a.Issue(name, valid)
	for file, text := range map[string]string{"ca.pem": a.PEM, name + ".pem": cert, name + ".key": key} {
		a.must(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	return dir
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// Issuer is an OpenID provider that signs what the test wants, also what no real provider would sign.
type Issuer struct {
	// URL is its address.
	URL string
	// Asked is called for each request. It may answer the request itself, and then returns true. It may be nil.
	Asked func(w http.ResponseWriter, r *http.Request) bool

	t    *testing.T
	mu   sync.Mutex
	keys []jose.JSONWebKey // the last one signs
	next map[string]any    // the claims of the next id token
	form url.Values        // of the last request for a token
}

// NewIssuer returns a provider with one key.
func NewIssuer(t *testing.T) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Rotate("k1")
	srv := httptest.NewServer(i)
	t.Cleanup(srv.Close)
	i.URL = srv.URL
	return i
}

// Rotate replaces the key: from now on another key signs, and only that one is published.
func (i *Issuer) Rotate(id string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []jose.JSONWebKey{{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}}
}

// Claims returns the claims of a login of the client "spillway" for a quarter of an hour, changed by the given ones; nil removes a claim.
func (i *Issuer) Claims(with map[string]any) map[string]any {
	now := time.Now()
	all := map[string]any{"iss": i.URL, "aud": "spillway", "sub": "u1", "iat": now.Unix(), "exp": now.Add(15 * time.Minute).Unix(), "email": "ann@example.com", "email_verified": true}
	maps.Copy(all, with)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// Token returns a token with such claims.
func (i *Issuer) Token(with map[string]any) string {
	i.mu.Lock()
	key := i.keys[len(i.keys)-1]
	i.mu.Unlock()
	return i.Signed(jose.SigningKey{Algorithm: jose.ES256, Key: key}, i.Claims(with))
}

// Signed returns a token that a key signs.
func (i *Issuer) Signed(key jose.SigningKey, claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

// Public returns the public key of the one that signs.
func (i *Issuer) Public() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1].Public()
}

// Grant makes the next code be answered with an id token of these claims.
func (i *Issuer) Grant(with map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next = with
}

// Form returns the form of the last request for a token.
func (i *Issuer) Form() url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.form
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i.Asked != nil && i.Asked(w, r) {
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		i.Describe(w, i.URL)
	case "/keys":
		i.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.Public()}})
	case "/token":
		_ = r.ParseForm()
		i.mu.Lock()
		i.form = r.PostForm
		next := i.next
		i.mu.Unlock()
		i.answer(w, map[string]any{"access_token": "opaque", "token_type": "Bearer", "expires_in": 900, "id_token": i.Token(next)})
	default:
		http.NotFound(w, r)
	}
}

// Describe answers with the provider's description, for an address.
func (i *Issuer) Describe(w http.ResponseWriter, as string) {
	i.answer(w, map[string]any{"issuer": as, "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
		"device_authorization_endpoint": i.URL + "/device", "revocation_endpoint": i.URL + "/revoke", "scopes_supported": []string{"openid", "offline_access"}})
}

func (i *Issuer) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
