package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// keys are private keys in PEM, by their names as variables.
func keys(t *testing.T) map[string]string {
	t.Helper()
	must := func(text []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must(nil, err)
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	must(nil, err)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(nil, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(nil, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	must(nil, err)
	pkcs8 := func(key any) string { return block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))) }
	sec1 := must(x509.MarshalECPrivateKey(p256))
	return map[string]string{
		"RSA": pkcs8(long), "RSA1": block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long)), "SHORT": pkcs8(short),
		"EC": pkcs8(p256), "EC1": block("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}) + block("EC PRIVATE KEY", sec1), "P384": pkcs8(p384),
		"ED": pkcs8(ed), "PUBLIC": block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(p256.Public()))), "TEXT": "sk_canary",
		"LOCKED": block("ENCRYPTED PRIVATE KEY", sec1), "DAMAGED": block("PRIVATE KEY", sec1[:40]), "ODD": block("DSA PRIVATE KEY", sec1),
	}
}

func TestPrivateKeysThatSign(t *testing.T) {
	t.Parallel()
	pems := keys(t)
	opt := Options{Secrets: true, Env: func(name string) (string, bool) { text, ok := pems[name]; return text, ok }}
	for key, kinds := range map[string][]string{"RSA": {"rs256", "ps256"}, "RSA1": {"rs256"}, "EC": {"es256", "es256-raw"}, "EC1": {"es256"}, "ED": {"ed25519"}} {
		for _, algorithm := range kinds {
			c, err := Parse("x.yaml", []byte(withRequest(`sign: {header: S, content: "{body}", private_key: "${`+key+`}", algorithm: `+algorithm+`}`)), opt)
			if err != nil {
				t.Errorf("%s %s: %v", key, algorithm, err)
				continue
			}
			s := c.Gateways[0].Request.Sign
			if signer, err := s.Key(); err != nil || signer == nil || s.Content != "{body}" || s.Encoding != "hex" {
				t.Errorf("%s %s: %v, %+v", key, algorithm, err, s)
			}
		}
	}
	const sign = `header: S, content: "{body}", `
	for text, want := range map[string]string{
		`private_key: "${SHORT}", algorithm: rs256`:                      "sign.private_key: the key is an RSA key of 1024 bits, which is too short: make one of at least 2048",
		`private_key: "${RSA}", algorithm: es256`:                        "sign.private_key: the key is an RSA key, and es256 needs a key on the curve P-256",
		`private_key: "${P384}", algorithm: es256`:                       "sign.private_key: the key is a key on the curve P-384, and es256 needs",
		`private_key: "${ED}", algorithm: rs256`:                         "sign.private_key: the key is an Ed25519 key, and rs256 needs an RSA key",
		`private_key: "${EC}", algorithm: ed25519`:                       "and ed25519 needs an Ed25519 key",
		`private_key: "${PUBLIC}", algorithm: es256`:                     `sign.private_key: "${PUBLIC}" has no private key in it`,
		`private_key: "${TEXT}", algorithm: es256`:                       `sign.private_key: "${TEXT}" has no private key in it`,
		`private_key: sk_canary, algorithm: es256`:                       "sign.private_key: <secret> has no private key in it",
		`private_key: "${LOCKED}", algorithm: es256`:                     "has a private key that is encrypted",
		`private_key: "${DAMAGED}", algorithm: es256`:                    "sign.private_key: the key can't be read: it is damaged",
		`private_key: "${ODD}", algorithm: es256`:                        "sign.private_key: there is no private key in it",
		`private_key: "${NONE}", algorithm: es256`:                       "sign.private_key: ${NONE} is not set",
		`private_key: "${EC}", algorithm: es256, secret: a`:              "sign.private_key: there is a secret too",
		`private_key: "${EC}"`:                                           "sign.private_key: sha256 (the default) needs a secret, and there is a private key: write one of rs256",
		`private_key: "${EC}", algorithm: sha512`:                        "sign.algorithm: sha512 needs a secret",
		`secret: a, algorithm: es256`:                                    "sign.algorithm: es256 signs with a private key, and there is a secret",
		`algorithm: es256`:                                               `sign.private_key: is missing: name the file with the key`,
		`private_key: "${EC}", algorithm: es256, secret_encoding: hex`:   "sign.secret_encoding: there is no secret",
		`private_key: "${EC}", algorithm: es256-raw, jws: {}`:            "sign.algorithm: in a JWS, es256 is always raw",
		`private_key: "${EC}", algorithm: es256, encoding: hex, jws: {}`: "sign.encoding: a JWS has an encoding of its own",
		`secret: a, jws: {}`:                                             "sign.jws: a JWS needs a private key, and sha256 (the default) has none",
	} {
		_, err := Parse("x.yaml", []byte(withRequest("sign: {"+sign+text+"}")), opt)
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), "x.yaml:6:") || !strings.Contains(err.Error(), want) || shows(err.Error(), pems) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse("x.yaml", []byte(withRequest(`sign: {header: S, content: "{body}", private_key: "${NONE}", algorithm: es256}`)), Options{Env: opt.Env}); err != nil {
		t.Errorf("a command that makes no calls needs no key: %v", err)
	}
}

// shows reports whether a text contains part of a key.
func shows(text string, pems map[string]string) bool {
	for _, key := range pems {
		for _, line := range strings.Split(key, "\n") {
			if len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(text, line[:16]) {
				return true
			}
		}
	}
	return strings.Contains(text, canary)
}

func TestJWS(t *testing.T) {
	t.Parallel()
	pems := keys(t)
	opt := Options{Secrets: true, Env: func(name string) (string, bool) { text, ok := pems[name]; return text, ok }}
	const head = `sign: {header: S, private_key: "${EC}", algorithm: es256, `
	c, err := Parse("x.yaml", []byte(withRequest(head+`jws: {key_id: k-1, unencoded: true, protected: {iat: "{timestamp}", iss: "C=DE/{name}", n: 7, ok: true, "http://x/aud": [a, 1, false], crit: [iat]}}}`)), opt)
	if err != nil {
		t.Fatal(err)
	}
	want := &JWS{KeyID: "k-1", Unencoded: true, Protected: map[string]any{"iat": "{timestamp}", "iss": "C=DE/stripe", "n": json.Number("7"), "ok": true,
		"http://x/aud": []any{"a", json.Number("1"), false}, "crit": []any{"iat"}}}
	if s := c.Gateways[0].Request.Sign; !reflect.DeepEqual(s.JWS, want) || s.Content != "{body}" {
		t.Errorf("%+v, %s", s.JWS, s.Content)
	}
	for text, rule := range map[string]string{
		`jws: {protected: {alg: none}}`:                           "jws.protected.alg: alg follows from sign.algorithm",
		`jws: {protected: {kid: a}}`:                              "jws.protected.kid: kid follows from key_id",
		`jws: {protected: {b64: false}}`:                          "jws.protected.b64: b64 follows from unencoded",
		`jws: {protected: {a: "{body}"}}`:                         `jws.protected.a: "{body}" has {body} in it, which is unknown`,
		`jws: {protected: {a: ["x", "{nonce}"]}}`:                 "jws.protected.a[1]: ",
		`jws: {protected: {a: {b: 1}}}`:                           "jws.protected.a: this is not a single value",
		`jws: {protected: {crit: iat, iat: 1}}`:                   "jws.protected.crit: is not a list of names",
		`jws: {protected: {crit: [exp], iat: 1}}`:                 `jws.protected.crit: names "exp", which is not among the protected headers`,
		`jws: {key_id: ""}`:                                       `jws.key_id: "" is empty`,
		`content: "{timestamp}.{body}", jws: {protected: {a: 1}}`: "a {timestamp} is signed that the gateway never gets to see",
	} {
		_, err := Parse("x.yaml", []byte(withRequest(head+text+"}")), opt)
		if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), rule) || shows(err.Error(), pems) {
			t.Errorf("%s: %v, want %s", text, err, rule)
		}
	}
	if _, err := Parse("x.yaml", []byte(withRequest(head+`content: "{timestamp}.{body}", jws: {protected: {a: ["{timestamp}"]}}}`)), opt); err != nil {
		t.Errorf("a timestamp in a protected header: %v", err)
	}
}

// Neither a print of the configuration nor config show contains the key, and a reload notices its file.
func TestNobodySeesAPrivateKey(t *testing.T) {
	t.Parallel()
	pems := keys(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "x.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("stripe.pem", pems["EC"])
	write("x.yaml", withRequest(`sign: {header: S, content: "{body}", private_key: "${file:{name}.pem}", algorithm: es256}`))
	c, err := Load(file, Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	var signer crypto.Signer
	if signer, err = c.Gateways[0].Request.Sign.Key(); err != nil || signer == nil || !slices.Contains(c.SecretFiles, filepath.Join(dir, "stripe.pem")) {
		t.Errorf("%v, %v", err, c.SecretFiles)
	}
	asJSON, err := json.Marshal(c)
	if err != nil || shows(string(asJSON), pems) {
		t.Errorf("%v, %s", err, asJSON)
	}
	inline := "|\n          " + strings.ReplaceAll(strings.TrimSpace(pems["EC"]), "\n", "\n          ")
	for _, key := range []string{`"${file:stripe.pem}"`, inline} {
		write("x.yaml", withRequest("sign:\n        header: S\n        content: '{body}'\n        algorithm: es256\n        private_key: "+key))
		if _, err := Load(file, Options{Secrets: true}); err != nil {
			t.Errorf("%v", err)
		}
		text, err := Written(file, nil)
		if err != nil || shows(string(text), pems) || !strings.Contains(string(text), "private_key: ") {
			t.Errorf("%v, %s", err, text)
		}
	}
}
