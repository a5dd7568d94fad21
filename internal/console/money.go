package console

import (
	"math/big"

	"spillway/internal/config"
	"spillway/internal/job"
)

// pile is jobs counted together with their money, exact however large.
type pile struct {
	Jobs  int
	money map[string]*big.Int // minor units, by currency
	bare  int                 // without an amount that can be read, where the gateway says that there is one
}

func newPile() *pile { return &pile{money: map[string]*big.Int{}} }

// add takes the money from the record, or from the payload where that says it alone.
func (p *pile) add(rec job.Record, a config.Amount) {
	p.Jobs++
	if a.Field == "" {
		return
	}
	m, booked := job.Booked(rec.Money)
	if !booked {
		var err error
		if m, err = job.MoneyOf(rec.Job.Payload, a.Field, a.Currency); err != nil {
			p.bare++
			return
		}
	}
	if p.money[m.Currency] == nil {
		p.money[m.Currency] = new(big.Int)
	}
	p.money[m.Currency].Add(p.money[m.Currency], m.Minor)
}

// Money is the sums in words; empty where no money is known of.
func (p *pile) Money() string { return job.MoneyText(p.money, p.bare) }
