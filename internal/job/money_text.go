package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bojanz/currency"
)

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
