package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
)

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
