package gateway

import (
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

// Sign says how a call is signed with a secret that the gateway knows too (HMAC). The zero Sign: not at all.
type Sign struct {
	// Header carries the signature, as Value has it: a text with {signature} and perhaps {timestamp}. Empty Value means {signature}.
	Header, Value string
	// Secret is the key, as bytes.
	Secret []byte
	// Algorithm is sha256 (also "") or sha512.
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
	hash   func() hash.Hash
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
	var known bool
	if n.hash, known = map[string]func() hash.Hash{"": sha256.New, "sha256": sha256.New, "sha512": sha512.New}[s.Algorithm]; !known {
		return nil, fmt.Errorf("algorithm: %q is unknown: use sha256 or sha512", s.Algorithm)
	}
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
	case len(s.Secret) == 0:
		return errors.New("secret: it is empty")
	case !token(s.Header), s.TimestampHeader != "" && !token(s.TimestampHeader):
		return errors.New("header, timestamp_header: one of them is not a header's name")
	case !printable(s.Value):
		return errors.New("value: it holds a line break or another control character: remove it")
	case !strings.Contains(s.Value, "{signature}"):
		return errors.New("value: it has no {signature}")
	}
	return nil
}

// sign puts the signature of a message into its head. at is the moment of the attempt.
func (s *signer) sign(m *message, call job.Request, at time.Time) {
	stamp, path := s.stamp(at), m.head.URL.EscapedPath()
	if path == "" {
		path = "/" // as it stands in the request
	}
	content := strings.NewReplacer("{timestamp}", stamp, "{method}", m.head.Method, "{path}", path,
		"{query}", m.head.URL.RawQuery, "{body}", string(m.body), "{id}", call.Job.ID, "{key}", call.Key).Replace(s.Content)
	mac := hmac.New(s.hash, s.Secret)
	mac.Write([]byte(content))
	value := strings.NewReplacer("{signature}", s.encode(mac.Sum(nil)), "{timestamp}", stamp).Replace(s.Value)
	set(m.head.Header, s.Header, value)
	if s.TimestampHeader != "" {
		set(m.head.Header, s.TimestampHeader, stamp)
	}
}

func set(h http.Header, name, value string) {
	h[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
}
