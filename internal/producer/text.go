package producer

import (
	"bytes"
	"encoding/json"
)

// compact returns a JSON value without white space between its tokens. It copies only if there was some.
func (r *Reader) compact(value []byte) json.RawMessage {
	if !r.json.spaces {
		return value[:len(value):len(value)]
	}
	return appendCompact(make([]byte, 0, len(value)), value)
}

// appendCompact appends valid JSON without the white space between its tokens.
func appendCompact(dst, value []byte) []byte {
	inString := false
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = value[i]
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(inner) // unreachable: the parser has validated it
	}
	return s
}

// appendQuoted appends s as a JSON string that escapes only what must be escaped.
func appendQuoted(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		n := 0
		for n < len(s) && plain[s[n]] {
			n++
		}
		dst, s = append(dst, s[:n]...), s[n:]
		if len(s) == 0 {
			break
		}
		switch c := s[0]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		s = s[1:]
	}
	return append(dst, '"')
}
