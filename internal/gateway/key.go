package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"spillway/internal/job"
)

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
