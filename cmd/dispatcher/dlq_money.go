package main

import (
	"fmt"
	"math/big"

	"spillway/internal/config"
	"spillway/internal/job"
)

// purse is sums of money by currency, exact however large. As JSON it is an object of whole numbers.
type purse map[string]*big.Int

func (p purse) add(m job.Money) {
	if p[m.Currency] == nil {
		p[m.Currency] = new(big.Int)
	}
	p[m.Currency].Add(p[m.Currency], m.Minor)
}

func (p purse) addAll(q purse) {
	for currency, minor := range q {
		p.add(job.Money{Minor: minor, Currency: currency})
	}
}

// pile is jobs counted together with their money.
type pile struct {
	jobs  int
	money purse
	// bare is how many jobs have no amount that can be read, where the gateway says that they have one.
	bare int
}

func newPile() *pile { return &pile{money: purse{}} }

func (p *pile) add(r job.Record, a config.Amount) {
	p.jobs++
	if a.Field == "" {
		return
	}
	m, booked := job.Booked(r.Money)
	if !booked {
		var err error
		if m, err = job.MoneyOf(r.Job.Payload, a.Field, a.Currency); err != nil {
			p.bare++
			return
		}
	}
	p.money.add(m)
}

func (p *pile) addAll(q *pile) {
	p.jobs += q.jobs
	p.bare += q.bare
	p.money.addAll(q.money)
}

// moneyText is the money in words. Empty where no money is known of.
func (p *pile) moneyText() string { return job.MoneyText(p.money, p.bare) }

// text is "12 jobs (EUR 10.50)".
func (p *pile) text() string {
	if money := p.moneyText(); money != "" {
		return fmt.Sprintf("%s (%s)", jobs(p.jobs), money)
	}
	return jobs(p.jobs)
}

func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return job.CountText(int64(n)) + " jobs"
}

// amountOf is the money of one job: empty where the gateway's jobs have none, or none that can be read.
func amountOf(r job.Record, g config.Gateway) purse {
	one := newPile()
	one.add(r, g.Amount)
	return one.money
}
