package job

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/bojanz/currency"
)

// Units is the amount in units of its currency, for programs: "9635.86", "1050", "-0.05". It is empty where nobody knows the units: there is no
// currency, or ISO 4217 does not list it.
func (m Money) Units() string {
	if _, listed := currency.GetDigits(m.Currency); !listed {
		return ""
	}
	return strings.ReplaceAll(strings.TrimPrefix(m.String(), m.Currency+" "), ",", "")
}

// FieldsOf returns what stands in a payload at some dotted paths, in their order; nil where a path leads nowhere, and everywhere if the payload is no
// object. Numbers are as they were written, as json.Number.
func FieldsOf(payload []byte, paths []string) []any {
	values := make([]any, len(paths))
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var object map[string]any
	if d.Decode(&object) != nil {
		return values
	}
	for i, path := range paths {
		values[i] = valueAt(object, path)
	}
	return values
}
