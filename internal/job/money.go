package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Money is an exact amount in minor units, of any size. Currency is in upper case; it is empty if none is
// configured.
type Money struct {
	Minor    *big.Int
	Currency string
}

// mostDigits bounds an amount. A longer one is invalid: summing such amounts would take too long.
const mostDigits = 100

// MoneyOf reads a payload's amount at the dotted path field: a whole number in minor units, or text of one as
// in CSV files. It reads the currency at the dotted path currency, unless that is empty. The error says what is
// missing and contains nothing of the payload.
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

// valueAt returns the value at a dotted path, or nil if there is none.
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

// bookedDigits is the most digits of an amount in stored totals, so that billions of amounts can be summed.
const bookedDigits = 18

// MoneyField returns a payload's money in the form stored in its record and in totals: "1050 EUR". It is "-" if
// the money can't be read, has more than 18 digits, or is in a currency that ISO 4217 does not list: each
// currency has its own fields in the totals.
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

// Booked parses what MoneyField returned. ok is false if there is no amount: "-", or nothing.
func Booked(text string) (m Money, ok bool) {
	digits, currency, spaced := strings.Cut(text, " ")
	minor, whole := wholeNumber(digits)
	if !spaced || !whole {
		return Money{}, false
	}
	return Money{Minor: minor, Currency: currency}, true
}
