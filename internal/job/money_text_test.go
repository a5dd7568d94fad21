package job

import (
	"math/big"
	"testing"

	"github.com/bojanz/currency"
)

func TestMoneyIsShownInTheUnitsOfItsCurrency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ minor, currency, want string }{
		{"963586", "EUR", "EUR 9,635.86"},
		{"5", "EUR", "EUR 0.05"},
		{"0", "EUR", "EUR 0.00"},
		{"99", "USD", "USD 0.99"},
		{"100", "USD", "USD 1.00"},
		{"-50005", "USD", "USD -500.05"},
		{"-5", "USD", "USD -0.05"},
		{"1050", "JPY", "JPY 1,050"},
		{"999", "JPY", "JPY 999"},
		{"1050", "KWD", "KWD 1.050"},
		{"50", "KWD", "KWD 0.050"},
		{"12345", "CLF", "CLF 1.2345"},
		{"123456789012345678901234567890", "EUR", "EUR 1,234,567,890,123,456,789,012,345,678.90"},
		{"1050", "", "1050 in minor units"},
		{"1050", "XYZ", "XYZ 1050 in minor units"},
	} {
		minor, _ := new(big.Int).SetString(c.minor, 10)
		if got := (Money{Minor: minor, Currency: c.currency}).String(); got != c.want {
			t.Errorf("%s %s in minor units is shown as %q, want %q", c.minor, c.currency, got, c.want)
		}
	}
}

// ISO 4217's currencies whose units are not hundredths, and those that it has lately added and removed.
func TestTheListOfCurrenciesIsThatOfISO4217(t *testing.T) {
	t.Parallel()
	other := map[string]uint8{
		"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "UYI": 0,
		"VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
		"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
		"CLF": 4, "UYW": 4,
	}
	for _, code := range currency.GetCurrencyCodes() {
		want, isOther := other[code]
		if delete(other, code); !isOther {
			want = 2
		}
		if digits, _ := currency.GetDigits(code); digits != want {
			t.Errorf("%s has %d digits, want %d", code, digits, want)
		}
	}
	if len(other) > 0 {
		t.Errorf("the list lacks %v", other)
	}
	for code, want := range map[string]bool{"SLE": true, "VED": true, "XCG": true, "ZWG": true, "ANG": false, "BGN": false, "HRK": false, "XYZ": false, "eur": false} {
		if _, listed := currency.GetDigits(code); listed != want {
			t.Errorf("%s is listed: %v, want %v", code, listed, want)
		}
	}
}

func TestSumsOfMoneyInWords(t *testing.T) {
	t.Parallel()
	sums := map[string]*big.Int{"USD": big.NewInt(911051), "EUR": big.NewInt(963586)}
	for _, c := range []struct {
		sums         map[string]*big.Int
		without      int64
		units, minor string
	}{
		{nil, 0, "", ""},
		{sums, 0, "EUR 9,635.86, USD 9,110.51", "EUR 963586, USD 911051"},
		{sums, 1, "EUR 9,635.86, USD 9,110.51, 1 job without an amount", "EUR 963586, USD 911051, 1 job without an amount"},
		{nil, 2, "2 jobs without an amount", "2 jobs without an amount"},
		{map[string]*big.Int{"": big.NewInt(7)}, 0, "7 in minor units", "7"},
	} {
		if got := MoneyText(c.sums, c.without); got != c.units {
			t.Errorf("for people: %q, want %q", got, c.units)
		}
		if got := MinorText(c.sums, c.without); got != c.minor {
			t.Errorf("for programs: %q, want %q", got, c.minor)
		}
	}
}
