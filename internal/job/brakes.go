package job

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/bojanz/currency"
)

// Brakes bound the money that a gateway's calls may move, over all jobs. The zero Brakes bound nothing.
type Brakes struct {
	// Limits all apply, each to its currency, in every rolling window on Redis's clock.
	Limits []MoneyLimit
	// Single is the most that one call may move, by currency. Empty = any amount.
	Single []Money
	// RefuseUnknown keeps a job from being called if its money can't be read, or if neither Limits nor Single
	// name its currency.
	RefuseUnknown bool
}

// MoneyLimit allows calls to move at most an amount in every window of the given length.
type MoneyLimit struct {
	// Most is at least 1 and less than 10^15 minor units, and has a currency.
	Most Money
	// Window is a whole number of seconds, 10 s to 31 days.
	Window time.Duration
}

// Bounds of a MoneyLimit.
const (
	LeastMoneyWindow = 10 * time.Second
	MostMoneyWindow  = 31 * Day
	// mostMoneyDigits is the most digits of a brake's amount, in minor units. Redis's scripts are exact only up
	// to it.
	mostMoneyDigits = 15
)

const (
	moneyHint      = "write a currency and an amount in its units, like EUR 20000 or EUR 99.50"
	moneyLimitHint = "write a currency, an amount in its units and a window, like EUR 50000/1m or EUR 2000000/24h"
)

// Any reports whether there is a brake.
func (b Brakes) Any() bool { return len(b.Limits) > 0 || len(b.Single) > 0 || b.RefuseUnknown }

// Setting returns the brakes in the form that scripts read (brakes.lua of internal/record). It is empty if
// there are none.
func (b Brakes) Setting() string {
	if !b.Any() {
		return ""
	}
	var text strings.Builder
	for _, l := range b.Limits {
		fmt.Fprintf(&text, "%s:%d:%s=%s;", l.Most.Currency, l.Window.Microseconds(), l.Most.Minor, l)
	}
	text.WriteByte('|')
	for _, m := range b.Single {
		fmt.Fprintf(&text, "%s:%s=%s;", m.Currency, m.Minor, m.Plain())
	}
	if b.RefuseUnknown {
		return text.String() + "|1"
	}
	return text.String() + "|0"
}

// String returns the limit as it is configured: EUR 50000/1m.
func (l MoneyLimit) String() string {
	return l.Most.Plain() + "/" + FormatDuration(l.Window)
}

// Plain returns the money as it is configured: EUR 20000, EUR 99.50.
func (m Money) Plain() string {
	return strings.TrimSuffix(strings.ReplaceAll(m.String(), ",", ""), ".00")
}

// ReadMoneyLimit parses a limit of money, CURRENCY AMOUNT/WINDOW. If text is invalid, rule completes the
// message: it follows the text there.
func ReadMoneyLimit(text string) (l MoneyLimit, rule string) {
	money, window, found := strings.Cut(text, "/")
	if !found {
		return MoneyLimit{}, "is not a limit of money: " + moneyLimitHint
	}
	if window == "s" || window == "m" || window == "h" || window == "d" {
		window = "1" + window
	}
	most, rule := ReadMoney(money)
	length, broken := ReadDuration(window)
	switch {
	case rule != "" || broken != "":
		return MoneyLimit{}, cmp.Or(rule, "is not a limit of money: "+moneyLimitHint)
	case length < LeastMoneyWindow || length > MostMoneyWindow || length%time.Second != 0:
		return MoneyLimit{}, "has a window that can't be kept: give whole seconds, from 10s to 31d"
	}
	return MoneyLimit{Most: most, Window: length}, ""
}

// ReadMoney parses an amount in units of its currency: EUR 20000, EUR 99.50. If text is invalid, rule is the
// rule that it breaks.
func ReadMoney(text string) (m Money, rule string) {
	name, amount, found := strings.Cut(text, " ")
	digits, listed := currency.GetDigits(name)
	whole, fraction, split := strings.Cut(amount, ".")
	switch {
	case !found || !Digits(whole) || split && (!Digits(fraction) || len(fraction) > int(digits)):
		return Money{}, "is not an amount of money: " + moneyHint
	case !listed:
		return Money{}, "has no currency that ISO 4217 lists: " + moneyHint
	}
	fraction += strings.Repeat("0", int(digits)-len(fraction))
	minor, _ := new(big.Int).SetString(whole+fraction, 10)
	switch {
	case minor.Sign() == 0:
		return Money{}, "lets no money through: give more than 0; to stop a gateway there is dispatcher pause"
	case len(minor.String()) > mostMoneyDigits:
		return Money{}, "is more than can be kept exactly: give an amount of at most 15 digits in minor units"
	}
	return Money{Minor: minor, Currency: name}, ""
}

// Brake says when a batch stops itself, by the share of refusals among its first calls that were answered yes
// or no. The zero Brake never stops a batch.
type Brake struct {
	// Calls is how many calls are counted, at least 2. Zero means no brake.
	Calls int64
	// Refused is the share of refusals that stops the batch, in percent, 1 to 100.
	Refused int64
}

// Setting returns the brake in the form that scripts read (books.lua).
func (b Brake) Setting() string {
	if b.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d", b.Calls, (b.Calls*b.Refused+99)/100)
}

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
