package job

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// Amounts holds exact sums of money in minor units, by currency. In JSON it is an object of whole numbers; nil
// is an empty one.
type Amounts map[string]*big.Int

// Add adds an amount.
func (a *Amounts) Add(m Money) {
	sum := a.of(m.Currency)
	sum.Add(sum, m.Minor)
}

// of returns the sum of a currency.
func (a *Amounts) of(currency string) *big.Int {
	if *a == nil {
		*a = Amounts{}
	}
	sum := (*a)[currency]
	if sum == nil {
		sum = new(big.Int)
		(*a)[currency] = sum
	}
	return sum
}

// addBooked adds what MoneyField returned, and reports whether it is an amount. It takes no memory for those that
// MoneyField returns, as millions are added.
func (a *Amounts) addBooked(text string) bool {
	if text == "" {
		return false
	}
	digits, currency, spaced := strings.Cut(text, " ")
	if minor, err := strconv.ParseInt(digits, 10, 64); spaced && err == nil {
		sum := a.of(currency)
		sum.Add(sum, big.NewInt(minor))
		return true
	}
	m, is := Booked(text)
	if is {
		a.Add(m)
	}
	return is
}

// AddAll adds all amounts of o.
func (a *Amounts) AddAll(o Amounts) {
	for currency, minor := range o {
		a.Add(Money{Minor: minor, Currency: currency})
	}
}

// MarshalJSON implements json.Marshaler.
func (a Amounts) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(map[string]*big.Int(a))
}

// equal reports whether both have the same sums. A missing currency counts as 0.
func (a Amounts) equal(o Amounts) bool {
	for _, pair := range [][2]Amounts{{a, o}, {o, a}} {
		for currency, minor := range pair[0] {
			other := pair[1][currency]
			if other == nil && minor.Sign() != 0 || other != nil && minor.Cmp(other) != 0 {
				return false
			}
		}
	}
	return true
}

// Totals is a number of jobs with the sum of their money. The zero value counts nothing.
type Totals struct {
	Jobs   int64   `json:"jobs"`
	Amount Amounts `json:"amount"`
	// NoAmount is how many of the jobs have no readable amount, at a gateway whose jobs have one.
	NoAmount int64 `json:"without_amount"`
	// Bytes is the stored size of the payloads. It is set only for parked jobs.
	Bytes int64 `json:"-"`
}

// Add adds other totals.
func (t *Totals) Add(o Totals) {
	t.Jobs += o.Jobs
	t.NoAmount += o.NoAmount
	t.Bytes += o.Bytes
	t.Amount.AddAll(o.Amount)
}

// AddMoney adds one job, with its money as MoneyField returns it; empty if the gateway's jobs have none.
func (t *Totals) AddMoney(field string) {
	t.Jobs++
	if !t.Amount.addBooked(field) && field != "" {
		t.NoAmount++
	}
}

// AddRecord adds one job. Its money is taken from the record or else from the payload, at the dotted paths
// field and currency. An empty field means that the gateway's jobs have no money.
func (t *Totals) AddRecord(r Record, field, currency string) {
	t.Jobs++
	if field == "" {
		return
	}
	if t.Amount.addBooked(r.Money) {
		return
	}
	m, err := MoneyOf(r.Job.Payload, field, currency)
	if err != nil {
		t.NoAmount++
		return
	}
	t.Amount.Add(m)
}

// Equal reports whether both totals are the same.
func (t Totals) Equal(o Totals) bool {
	return t.Jobs == o.Jobs && t.NoAmount == o.NoAmount && t.Bytes == o.Bytes && t.Amount.equal(o.Amount)
}

// Money formats the money for people: "EUR 10.50, 2 jobs without an amount". It is empty if there is nothing to
// say.
func (t Totals) Money() string { return MoneyText(t.Amount, t.NoAmount) }

// String returns "12 jobs (EUR 10.50)".
func (t Totals) String() string {
	if money := t.Money(); money != "" {
		return JobsText(t.Jobs) + " (" + money + ")"
	}
	return JobsText(t.Jobs)
}

// JobsText returns "1 job" or "1,000 jobs".
func JobsText(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return CountText(n) + " jobs"
}
