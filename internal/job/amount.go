package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/bojanz/currency"
)

// AmountRule says where the payloads of a gateway have their money, and how much of it one job may move.
type AmountRule struct {
	// Field is the dotted path of the amount. Empty: nothing is checked.
	Field string
	// Currency is the dotted path of the currency's code. Empty: there is none.
	Currency string
	// Least and Most bound the amount, in minor units. Both are allowed themselves.
	Least, Most int64
	// Required says that each payload has an amount, and a currency where Currency names one. False: both may be absent or null.
	Required bool
}

// MoneyError is why a payload's money can't be used. It holds nothing of the payload.
type MoneyError string

// Error implements error.
func (e MoneyError) Error() string { return string(e) }

func moneyError(format string, args ...any) error { return MoneyError(fmt.Sprintf(format, args...)) }

// Check says why a payload's money can't be used, or nil: an amount that is there and is no whole number within the bounds, or a
// currency that is there and that ISO 4217 does not list. What is absent or null is no fault, unless it is required. The error is a MoneyError.
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

// NoCurrency says that a field's currency can't be read.
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

// Allows says whether an amount and a currency, as MoneyField writes them, are within the rule. False may also mean that it takes
// Check to say so.
func (r AmountRule) Allows(minor int64, code string) bool {
	return minor >= r.Least && minor <= r.Most && (r.Currency == "" || IsCurrency(code))
}

// CurrencyDigits returns how many digits of an amount stand behind the point, by ISO 4217: 2 for EUR, 0 for JPY, 3 for KWD. The code may
// be in small letters. ok is false where ISO 4217 lists no such currency.
func CurrencyDigits(code string) (digits int, ok bool) {
	n, ok := currency.GetDigits(currencyOf(code))
	return int(n), ok
}

// IsCurrency says whether ISO 4217 lists a code in upper case.
func IsCurrency(code string) bool {
	_, listed := currency.GetDigits(code)
	return listed
}

// currencyOf returns a currency's code in upper case, or "" where ISO 4217 lists none of that name.
func currencyOf(text string) string {
	if len(text) != 3 {
		return ""
	}
	if code := strings.ToUpper(text); IsCurrency(code) {
		return code
	}
	return ""
}
