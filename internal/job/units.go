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

// Units formats the amount in units of its currency, for programs: "9635.86", "1050", "-0.05". It is empty if
// the units are unknown: there is no currency, or ISO 4217 does not list it.
func (m Money) Units() string {
	if _, listed := currency.GetDigits(m.Currency); !listed {
		return ""
	}
	return strings.ReplaceAll(strings.TrimPrefix(m.String(), m.Currency+" "), ",", "")
}

// FieldsOf returns the values at some dotted paths of a payload, in order. A value is nil if its path leads
// nowhere; all are nil if the payload is not an object. Numbers are json.Number, as written.
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

// Sorted returns the sums ordered by currency.
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
