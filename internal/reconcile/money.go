package reconcile

import (
	"math/big"

	"spillway/internal/job"
)

// Minor is an amount in minor units, in JSON a whole number.
type Minor = *big.Int

// amountOf parses the result of job.MoneyField; nil if there is no amount.
func amountOf(booked string) *Amount {
	m, ok := job.Booked(booked)
	if !ok {
		return nil
	}
	return &Amount{Minor: m.Minor, Currency: m.Currency}
}

// compared says how two sums of money differ; Agree if they do not, or if one is unknown.
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

// same reports whether both are known, with the same amount and currency.
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
