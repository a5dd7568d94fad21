package gateway

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
)

const (
	maxFormDepth = 100
	// maxForm bounds the encoded form: the names of nested fields repeat, so a form can be far longer than its
	// JSON.
	maxForm = 8 << 20
)

// formEncoder writes JSON as a form while reading it, so that fields keep the order of the payload.
type formEncoder struct {
	in    *json.Decoder
	out   bytes.Buffer
	named int // total length of the names so far, including those of nulls
}

// encodeForm encodes an object as a form: nested a[b]=c, arrays a[0]=x, booleans as words, null omitted,
// numbers as written.
func encodeForm(payload json.RawMessage) ([]byte, error) {
	e := &formEncoder{in: json.NewDecoder(bytes.NewReader(payload))}
	e.in.UseNumber()
	if t, err := e.in.Token(); err != nil || t != json.Delim('{') {
		return nil, invalid("the payload is not a JSON object, and only an object can be sent as a form")
	}
	if err := e.members("", '{', 1); err != nil {
		return nil, err
	}
	return e.out.Bytes(), nil
}

// members writes the rest of an object or array.
func (e *formEncoder) members(prefix string, open json.Delim, depth int) error {
	if depth > maxFormDepth {
		return invalid("the payload is nested deeper than %d, too deep for a form", maxFormDepth)
	}
	for i := 0; e.in.More(); i++ {
		name := strconv.Itoa(i)
		if open == '{' {
			t, err := e.in.Token()
			if err != nil {
				return errBadPayload
			}
			name = url.QueryEscape(t.(string))
		}
		if prefix != "" {
			name = prefix + "[" + name + "]"
		}
		if e.named += len(name); e.named > maxForm {
			return errLongForm
		}
		if err := e.value(name, depth); err != nil {
			return err
		}
	}
	if _, err := e.in.Token(); err != nil {
		return errBadPayload
	}
	return nil
}

var (
	errBadPayload = invalid("the payload is not JSON")
	errLongForm   = invalid("the payload is longer than %d MiB as a form: send less, or use encoding json", maxForm>>20)
)

func (e *formEncoder) value(name string, depth int) error {
	t, err := e.in.Token()
	if err != nil {
		return errBadPayload
	}
	switch t := t.(type) {
	case json.Delim:
		return e.members(name, t, depth+1)
	case string:
		return e.pair(name, url.QueryEscape(t))
	case json.Number:
		return e.pair(name, url.QueryEscape(t.String()))
	case bool:
		return e.pair(name, strconv.FormatBool(t))
	}
	return nil // null is omitted
}

func (e *formEncoder) pair(name, value string) error {
	if e.out.Len()+len(name)+len(value)+2 > maxForm {
		return errLongForm
	}
	if e.out.Len() > 0 {
		e.out.WriteByte('&')
	}
	e.out.WriteString(name)
	e.out.WriteByte('=')
	e.out.WriteString(value)
	return nil
}
