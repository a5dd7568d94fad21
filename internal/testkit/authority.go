package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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
