package config

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Sign says how calls are signed: by an HMAC of Content with a secret shared with the gateway, or with a
// private key.
type Sign struct {
	// Header is the header with Value. Empty = calls are not signed.
	Header string
	// Value is the header's text, with {signature} and perhaps {timestamp}. Default {signature}.
	Value string
	// Secret is the HMAC key, decoded. It is empty if PrivateKey is set, and if Options.Secrets is off and a
	// variable in it is not set.
	Secret Secret
	// PrivateKey is a key in PEM (see Key). It is empty if Secret is set, and if Options.Secrets is off and a
	// variable in it is not set.
	PrivateKey Secret
	// JWS makes the signature a detached JWS (RFC 7515, appendix F). Nil = the bare signature.
	JWS *JWS
	// Algorithm is the HMAC's digest, sha256 (default) or sha512, or an algorithm for private keys.
	Algorithm string
	// Content is what is signed, with {timestamp} {method} {path} {query} {body} {id} and {key} filled in. Default {timestamp}.{body}; {body} in a JWS.
	Content string
	// Encoding of the signature is hex (default) or base64.
	Encoding string
	// TimestampHeader is the header with the attempt's timestamp. Empty = none.
	TimestampHeader string
	// Timestamp is its format: unix (default), unix-ms or rfc3339.
	Timestamp string
}

// defaultSign returns the defaults for signed calls.
func defaultSign() Sign {
	return Sign{Value: "{signature}", Algorithm: "sha256", Content: "{timestamp}.{body}", Encoding: "hex", Timestamp: "unix"}
}

func (r *reader) sign(n node, s *Sign) {
	*s = defaultSign()
	secretIs := "text"
	r.object(n,
		field{"header", r.word(&s.Header, checkSignHeader)},
		field{"value", r.word(&s.Value, checkSignValue)},
		field{"secret", r.secret(&s.Secret, checkSignSecret)},
		field{"private_key", r.secret(&s.PrivateKey, checkPrivateKey)},
		field{"jws", func(n node) { r.jws(n, s) }},
		field{"secret_encoding", r.word(&secretIs, choice("an encoding of a secret", "text", "hex", "base64"))},
		field{"algorithm", r.word(&s.Algorithm, choice("an algorithm of signatures", signAlgorithms()...))},
		field{"content", r.word(&s.Content, checkSignContent)},
		field{"encoding", r.word(&s.Encoding, choice("an encoding of a signature", "hex", "base64"))},
		field{"timestamp_header", r.word(&s.TimestampHeader, checkSignHeader)},
		field{"timestamp", r.word(&s.Timestamp, choice("a way to write a time", "unix", "unix-ms", "rfc3339"))},
	)
	if !r.written(n.path + ".header") {
		r.missing(n.path+".header", "name the header that carries the signature, like X-Signature")
	}
	r.signKey(n.path, s)
	r.checkJWS(n.path, s)
	r.decode(n.path+".secret", &s.Secret, secretIs)
}

// decode decodes a secret that is written as hex or base64.
func (r *reader) decode(path string, s *Secret, from string) {
	var key []byte
	var err error
	switch from {
	case "hex":
		key, err = hex.DecodeString(s.Reveal())
	case "base64":
		key, err = base64.StdEncoding.DecodeString(s.Reveal())
	default:
		return
	}
	if err != nil {
		r.fault(path, "is not %s, as secret_encoding says: compare it with what the gateway gave you", from)
		return
	}
	*s = Secret(key)
}

// checkSign reports settings that contradict a signature.
func (r *reader) checkSign(path string, q *Request) {
	if q.Sign.Header == "" {
		return
	}
	s := q.Sign
	if strings.Contains(s.Content, "{timestamp}") && s.TimestampHeader == "" && !strings.Contains(s.Value, "{timestamp}") && !s.JWS.tells("{timestamp}") {
		r.clash(path+".content", path+".header", "a {timestamp} is signed%s that the gateway never gets to see: "+
			`give timestamp_header, or value: "t={timestamp},v1={signature}"`, r.defaulted(path+".content"))
	}
	for field, name := range map[string]string{".header": s.Header, ".timestamp_header": s.TimestampHeader} {
		if name == "" {
			continue
		}
		if strings.EqualFold(name, q.Key.Header()) {
			r.fault(path+field, "%s is the idempotency header: use another one", name)
		}
		for _, own := range q.headerNames() {
			if strings.EqualFold(name, own) {
				r.fault(path+field, "%s is among headers too: take it out there", name)
			}
		}
	}
	if strings.EqualFold(s.Header, s.TimestampHeader) {
		r.fault(path+".timestamp_header", "%s carries the signature: use another one", s.Header)
	}
}

func checkSignSecret(text string) string {
	if text == "" {
		return "is empty: name the variable or file with the secret"
	}
	return ""
}

func checkSignHeader(name string) string {
	if name == "" {
		return "is empty: name a header, or take the line out"
	}
	return checkHeaderName(name, nil)
}

var inBraces = regexp.MustCompile(`\{[^{}]*\}`)

// strange returns the rule that a text breaks if it has unknown placeholders.
func strange(text string, known ...string) string {
	for _, found := range inBraces.FindAllString(text, -1) {
		if !slices.Contains(known, found) {
			return "has " + found + " in it, which is unknown: " + strings.Join(known, " ") + " are all there is"
		}
	}
	return ""
}

func checkSignValue(text string) string {
	if !strings.Contains(text, "{signature}") {
		return "has no {signature} in it: write it where the signature belongs, like sha256={signature}"
	}
	if rule := checkHeaderValue(text); rule != "" {
		return rule
	}
	return strange(text, "{signature}", "{timestamp}")
}

func checkSignContent(text string) string {
	if text == "" {
		return "is empty: say what is signed, like {timestamp}.{body}"
	}
	return strange(text, "{timestamp}", "{method}", "{path}", "{query}", "{body}", "{id}", "{key}")
}

func checkProxy(text string) string {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.Scheme != "http" && strings.Contains(text, "://"):
		return "is not an HTTP proxy: its address begins with http://, also where the gateway's begins with https://"
	case err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "is not a proxy's address: write http://user:password@host:port, with special characters of the password as %XX"
	}
	return ""
}

// The signature algorithms: those for a secret, and those for a private key, each with the kind of key.
var (
	macAlgorithms = []string{"sha256", "sha512"}
	keyAlgorithms = []string{"rs256", "ps256", "es256", "es256-raw", "ed25519"}
)

func signAlgorithms() []string { return slices.Concat(macAlgorithms, keyAlgorithms) }

const (
	rsaKey     = "an RSA key"
	p256Key    = "a key on the curve P-256"
	ed25519Key = "an Ed25519 key"
)

var keyFor = map[string]string{"rs256": rsaKey, "ps256": rsaKey, "es256": p256Key, "es256-raw": p256Key, "ed25519": ed25519Key}

// leastRSA is the fewest bits of an RSA key: NIST SP 800-131A allows no shorter one.
const leastRSA = 2048

// signKey reports what is wrong with a signature's key, or that it is missing.
func (r *reader) signKey(path string, s *Sign) {
	secret, private, algorithm := path+".secret", path+".private_key", path+".algorithm"
	switch isMAC := slices.Contains(macAlgorithms, s.Algorithm); {
	case r.written(secret) && r.written(private):
		r.clash(private, secret, "there is a secret too: keep the private key for a signature (rs256 and others), or the secret for HMAC")
		return
	case r.written(secret):
		if !isMAC {
			r.clash(algorithm, secret, "%s signs with a private key, and there is a secret: write private_key, or sha256 or sha512", s.Algorithm)
		}
		return
	case !r.written(private) && isMAC:
		r.missing(secret, `name the variable or file with the secret, like "${SIGNING_SECRET}"`)
		return
	case !r.written(private):
		r.missing(private, `name the file with the key, like "${file:/run/secrets/signing.pem}"`)
		return
	case isMAC:
		r.clash(algorithm, private, "%s%s needs a secret, and there is a private key: write one of %s", s.Algorithm, r.defaulted(algorithm), strings.Join(keyAlgorithms, ", "))
		return
	}
	if other := path + ".secret_encoding"; r.written(other) {
		r.fault(other, "there is no secret: take it out, a private key is always PEM")
	}
	if s.PrivateKey == "" || r.faulted[private] || r.faulted[algorithm] {
		return
	}
	if _, err := s.Key(); err != nil {
		r.fault(private, "%v", err)
	}
}

// Key returns the private key, or nil if there is none. An error says which rule the key breaks for the
// algorithm, and nothing about the key itself. A configuration read without faults has no error here.
func (s Sign) Key() (crypto.Signer, error) {
	if s.PrivateKey == "" {
		return nil, nil
	}
	key, err := parseKey([]byte(s.PrivateKey.Reveal()))
	if err != nil {
		return nil, err
	}
	is := kindOf(key)
	if wanted := keyFor[s.Algorithm]; is != wanted {
		return nil, fmt.Errorf("the key is %s, and %s needs %s: name another file, or write another algorithm", is, s.Algorithm, wanted)
	}
	if k, ok := key.(*rsa.PrivateKey); ok && k.N.BitLen() < leastRSA {
		return nil, fmt.Errorf("the key is an RSA key of %d bits, which is too short: make one of at least %d, and give the gateway its public key", k.N.BitLen(), leastRSA)
	}
	return key, nil
}

func kindOf(key crypto.Signer) string {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return rsaKey
	case ed25519.PrivateKey:
		return ed25519Key
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			return p256Key
		}
		return "a key on the curve " + k.Params().Name
	}
	return "a key of another kind"
}

// parseKey parses the first private key in a PEM.
func parseKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("there is no private key in it: write it in PEM, with -----BEGIN PRIVATE KEY----- in it")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue // curve parameters, or certificates
		}
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok { // the error may quote the key
			return nil, errors.New("the key can't be read: it is damaged, or of a kind that is not RSA, P-256 or Ed25519")
		}
		return signer, nil
	}
}
