package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Money is an amount in minor units: exact, however large. Currency is upper case; empty where the configuration names none.
type Money struct {
	Minor    *big.Int
	Currency string
}

// mostDigits bounds an amount: more is no amount, and adding it up would take for ever.
const mostDigits = 100

// MoneyOf reads a payload's amount: a whole number in minor units, or a text of one as CSV files have it, at the dotted path
// field, and its currency at the dotted path currency (empty: there is none to read). The error says what is missing; it
// holds nothing of the payload.
func MoneyOf(payload []byte, field, currency string) (Money, error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return Money{}, errors.New("its amount can't be read: the payload is not an object")
	}
	minor, ok := wholeNumber(textAt(object, field))
	if !ok {
		return Money{}, fmt.Errorf("the field %q has no amount in minor units (a whole number)", field)
	}
	m := Money{Minor: minor}
	if currency == "" {
		return m, nil
	}
	if m.Currency = currencyOf(textAt(object, currency)); m.Currency == "" {
		return Money{}, fmt.Errorf("the field %q has no currency that ISO 4217 lists", currency)
	}
	return m, nil
}

func wholeNumber(text string) (*big.Int, bool) {
	if len(text) > mostDigits {
		return nil, false
	}
	return new(big.Int).SetString(text, 10)
}

// valueAt returns what stands at a dotted path; nil where that leads nowhere.
func valueAt(object map[string]any, path string) any {
	key, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := object[key].(map[string]any)
		return valueAt(inner, rest)
	}
	return object[key]
}

// textAt returns the text or number at a dotted path, or "".
func textAt(object map[string]any, path string) string { return textOf(valueAt(object, path)) }

func textOf(value any) string {
	switch v := value.(type) {
	case json.Number:
		return v.String()
	case string:
		return v
	}
	return ""
}

// bookedDigits is the longest amount in the books, so that they can add up thousands of millions of them.
const bookedDigits = 18

// MoneyField is a payload's money as its record and the books have it: "1050 EUR", or "-" if it can't be read, or is too large for
// the books: more than 18 digits. A currency that ISO 4217 does not list is none: each one has fields of its own in the books.
func MoneyField(payload []byte, field, currency string) string {
	m, err := MoneyOf(payload, field, currency)
	if err != nil {
		return "-"
	}
	minor := m.Minor.String()
	if len(strings.TrimPrefix(minor, "-")) > bookedDigits {
		return "-"
	}
	return minor + " " + m.Currency
}

// Booked reads what MoneyField wrote; ok is false where that is no amount: "-", or nothing.
func Booked(text string) (m Money, ok bool) {
	digits, currency, spaced := strings.Cut(text, " ")
	minor, whole := wholeNumber(digits)
	if !spaced || !whole {
		return Money{}, false
	}
	return Money{Minor: minor, Currency: currency}, true
}
