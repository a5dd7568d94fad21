package job

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/bojanz/currency"
)

// Approval says what of a gateway needs the yes of a second person. The zero Approval: nothing does.
type Approval struct {
	// BatchOver is the sum up to which a batch is called without one, in minor units by currency. Nil: whatever its sum. With sums, money of a currency that has none here,
	// and amounts that can't be read, always need one.
	BatchOver Amounts
	// Payee is the dotted path of the payload's field that says who is paid; empty: nothing says it, and batches are compared by their amounts alone.
	Payee string
	// ReplayOver is how many jobs may be taken in again at once without one. Nil: any number.
	ReplayOver *int64
	// Discard says that jobs are taken out for good with one alone, and BrakeLift that brakes of money are lifted so.
	Discard, BrakeLift bool
}

// OfActs says that some act needs one.
func (a Approval) OfActs() bool { return a.ReplayOver != nil || a.Discard || a.BrakeLift }

// Setting is BatchOver as accept.lua reads it; empty where batches need no approval.
func (a Approval) Setting() string {
	var text strings.Builder
	for _, m := range a.BatchOver.Sorted() {
		fmt.Fprintf(&text, "%s=%s,", m.Currency, m.Minor)
	}
	return text.String()
}

// ParseSum reads a sum of money in the units of its currency: "EUR 100000" or "EUR 0.50".
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
