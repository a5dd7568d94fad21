package reconcile

import (
	"math/big"

	"spillway/internal/job"
)

// Minor is an amount in minor units, as JSON a whole number.
type Minor = *big.Int

// amountOf is money as job.MoneyField writes it; nil where that is none.
func amountOf(booked string) *Amount {
	m, ok := job.Booked(booked)
	if !ok {
		return nil
	}
	return &Amount{Minor: m.Minor, Currency: m.Currency}
}

// compared says in what two sums of money differ; Agree where they do not, or where one of the two is not known.
func compared(reported, recorded *Amount) Kind {
	switch {
	case reported == nil || recorded == nil:
		return Agree
	case reported.Currency != "" && recorded.Currency != "" && reported.Currency != recorded.Currency:
		return OtherCurrency
	case reported.Minor.Cmp(recorded.Minor) != 0:
		return OtherAmount
	}
	return Agree
}

// same says that both are there, with the same amount of the same currency.
func same(reported, recorded *Amount) bool {
	return reported != nil && recorded != nil && reported.Currency != "" && reported.Currency == recorded.Currency && reported.Minor.Cmp(recorded.Minor) == 0
}

// add adds one more job.
func (s *Sum) add(reported job.Amounts, recorded *Amount) {
	s.Jobs++
	s.Reported.AddAll(reported)
	if recorded != nil {
		s.Recorded.Add(job.Money{Minor: recorded.Minor, Currency: recorded.Currency})
	}
}
