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
		"{cert: us.pem, key: other.key}":                `6:32: gateways.stripe.request.tls.key: this is not a private key of the certificate in cert: name`,
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

// A user that only enqueues may not be allowed to read the key.
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

// Every command reads the files of Redis, unlike those of a gateway.
func TestTheTLSOfRedis(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	file := place(t, map[string]string{"ca.pem": cert, "us.pem": cert, "us.key": key, "notes.txt": canary})
	const at = "{url: \"rediss://:sk_canary@h:1/0\""
	for redis, want := range map[string]string{
		at + ", tls: {ca: ca.pem, cert: us.pem, key: us.key, server_name: redis.internal}}": "",
		at + "}": "",
		"{url: \"redis-cluster://h:1,h:2?tls=true\", tls: {ca: ca.pem}}":         "",
		"{url: \"redis-sentinel://h:1/0?master=m&tls=true\", tls: {ca: ca.pem}}": "",
		at + ", tls: {ca: away.pem}}":                                            `redis.tls.ca: "away.pem" can't be read: no such file or directory`,
		at + ", tls: {ca: notes.txt}}":                                           `redis.tls.ca: "notes.txt" has no certificate in it`,
		at + ", tls: {cert: us.pem}}":                                            `redis.tls.key: is missing: a certificate goes with its private key`,
		at + ", tls: {server_name: \"redis.internal:6379\"}}":                    `redis.tls.server_name: "redis.internal:6379" is not a name of a server`,
		at + ", tls: {authority: ca.pem}}":                                       "redis.tls.authority: unknown key",
		at + ", ca: ca.pem}":                                                     "redis.ca: unknown key: use one of url, tls",
		"{tls: {ca: ca.pem}}":                                                    "redis.url: is missing: write where Redis is",
		"{url: http://x}":                                                        "redis.url: <secret> is not a Redis address",
		"{url: \"redis://:sk_canary@h:1/0\", tls: {ca: ca.pem}}":                 "redis.tls: the address of Redis is one without TLS: take tls out, or write rediss://",
		"{url: \"redis-cluster://h:1?tls=false\", tls: {ca: ca.pem}}":            "redis.tls: the address of Redis is one without TLS",
	} {
		c, err := Parse(file, []byte("redis: "+redis+minimal), Options{})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: %v, want %s", redis, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", redis, err)
			continue
		}
		own := strings.Contains(redis, "us.pem")
		conf, err := c.RedisTLS.Config()
		if err != nil || (conf != nil) != strings.Contains(redis, "tls: {") || own && (conf.ServerName != "redis.internal" || len(conf.Certificates) != 1 || !conf.RootCAs.Equal(only(cert))) {
			t.Errorf("%s: %+v, %v", redis, conf, err)
		}
		if c.RedisAt.Line != 1 || c.RedisAt.Column < 9 {
			t.Errorf("%s: it stands at %+v", redis, c.RedisAt)
		}
	}
}

func TestAPrivateKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprintf("%+v %#v", TLS{Key: canary}, TLS{Key: canary}); strings.Contains(got, canary) {
		t.Error(got)
	}
}
