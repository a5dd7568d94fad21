package job

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/bojanz/currency"
)

// Approval says which acts and batches of a gateway need a second person's approval. The zero Approval requires
// none.
type Approval struct {
	// BatchOver is the sum, in minor units by currency, up to which a batch needs no approval. Nil: no batch
	// does. If it is set, money of a currency not named here and unreadable amounts always need approval.
	BatchOver Amounts
	// Payee is the dotted path of the payload field that says who is paid. Empty: there is none, and batches
	// are compared by their amounts only.
	Payee string
	// ReplayOver is how many jobs one replay may admit without approval. Nil: any number.
	ReplayOver *int64
	// Discard and BrakeLift say that discarding jobs, and lifting money brakes, need approval.
	Discard, BrakeLift bool
}

// OfActs reports whether some act needs approval.
func (a Approval) OfActs() bool { return a.ReplayOver != nil || a.Discard || a.BrakeLift }

// Setting returns BatchOver in the form that accept.lua reads. It is empty if batches need no approval.
func (a Approval) Setting() string {
	var text strings.Builder
	for _, m := range a.BatchOver.Sorted() {
		fmt.Fprintf(&text, "%s=%s,", m.Currency, m.Minor)
	}
	return text.String()
}

// ParseSum parses a sum of money in units of its currency: "EUR 100000" or "EUR 0.50".
func ParseSum(text string) (Money, error) {
	code, amount, _ := strings.Cut(text, " ")
	digits, listed := currency.GetDigits(code)
	if !listed {
		return Money{}, errors.New("a sum begins with its currency as ISO 4217 lists it, like EUR 100000")
	}
	whole, fraction, _ := strings.Cut(amount, ".")
	if len(fraction) > int(digits) || !Digits(whole) || fraction != "" && !Digits(fraction) || strings.HasSuffix(amount, ".") || len(whole) > bookedDigits {
		return Money{}, fmt.Errorf("a sum is a number with at most %d decimals behind its currency, like %s 100000", digits, code)
	}
	minor, _ := new(big.Int).SetString(whole+fraction+strings.Repeat("0", int(digits)-len(fraction)), 10)
	return Money{Minor: minor, Currency: code}, nil
}
