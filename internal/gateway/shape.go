package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// shape is the form of calls to one gateway.
type shape struct {
	url    template
	method string
	form   bool
	header http.Header
	jobs   []jobHeader // those with placeholders
	host   string      // overrides the URL's, if the headers set Host
	strip  []string
	key    job.KeyShape
	signer *signer // nil: calls are not signed
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

func newShape(cfg Config) (shape, error) {
	s := shape{method: cfg.Method, strip: cfg.Strip, key: cfg.Key}
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
	if s.url, err = parseTemplate(cfg.URL, cfg.place()); err != nil {
		return s, fmt.Errorf("url: %w", err)
	}
	if err := s.checkKey(); err != nil {
		return s, err
	}
	if s.signer, err = newSigner(cfg.Sign); err != nil {
		return s, fmt.Errorf("sign: %w", err)
	}
	if err := s.setHeaders(cfg.Headers); err != nil {
		return s, err
	}
	return s, s.setJobHeaders(cfg.JobHeaders)
}

func (s *shape) hasBody() bool { return s.method != http.MethodGet && s.method != http.MethodDelete }

// message makes a job into a request at that time. Its errors have the code job.CodeInvalid.
func (s *shape) message(call job.Request, at time.Time) (message, error) {
	payload := call.Job.Payload
	if len(payload) == 0 {
		payload = json.RawMessage("{}")
	}
	if call.Key != "" {
		call.Key = s.key.Text(call.Key)
	}
	v := &values{job: call.Job, payload: payload}
	target, err := s.url.render(v)
	if err == nil && s.hasBody() && len(s.strip) > 0 {
		payload, err = Strip(payload, s.strip)
	}
	if err == nil && call.Key != "" {
		target, payload, err = s.keyed(target, payload, call.Key)
	}
	if err != nil {
		return message{}, err
	}
	m, err := s.head(call, target, v)
	if err == nil && s.hasBody() {
		m.body, err = s.encode(payload)
	}
	if s.signer != nil && err == nil {
		err = s.signer.sign(&m, call, at)
	}
	return m, err
}

// message is a prepared call. Tries differ only in the context and the body's reader.
type message struct {
	head http.Request // without body
	body []byte
}

// request returns a request that net/http can't replay: its body has no GetBody, and an empty body is still a
// body. A POST with an empty body must be sent with Content-Length: 0, which net/http does only for no body at
// all; there only the gate prevents a replay.
func (m *message) request(ctx context.Context) *http.Request {
	r := m.head.WithContext(ctx)
	lacksBody := r.Method == http.MethodGet || r.Method == http.MethodDelete
	if lacksBody || len(m.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(m.body))
		r.ContentLength = int64(len(m.body))
	}
	return r
}

// head makes a message without a body.
func (s *shape) head(call job.Request, target *url.URL, v *values) (message, error) {
	m := message{head: http.Request{Method: s.method, URL: target, Host: target.Host, Header: s.header.Clone()}}
	m.head.Proto, m.head.ProtoMajor, m.head.ProtoMinor = "HTTP/1.1", 1, 1
	if s.host != "" {
		m.head.Host = s.host
	}
	if call.Bearer != "" {
		m.head.Header.Set("Authorization", "Bearer "+call.Bearer)
	}
	if name := s.key.Header(); name != "" && call.Key != "" {
		if !headerSafe(call.Key) {
			return message{}, invalid("the idempotency key can't travel in a header: it must be visible ASCII without spaces")
		}
		m.head.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{call.Key}
	}
	if len(s.jobs) == 0 {
		return m, nil
	}
	return m, s.fill(m.head.Header, v)
}

// headerSafe reports whether HTTP carries s unchanged: visible ASCII without spaces. A key may be longer than
// an id.
func headerSafe(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func (s *shape) encode(payload json.RawMessage) ([]byte, error) {
	if s.form {
		return encodeForm(payload)
	}
	return payload, nil
}

// keyed puts the key into the query or the body, if it belongs there.
func (s *shape) keyed(target *url.URL, payload json.RawMessage, key string) (*url.URL, json.RawMessage, error) {
	switch s.key.In {
	case job.KeyInQuery:
		with := *target
		if with.RawQuery != "" {
			with.RawQuery += "&"
		}
		with.RawQuery += url.QueryEscape(s.key.Name) + "=" + url.QueryEscape(key)
		return &with, payload, nil
	case job.KeyInBody:
		value, err := json.Marshal(key)
		if err == nil {
			payload, err = insert(payload, strings.Split(s.key.Name, "."), value)
		}
		return target, payload, err
	}
	return target, payload, nil
}

// checkKey returns why keys can't be where they are configured, or nil.
func (s *shape) checkKey() error {
	if name := s.key.Header(); name != "" && !token(name) {
		return fmt.Errorf("key.name: %q is not a header's name", name)
	}
	if s.key.In == job.KeyInQuery && s.url.base.Query().Has(s.key.Name) {
		return fmt.Errorf("key.name: the url has a parameter %s already, and the gateway may take that for every job's key: take it out there", s.key.Name)
	}
	if s.key.In == job.KeyInBody && !s.hasBody() {
		return fmt.Errorf("key.in: a %s has no body for the key: use header or query", s.method)
	}
	if !headerSafe(s.key.Prefix) {
		return fmt.Errorf("idempotency_prefix: %q can't travel in a header: use visible ASCII characters without spaces", s.key.Prefix)
	}
	return nil
}

// Digest returns a digest of how the calls of this configuration are formed, without the payload (see
// job.SentDigest). Calls without a key have a digest, too, because a key configured later can't make an earlier
// call safe.
func (cfg Config) Digest() string {
	k := cfg.Key
	key := textproto.CanonicalMIMEHeaderKey(k.Header()) + ": " + k.Prefix
	if k.Header() == "" && k.Any() {
		key = k.In + " " + k.Name + ": " + k.Prefix
	}
	if k.Form != "" && k.Form != job.KeyID {
		key += " " + k.Form
	}
	encoding := cmp.Or(cfg.Encoding, "json")
	if len(cfg.Strip) > 0 {
		encoding += " without " + strings.Join(slices.Sorted(slices.Values(cfg.Strip)), " ")
	}
	return job.SentDigest(cmp.Or(cfg.Method, http.MethodPost)+" "+cfg.URL, encoding, key, asConfigured(cfg.JobHeaders))
}

// place returns the parser for the URL's placeholders.
func (cfg Config) place() func(string) (part, error) {
	if cfg.places != nil {
		return cfg.places
	}
	return parsePlace
}
