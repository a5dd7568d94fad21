package ledger

import (
	"strconv"
	"strings"
)

// tally adds up the jobs of a chunk, which saves accept.lua reading the amount of each one. It is void if a job
// has traits or comes twice, or if an amount needs more care.
type tally struct {
	ids    map[string]struct{}
	void   bool
	bytes  int
	unread int
	money  []moneySum // by currency; there are few
}

// moneySum is low + high * 10^9 minor units, as in batch.lua.
type moneySum struct {
	currency  string
	low, high int64
}

// add adds a job; bytes is the length of its payload as it is stored.
func (s *tally) add(id, money, traits string, bytes int) {
	if _, known := s.ids[id]; known || traits != "" {
		s.void = true
	}
	if s.void {
		return
	}
	s.ids[id] = struct{}{}
	s.bytes += bytes
	s.pay(money)
}

// pay adds money, in the form of a record.
func (s *tally) pay(money string) {
	if money == "" {
		return
	}
	amount, currency, found := strings.Cut(money, " ")
	digits := strings.TrimPrefix(amount, "-")
	if !found || !whole(digits) {
		s.unread++
		return
	}
	if len(digits) > 18 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		s.void = true
		return
	}
	minor, _ := strconv.ParseInt(amount, 10, 64)
	of := s.of(currency)
	of.low, of.high = of.low+minor%1e9, of.high+minor/1e9
}

// whole reports whether a text has digits only.
func whole(digits string) bool {
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// of returns the sum of one currency.
func (s *tally) of(currency string) *moneySum {
	for i := range s.money {
		if s.money[i].currency == currency {
			return &s.money[i]
		}
	}
	s.money = append(s.money, moneySum{currency: currency})
	return &s.money[len(s.money)-1]
}

// text returns the sum in the form that books_join_all of batch.lua reads.
func (s *tally) text() string {
	if s.void {
		return ""
	}
	text := strconv.Itoa(s.bytes) + " " + strconv.Itoa(s.unread)
	for _, m := range s.money {
		text += " " + m.currency + "=" + strconv.FormatInt(m.low, 10) + "," + strconv.FormatInt(m.high, 10)
	}
	return text
}
