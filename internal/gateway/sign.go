package gateway

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"spillway/internal/job"
)

// Sign says how calls are signed: with a secret shared with the gateway (HMAC), or with a private key. The zero
// Sign: not at all.
type Sign struct {
	// Header is the header with the signature. Value is its value: a text with {signature} and perhaps
	// {timestamp}. Empty Value means {signature}.
	Header, Value string
	// Secret is the HMAC key. Empty if Key is set.
	Secret []byte
	// Key is the private key, if Secret is empty: RSA for rs256 (RSASSA-PKCS1-v1_5) and ps256 (RSASSA-PSS),
	// P-256 for es256 (ASN.1) and es256-raw (r and s), or Ed25519. The digest is SHA-256, except for Ed25519,
	// which has its own.
	Key crypto.Signer
	// JWS makes the signature a detached JWS, which requires Key; es256 is raw in it. Nil: the bare signature.
	JWS *JWS
	// Algorithm is sha256 (also "") or sha512 with a Secret, or rs256, ps256, es256, es256-raw or ed25519 with a Key.
	Algorithm string
	// Content is what is signed: a text with any of {timestamp} {method} {path} {query} {body} {id} {key}.
	Content string
	// Encoding is the signature's: hex (also "") or base64.
	Encoding string
	// TimestampHeader is the header with the attempt's timestamp. Empty = none.
	TimestampHeader string
	// Timestamp is its format: unix (seconds, also ""), unix-ms or rfc3339.
	Timestamp string
}

// signer makes signatures. It is safe for concurrent use.
type signer struct {
	Sign
	raw    func(content []byte) ([]byte, error)
	encode func([]byte) string
	stamp  func(time.Time) string
}

func newSigner(s Sign) (*signer, error) {
	if s.Header == "" {
		return nil, nil
	}
	n := &signer{Sign: s}
	if n.Value == "" {
		n.Value = "{signature}"
	}
	var err error
	if s.Key != nil {
		n.raw, err = withKey(s.Algorithm, s.Key)
	} else {
		n.raw, err = withSecret(s.Algorithm, s.Secret)
	}
	if err == nil && s.JWS != nil {
		err = s.JWS.check(s.Algorithm)
	}
	if err != nil {
		return nil, err
	}
	var known bool
	if n.encode, known = map[string]func([]byte) string{"": hex.EncodeToString, "hex": hex.EncodeToString, "base64": base64.StdEncoding.EncodeToString}[s.Encoding]; !known {
		return nil, fmt.Errorf("encoding: %q is unknown: use hex or base64", s.Encoding)
	}
	if n.stamp, known = stamps[s.Timestamp]; !known {
		return nil, fmt.Errorf("timestamp: %q is unknown: use unix, unix-ms or rfc3339", s.Timestamp)
	}
	return n, n.check()
}

var stamps = map[string]func(time.Time) string{
	"":        func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) },
	"unix":    func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) },
	"unix-ms": func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) },
	"rfc3339": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}

func (s *signer) check() error {
	switch {
	case !token(s.Header), s.TimestampHeader != "" && !token(s.TimestampHeader):
		return errors.New("header, timestamp_header: one of them is not a header's name")
	case !printable(s.Value):
		return errors.New("value: it holds a line break or another control character: remove it")
	case !strings.Contains(s.Value, "{signature}"):
		return errors.New("value: it has no {signature}")
	}
	return nil
}

// sign adds the signature to a message's head. at is the time of the attempt. An error is a fault of this
// machine, not of the job.
func (s *signer) sign(m *message, call job.Request, at time.Time) error {
	stamp, path := s.stamp(at), m.head.URL.EscapedPath()
	if path == "" {
		path = "/" // as sent in the request
	}
	fill := strings.NewReplacer("{timestamp}", stamp, "{method}", m.head.Method, "{path}", path,
		"{query}", m.head.URL.RawQuery, "{body}", string(m.body), "{id}", call.Job.ID, "{key}", call.Key)
	signature, err := s.signature([]byte(fill.Replace(s.Content)), fill)
	if err != nil {
		return &callError{text: "the call can't be signed", local: true} // the libraries' errors may quote the key
	}
	set(m.head.Header, s.Header, strings.NewReplacer("{signature}", signature, "{timestamp}", stamp).Replace(s.Value))
	if s.TimestampHeader != "" {
		set(m.head.Header, s.TimestampHeader, stamp)
	}
	return nil
}

func (s *signer) signature(content []byte, fill *strings.Replacer) (string, error) {
	if s.JWS != nil {
		return s.detached(content, fill)
	}
	signature, err := s.raw(content)
	return s.encode(signature), err
}

// withSecret returns a function that makes an HMAC.
func withSecret(algorithm string, secret []byte) (func(content []byte) ([]byte, error), error) {
	digest, known := map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha512": sha512.New}[algorithm]
	switch {
	case !known:
		return nil, fmt.Errorf("algorithm: %q is unknown for a secret: use sha256 or sha512", algorithm)
	case len(secret) == 0:
		return nil, errors.New("secret: it is empty")
	}
	return func(content []byte) ([]byte, error) {
		mac := hmac.New(digest, secret)
		mac.Write(content)
		return mac.Sum(nil), nil
	}, nil
}

func set(h http.Header, name, value string) {
	h[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
}

// JWS configures a detached JWS (RFC 7515, appendix F).
type JWS struct {
	// KeyID is the protected header kid. Empty: none.
	KeyID string
	// Unencoded signs the content itself (RFC 7797, b64: false), not its base64.
	Unencoded bool
	// Protected are further protected headers: texts with {timestamp} {method} {path} {query} {id} and {key}
	// filled in, json.Numbers, bools, and lists of these. The text {timestamp} alone is sent as a number,
	// unless the timestamp is in rfc3339.
	Protected map[string]any
}

// jwsAlgorithms maps our algorithm names to those of RFC 7518 and RFC 8037.
var jwsAlgorithms = map[string]jose.SignatureAlgorithm{"rs256": jose.RS256, "ps256": jose.PS256, "es256": jose.ES256, "ed25519": jose.EdDSA}

func (j *JWS) check(algorithm string) error {
	if _, known := jwsAlgorithms[algorithm]; !known {
		return fmt.Errorf("jws: the algorithm %q can't be used: use rs256, ps256, es256 or ed25519, with a private key", algorithm)
	}
	return nil
}

// detached returns a JWS of the content without the content itself.
func (s *signer) detached(content []byte, fill *strings.Replacer) (string, error) {
	options := (&jose.SignerOptions{}).WithBase64(!s.JWS.Unencoded)
	for name, value := range s.JWS.Protected {
		if name == "crit" {
			for _, critical := range value.([]any) {
				options.WithCritical(critical.(string))
			}
			continue
		}
		options.WithHeader(jose.HeaderKey(name), s.protected(value, fill))
	}
	maker, err := jose.NewSigner(jose.SigningKey{Algorithm: jwsAlgorithms[s.Algorithm], Key: jose.JSONWebKey{Key: s.Key, KeyID: s.JWS.KeyID}}, options)
	if err != nil {
		return "", err
	}
	signed, err := maker.Sign(content)
	if err != nil {
		return "", err
	}
	return signed.DetachedCompactSerialize()
}

// protected returns a value ready for JSON encoding.
func (s *signer) protected(value any, fill *strings.Replacer) any {
	switch v := value.(type) {
	case json.Number:
		return json.RawMessage(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = s.protected(v[i], fill)
		}
		return all
	case string:
		text := fill.Replace(v)
		if v == "{timestamp}" && slices.Contains([]string{"", "unix", "unix-ms"}, s.Timestamp) {
			return json.RawMessage(text)
		}
		return text
	}
	return value
}

// withKey returns a function that signs with a private key.
func withKey(algorithm string, key crypto.Signer) (func(content []byte) ([]byte, error), error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		switch algorithm {
		case "rs256":
			return digested(k, crypto.SHA256), nil
		case "ps256":
			return digested(k, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}), nil
		}
	case *ecdsa.PrivateKey:
		switch algorithm {
		case "es256":
			return digested(k, crypto.SHA256), nil
		case "es256-raw":
			return func(content []byte) ([]byte, error) { return rawECDSA(k, content) }, nil
		}
	case ed25519.PrivateKey:
		if algorithm == "ed25519" {
			return func(content []byte) ([]byte, error) { return k.Sign(nil, content, crypto.Hash(0)) }, nil
		}
	}
	return nil, fmt.Errorf("algorithm: %q is unknown for a private key of this kind: use rs256, ps256, es256, es256-raw or ed25519", algorithm)
}

// digested signs the SHA-256 of the content.
func digested(key crypto.Signer, how crypto.SignerOpts) func(content []byte) ([]byte, error) {
	return func(content []byte) ([]byte, error) {
		sum := sha256.Sum256(content)
		return key.Sign(rand.Reader, sum[:], how)
	}
}

// rawECDSA returns r and s concatenated, 32 bytes each, as in JWS.
func rawECDSA(key *ecdsa.PrivateKey, content []byte) ([]byte, error) {
	sum := sha256.Sum256(content)
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	const half = 32
	signature := make([]byte, 2*half)
	r.FillBytes(signature[:half])
	s.FillBytes(signature[half:])
	return signature, nil
}
