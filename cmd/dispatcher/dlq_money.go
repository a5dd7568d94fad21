package main

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"spillway/internal/config"
	"spillway/internal/deadletter"
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

// text is empty for an empty purse.
func (p purse) text() string {
	var parts []string
	for currency, minor := range p {
		parts = append(parts, strings.TrimSpace(currency+" "+minor.String()))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
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

// forMoney lets a filter read the payloads of those jobs alone whose record does not say their money.
func forMoney(f *deadletter.Filter, gateways ...config.Gateway) {
	f.NoPayload = !anyAmount(gateways)
	f.PayloadOf = func(r job.Record) bool {
		_, booked := job.Booked(r.Money)
		return !booked
	}
}

func (p *pile) addAll(q *pile) {
	p.jobs += q.jobs
	p.bare += q.bare
	p.money.addAll(q.money)
}

// moneyText is the money in words: "EUR 1050 in minor units, 2 jobs without an amount". Empty where no money is known of.
func (p *pile) moneyText() string {
	var parts []string
	if text := p.money.text(); text != "" {
		parts = append(parts, text+" in minor units")
	}
	if p.bare > 0 {
		parts = append(parts, jobs(p.bare)+" without an amount")
	}
	return strings.Join(parts, ", ")
}

// text is "12 jobs (EUR 1050 in minor units)".
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
	return fmt.Sprintf("%d jobs", n)
}
