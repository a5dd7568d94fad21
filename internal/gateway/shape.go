package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// shape is how calls to one gateway look.
type shape struct {
	url    template
	method string
	form   bool
	header http.Header
	host   string // overrides the URL's, where the headers say Host
	key    job.KeyShape
	signer *signer // nil: calls are not signed
}

var (
	methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	// ownHeaders are written by HTTP itself; a second value would break the message or the connection.
	ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade"}
)

func newShape(cfg Config) (shape, error) {
	s := shape{method: cfg.Method, key: cfg.Key}
	if s.method == "" {
		s.method = http.MethodPost
	}
	if !slices.Contains(methods, s.method) {
		return s, fmt.Errorf("method: %q can't be used: use one of %s", s.method, strings.Join(methods, ", "))
	}
	switch cfg.Encoding {
	case "", "json":
	case "form":
		s.form = true
	default:
		return s, fmt.Errorf("encoding: %q is unknown: use json or form", cfg.Encoding)
	}
	var err error
	if s.url, err = parseTemplate(cfg.URL); err != nil {
		return s, fmt.Errorf("url: %w", err)
	}
	if err := s.checkKey(); err != nil {
		return s, err
	}
	if s.signer, err = newSigner(cfg.Sign); err != nil {
		return s, fmt.Errorf("sign: %w", err)
	}
	return s, s.setHeaders(cfg.Headers)
}

// setHeaders checks and keeps the headers. Errors name a header, never its value.
func (s *shape) setHeaders(headers map[string]string) error {
	s.header = http.Header{"User-Agent": {"spillway"}, "Accept-Encoding": {"identity"}}
	if s.hasBody() {
		s.header.Set("Content-Type", "application/json")
		if s.form {
			s.header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	for name, value := range headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !token(name):
			return fmt.Errorf("headers: %q is not a header's name", name)
		case slices.Contains(ownHeaders, canonical):
			return fmt.Errorf("headers: %s is set by the call itself: remove it", canonical)
		case !printable(value):
			return fmt.Errorf("headers: the value of %s holds a line break or another control character: remove it", canonical)
		case strings.EqualFold(canonical, s.key.Header()):
			return fmt.Errorf("headers: %s carries the idempotency key: remove it", canonical)
		case canonical == "Host":
			s.host = value
		default:
			s.header.Set(canonical, value)
		}
	}
	return nil
}

// Digest is a digest of what the calls of this configuration are made of but for the payload: see job.SentDigest. Where no key
// goes out it has one too: a call that a later key is to cover did not carry it.
func (cfg Config) Digest() string {
	k := cfg.Key
	key := textproto.CanonicalMIMEHeaderKey(k.Header()) + ": " + k.Prefix
	if k.Header() == "" && k.Any() {
		key = k.In + " " + k.Name + ": " + k.Prefix
	}
	if k.Form != "" && k.Form != job.KeyID {
		key += " " + k.Form
	}
	return job.SentDigest(cmp.Or(cfg.Method, http.MethodPost)+" "+cfg.URL, cmp.Or(cfg.Encoding, "json"), key)
}

func (s *shape) hasBody() bool { return s.method != http.MethodGet && s.method != http.MethodDelete }

// message makes a job into a request of that moment. Its errors have the code job.CodeInvalid.
func (s *shape) message(call job.Request, at time.Time) (message, error) {
	payload := call.Job.Payload
	if len(payload) == 0 {
		payload = json.RawMessage("{}")
	}
	if call.Key != "" {
		call.Key = s.key.Text(call.Key)
	}
	target, err := s.url.render(call.Job, payload)
	if err == nil && call.Key != "" {
		target, payload, err = s.keyed(target, payload, call.Key)
	}
	if err != nil {
		return message{}, err
	}
	m := message{head: http.Request{Method: s.method, URL: target, Host: target.Host, Header: s.header.Clone()}}
	m.head.Proto, m.head.ProtoMajor, m.head.ProtoMinor = "HTTP/1.1", 1, 1
	if s.host != "" {
		m.head.Host = s.host
	}
	if name := s.key.Header(); name != "" && call.Key != "" {
		if !headerSafe(call.Key) {
			return message{}, invalid("the idempotency key can't travel in a header: it must be visible ASCII without spaces")
		}
		m.head.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{call.Key}
	}
	if s.hasBody() {
		m.body, err = s.encode(payload)
	}
	if s.signer != nil && err == nil {
		s.signer.sign(&m, call, at)
	}
	return m, err
}

func (s *shape) encode(payload json.RawMessage) ([]byte, error) {
	if s.form {
		return encodeForm(payload)
	}
	return payload, nil
}

// headerSafe says that HTTP carries s unchanged: visible ASCII without spaces. A key may be longer than an id.
func headerSafe(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) < 0
}

// token says that s can be a header's name.
func token(s string) bool {
	return s != "" && headerSafe(s) && !strings.ContainsAny(s, `()<>@,;:\"/[]?={}`)
}
