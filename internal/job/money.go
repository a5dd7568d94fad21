package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/bojanz/currency"
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
	if n, err := strconv.ParseInt(text, 10, 64); err == nil { // nearly all: much quicker
		return big.NewInt(n), true
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

// AmountRule says where a gateway's payloads have their amount, and bounds the amount of one job.
type AmountRule struct {
	// Field is the dotted path of the amount. Empty means that nothing is checked.
	Field string
	// Currency is the dotted path of the currency code. Empty means that payloads have none.
	Currency string
	// Least and Most bound the amount, in minor units, inclusive.
	Least, Most int64
	// Required makes an amount mandatory, and a currency if Currency is set. If false, both may be absent or
	// null.
	Required bool
}

// MoneyError says why a payload's money can't be used. It contains nothing of the payload.
type MoneyError string

// Error implements error.
func (e MoneyError) Error() string { return string(e) }

func moneyError(format string, args ...any) error { return MoneyError(fmt.Sprintf(format, args...)) }

// Check returns why a payload's money can't be used, or nil. An amount must be a whole number within the
// bounds, and a currency must be listed in ISO 4217. An absent or null value is an error only if it is
// required. The error is a MoneyError.
func (r AmountRule) Check(payload []byte) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return moneyError("its amount can't be read: the payload is not an object")
	}
	amount, code := valueAt(object, r.Field), valueAt(object, r.Currency)
	switch {
	case r.Field != "" && amount == nil && r.Required:
		return moneyError("no amount: the field %q is missing or null, and amount.required asks for it", r.Field)
	case r.Field != "" && amount != nil:
		if err := r.checkAmount(textOf(amount)); err != nil {
			return err
		}
	}
	switch {
	case r.Currency == "":
	case code == nil && r.Required:
		return moneyError("no currency: the field %q is missing or null, and amount.required asks for it", r.Currency)
	case code != nil && currencyOf(textOf(code)) == "":
		return NoCurrency(r.Currency)
	}
	return nil
}

// NoCurrency returns the error for a field whose currency can't be read.
func NoCurrency(field string) error {
	return moneyError("the field %q has no currency that ISO 4217 lists: write its three letters, like EUR", field)
}

func (r AmountRule) checkAmount(text string) error {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return moneyError("the field %q has no amount in minor units: write a whole number, like 1050 for 10.50", r.Field)
	}
	minor, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text[0] == '-' && (err != nil || minor < r.Least), err == nil && minor < r.Least:
		return moneyError("the amount in the field %q is below %d, which amount.least allows", r.Field, r.Least)
	case err != nil || minor > r.Most:
		return moneyError("the amount in the field %q is above %d, which amount.most allows", r.Field, r.Most)
	}
	return nil
}

// Allows reports whether an amount and a currency, as MoneyField writes them, satisfy the rule. False may also
// mean that only Check can tell.
func (r AmountRule) Allows(minor int64, code string) bool {
	return minor >= r.Least && minor <= r.Most && (r.Currency == "" || IsCurrency(code))
}

// CurrencyDigits returns the number of decimal digits of a currency by ISO 4217: 2 for EUR, 0 for JPY, 3 for
// KWD. The code may be in lower case. ok is false if ISO 4217 does not list it.
func CurrencyDigits(code string) (digits int, ok bool) {
	n, ok := currency.GetDigits(currencyOf(code))
	return int(n), ok
}

// IsCurrency reports whether ISO 4217 lists a code, given in upper case.
func IsCurrency(code string) bool {
	_, listed := currency.GetDigits(code)
	return listed
}

// currencyOf returns a currency code in upper case, or "" if ISO 4217 does not list it.
func currencyOf(text string) string {
	if len(text) != 3 {
		return ""
	}
	if code := strings.ToUpper(text); IsCurrency(code) {
		return code
	}
	return ""
}

// String formats the money in units of its currency by ISO 4217: "EUR 9,635.86", "JPY 1,050", "KWD 1.050". If
// the currency is empty or not listed, its units are unknown: "1050 in minor units".
func (m Money) String() string {
	digits, listed := currency.GetDigits(m.Currency)
	if !listed {
		return m.minor() + " in minor units"
	}
	sign, text := "", m.Minor.String()
	if m.Minor.Sign() < 0 {
		sign, text = "-", text[1:]
	}
	if short := int(digits) + 1 - len(text); short > 0 {
		text = strings.Repeat("0", short) + text
	}
	whole, fraction := text[:len(text)-int(digits)], text[len(text)-int(digits):]
	if fraction != "" {
		fraction = "." + fraction
	}
	return m.Currency + " " + sign + grouped(whole) + fraction
}

// minor returns "EUR 963586".
func (m Money) minor() string { return strings.TrimSpace(m.Currency + " " + m.Minor.String()) }

// CountText formats a number for people: "1,000,000".
func CountText(n int64) string {
	text := strconv.FormatInt(n, 10)
	if n < 0 {
		return "-" + grouped(text[1:])
	}
	return grouped(text)
}

// grouped separates thousands by commas.
func grouped(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// MoneyText formats sums in minor units for people, in units of each currency, with the number of jobs that
// have no readable amount: "EUR 9,635.86, GBP 7,424.35, 2 jobs without an amount". It is empty if there is
// nothing to say.
func MoneyText(sums Amounts, without int64) string {
	return moneyList(sums, without, Money.String)
}

// MinorText formats the same for programs, in minor units: "EUR 963586, GBP 742435, 2 jobs without an amount".
func MinorText(sums Amounts, without int64) string {
	return moneyList(sums, without, Money.minor)
}

func moneyList(sums Amounts, without int64, text func(Money) string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, text(Money{Minor: sums[name], Currency: name}))
	}
	switch {
	case without == 1:
		parts = append(parts, "1 job without an amount")
	case without > 1:
		parts = append(parts, strconv.FormatInt(without, 10)+" jobs without an amount")
	}
	return strings.Join(parts, ", ")
}

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
