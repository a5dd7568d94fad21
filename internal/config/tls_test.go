package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair makes a certificate and its key, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "us"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, made, made, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", bare)
}

// withTLS is a configuration whose sixth line has what is given.
func withTLS(tls string) string {
	return "gateways:\n  stripe:\n    leak: {limits: [1/s]}\n    request:\n      url: https://x.example/\n      tls: " + tls + "\n"
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	_, other := pair(t)
	damaged := "-----BEGIN CERTIFICATE-----\n" + strings.Split(cert, "\n")[1] + "\n-----END CERTIFICATE-----\n"
	file := place(t, map[string]string{"ca.pem": cert, "us.pem": cert, "us.key": key, "other.key": other, "damaged.pem": damaged, "notes.txt": canary,
		"locked.key": strings.ReplaceAll(key, "PRIVATE", "ENCRYPTED PRIVATE")})
	for tls, want := range map[string]string{
		"{ca: ca.pem, cert: us.pem, key: us.key}": "",
		"{ca: away.pem}":                                `6:17: gateways.stripe.request.tls.ca: "away.pem" can't be read: no such file or directory: name a file`,
		"{ca: notes.txt}":                               `tls.ca: "notes.txt" has no certificate in it: name a file in PEM`,
		"{ca: damaged.pem}":                             `tls.ca: "damaged.pem" has a certificate in it that is damaged`,
		"{cert: us.pem}":                                `tls.key: is missing: a certificate goes with its private key: cert alone is no use`,
		"{key: us.key}":                                 `tls.cert: is missing: a certificate goes with its private key: key alone is no use`,
		"{cert: us.pem, key: other.key}":                `6:32: gateways.stripe.request.tls.key: this is no private key of the certificate in cert: name`,
		"{cert: us.pem, key: us.pem}":                   `tls.key: "us.pem" has no private key in it`,
		"{cert: us.pem, key: locked.key}":               `tls.key: "locked.key" has a private key that is encrypted: decrypt it`,
		"{cert: \"\", key: us.key}":                     `tls.cert: "" is empty: name a file, or take the line out`,
		"{cert: us.pem, key: \"-----BEGIN sk_canary\"}": `tls.key: <secret> is the PEM itself: put it into a file`,
		"{cacert: ca.pem}":                              "tls.cacert: unknown key",
	} {
		c, err := Parse(file, []byte(withTLS(tls)), Options{Secrets: true})
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", tls, err)
			} else if conf, err := c.Gateways[0].Request.TLS.Config(); err != nil || len(conf.Certificates) != 1 || !conf.RootCAs.Equal(only(cert)) {
				t.Errorf("%s: %+v, %v", tls, conf, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %s", tls, err, want)
		}
	}
}

// only is a pool of one authority.
func only(cert string) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return pool
}

func TestTLSIsNotForPlainHTTP(t *testing.T) {
	t.Parallel()
	cert, _ := pair(t)
	file := place(t, map[string]string{"ca.pem": cert})
	text := strings.Replace(withTLS("{ca: ca.pem}"), "https:", "http:", 1)
	if _, err := Parse(file, []byte(text), Options{Secrets: true}); err == nil || !strings.Contains(err.Error(), "request.tls: the url is http") {
		t.Error(err)
	}
}

// Who only enqueues may not be allowed to read the key.
func TestTLSFilesAreReadByWhoCallsAlone(t *testing.T) {
	t.Parallel()
	c, err := Parse("/etc/spillway/dispatcher.yaml", []byte(withTLS("{cert: us.pem, key: us.key}")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Gateways[0].Request.TLS; got.KeyFile != filepath.Join("/etc/spillway", "us.key") || got.Key != "" {
		t.Errorf("%+v", got)
	}
}

func TestAPrivateKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprintf("%+v %#v", TLS{Key: canary}, TLS{Key: canary}); strings.Contains(got, canary) {
		t.Error(got)
	}
}
