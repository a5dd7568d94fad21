package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
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
	if err == nil && s.hasBody() {
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

func (s *shape) encode(payload json.RawMessage) ([]byte, error) {
	if s.form {
		return encodeForm(payload)
	}
	return payload, nil
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

// insert returns a JSON object with an additional field, at a path of objects. It creates missing objects and
// leaves everything else as written.
func insert(object json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	name, rest := path[0], path[1:]
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, invalid("the idempotency key goes into the body as %s, and the payload has no object there", strings.Join(path, "."))
	}
	begin, empty := d.InputOffset(), true
	for d.More() {
		empty = false
		key, err := d.Token()
		var old json.RawMessage
		if err == nil {
			err = d.Decode(&old)
		}
		if err != nil {
			return nil, invalid("the payload is not JSON")
		}
		if key != name {
			continue
		}
		if len(rest) == 0 {
			return nil, invalid("the payload has a field %s, where the gateway's idempotency key goes: leave it out", name)
		}
		inner, err := insert(old, rest, value)
		if err != nil {
			return nil, err
		}
		end := d.InputOffset()
		return join(object[:end-int64(len(old))], inner, object[end:]), nil
	}
	for i := len(rest) - 1; i >= 0; i-- {
		value = join([]byte("{"), named(rest[i]), value, []byte("}"))
	}
	if !empty {
		value = join(value, []byte(","))
	}
	return join(object[:begin], named(name), value, object[begin:]), nil
}

// named returns a field's name as JSON, followed by a colon.
func named(name string) json.RawMessage {
	text, _ := json.Marshal(name) // a string can always be encoded
	return append(text, ':')
}

func join(parts ...[]byte) json.RawMessage { return bytes.Join(parts, nil) }

// Strip returns a JSON object without some fields (dotted paths). Everything else stays as written. A missing
// field is no error. A value that is not an object is returned unchanged.
func Strip(payload json.RawMessage, fields []string) (json.RawMessage, error) {
	if len(fields) == 0 {
		return payload, nil
	}
	paths := make([][]string, len(fields))
	for i, field := range fields {
		paths[i] = strings.Split(field, ".")
	}
	return strip(payload, paths)
}

// strip splits an object into its members, and joins those that stay.
func strip(object json.RawMessage, paths [][]string) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return object, nil
	}
	begin := d.InputOffset()
	kept, at, changed := [][]byte{}, begin, false
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, errBadPayload
		}
		end := d.InputOffset()
		drop, within := below(paths, name)
		member := object[at:end]
		if len(within) > 0 && !drop {
			inner, err := strip(value, within)
			if err != nil {
				return nil, err
			}
			changed = changed || len(inner) < len(value)
			member = join(object[at:end-int64(len(value))], inner)
		}
		gap := end + int64(bytes.IndexAny(object[end:], ",}")) // only white space lies between
		if gap < end {
			return nil, errBadPayload
		}
		if drop {
			changed = true
		} else {
			kept = append(kept, join(member, object[end:gap]))
		}
		if at = gap; object[gap] == ',' {
			at++
		}
	}
	if !changed {
		return object, nil
	}
	return join(object[:begin], bytes.Join(kept, []byte(",")), object[at:]), nil
}

// below reports whether a member is one of the fields, and returns the fields within it.
func below(paths [][]string, name json.Token) (itself bool, within [][]string) {
	for _, p := range paths {
		switch {
		case name != p[0]:
		case len(p) == 1:
			itself = true
		default:
			within = append(within, p[1:])
		}
	}
	return itself, within
}
