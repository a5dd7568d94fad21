package gateway

import (
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"spillway/internal/job"
)

// Sign says how a call is signed: with a secret that the gateway knows too (HMAC), or with a private key. The zero Sign: not at all.
type Sign struct {
	// Header carries the signature, as Value has it: a text with {signature} and perhaps {timestamp}. Empty Value means {signature}.
	Header, Value string
	// Secret is the key of HMAC, as bytes. Empty where there is a Key.
	Secret []byte
	// Key signs where there is no Secret: RSA for rs256 (RSASSA-PKCS1-v1_5) and ps256 (RSASSA-PSS), P-256 for es256 (ASN.1) and es256-raw (r and s), or
	// Ed25519; the digest is SHA-256 but with Ed25519, which has its own.
	Key crypto.Signer
	// JWS makes the signature a detached JWS, for which there is a Key; es256 is raw in it. Nil: the bare signature.
	JWS *JWS
	// Algorithm is sha256 (also "") or sha512 with a Secret, or rs256, ps256, es256, es256-raw or ed25519 with a Key.
	Algorithm string
	// Content is what is signed: a text with any of {timestamp} {method} {path} {query} {body} {id} {key}.
	Content string
	// Encoding of the signature is hex (also "") or base64.
	Encoding string
	// TimestampHeader carries the timestamp of the attempt. Empty = no header does.
	TimestampHeader string
	// Timestamp is written as unix (seconds, also ""), unix-ms or rfc3339.
	Timestamp string
}

// signer makes signatures. Safe for concurrent use.
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

// sign puts the signature of a message into its head. at is the moment of the attempt. An error is of this machine, not of the job.
func (s *signer) sign(m *message, call job.Request, at time.Time) error {
	stamp, path := s.stamp(at), m.head.URL.EscapedPath()
	if path == "" {
		path = "/" // as it stands in the request
	}
	fill := strings.NewReplacer("{timestamp}", stamp, "{method}", m.head.Method, "{path}", path,
		"{query}", m.head.URL.RawQuery, "{body}", string(m.body), "{id}", call.Job.ID, "{key}", call.Key)
	signature, err := s.signature([]byte(fill.Replace(s.Content)), fill)
	if err != nil {
		return &callError{text: "the call can't be signed", local: true} // what the libraries say may cite the key
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

// withSecret returns what makes an HMAC.
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
