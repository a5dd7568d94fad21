package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
)

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
