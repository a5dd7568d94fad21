package job

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
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

// Sorted returns the sums by currency, in the order of their names.
func (a Amounts) Sorted() []Money {
	var all []Money
	for _, name := range slices.Sorted(maps.Keys(a)) {
		all = append(all, Money{Minor: a[name], Currency: name})
	}
	return all
}

// Of returns the sum of one currency.
func (a Amounts) Of(currency string) *big.Int {
	if sum := a[currency]; sum != nil {
		return sum
	}
	return new(big.Int)
}
