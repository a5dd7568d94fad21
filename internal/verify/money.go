package verify

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
)

// Sums is the money of the jobs in one state, in minor units, by records and by provider.
type Sums struct {
	Gateway  string `json:"gateway"`
	State    string `json:"state"` // the reason of a parked job; not_in_books
	Currency string `json:"currency"`
	Jobs     int64  `json:"jobs"`
	// Booked is the recorded sum, Charged the provider's. Jobs with an amount on only one side are in neither.
	Booked  big.Int `json:"booked"`
	Charged big.Int `json:"charged"`
}

// sumKey identifies a sum.
type sumKey struct{ gateway, state, currency string }

func (c *checker) sums(k sumKey) *Sums {
	if c.money[k] == nil {
		c.money[k] = &Sums{Gateway: k.gateway, State: k.state, Currency: k.currency}
	}
	return c.money[k]
}

// tally adds a job to its sums.
func (c *checker) tally(a *account) {
	k := sumKey{gateway: a.gateway, state: string(NotInBooks)}
	var booked money
	if b := a.book; b != nil {
		s := c.side(a.gateway)
		s.Jobs++
		if b.state == stateDone {
			s.Done++
		}
		if k.state, booked = b.state, b.amount; b.state == stateParked {
			k.state = b.reason
		}
	}
	unknown := slices.ContainsFunc(a.money, func(m money) bool { return !m.known })
	switch {
	case a.book != nil && !booked.known && len(a.money) == 0, a.book == nil && len(a.money) == 0:
		return // no money on either side
	case unknown, a.book != nil && !booked.known:
		c.result.Uncompared++
		return
	}
	if a.book != nil {
		k.currency = booked.currency
		s := c.sums(k)
		s.Jobs++
		s.Booked.Add(&s.Booked, big.NewInt(booked.minor))
	}
	for i, m := range a.money {
		of := k
		of.currency = cmp.Or(m.currency, booked.currency)
		s := c.sums(of)
		if a.book == nil && i == 0 {
			s.Jobs++
		}
		s.Charged.Add(&s.Charged, big.NewInt(m.minor))
	}
}

// judgeMoney compares the sums of done jobs.
func (c *checker) judgeMoney(context.Context) error {
	for _, s := range sumsOf(c.money) {
		if s.State != stateDone || s.Booked.Cmp(&s.Charged) == 0 {
			continue
		}
		more := new(big.Int).Sub(&s.Charged, &s.Booked)
		c.found(Finding{Kind: MoneySum, Gateway: s.Gateway, Where: []Place{}, Text: fmt.Sprintf("of what is done, the provider charged %v and the books have %v, in minor units of %s: %v too %s",
			&s.Charged, &s.Booked, cmp.Or(s.Currency, "no currency"), new(big.Int).Abs(more), map[int]string{1: "much", -1: "little"}[more.Sign()])})
	}
	return nil
}

func sumsOf(all map[sumKey]*Sums) []*Sums {
	list := make([]*Sums, 0, len(all))
	for _, s := range all {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Sums) int {
		return cmp.Or(cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.State, b.State), cmp.Compare(a.Currency, b.Currency))
	})
	return list
}
