package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"spillway/internal/config"
)

// money is one job's amount, in minor units. The currency is "" where the configuration names none.
type money struct {
	minor    *big.Int
	currency string
}

// purse is sums of money by currency, exact however large. As JSON it is an object of whole numbers.
type purse map[string]*big.Int

func (p purse) add(m money) {
	if p[m.currency] == nil {
		p[m.currency] = new(big.Int)
	}
	p[m.currency].Add(p[m.currency], m.minor)
}

func (p purse) addAll(q purse) {
	for currency, minor := range q {
		p.add(money{minor, currency})
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

// moneyOf reads a payload's amount; ok is false where there is none that can be read.
func moneyOf(payload []byte, a config.Amount) (m money, ok bool) {
	if a.Field == "" {
		return m, false
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return m, false
	}
	if m.minor, ok = wholeNumber(valueAt(object, a.Field)); !ok || a.Currency == "" {
		return m, ok
	}
	text, _ := valueAt(object, a.Currency).(string)
	m.currency = strings.ToUpper(text)
	return m, m.currency != ""
}

// mostDigits bounds an amount: more is no amount, and adding it up would take for ever.
const mostDigits = 100

// wholeNumber takes a JSON number, or a text as CSV files have it.
func wholeNumber(v any) (*big.Int, bool) {
	text := ""
	switch v := v.(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	if len(text) > mostDigits {
		return nil, false
	}
	return new(big.Int).SetString(text, 10)
}

// valueAt follows a dotted path into objects.
func valueAt(object map[string]any, path string) any {
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return object[key]
	}
	inner, _ := object[key].(map[string]any)
	return valueAt(inner, rest)
}

// pile is jobs counted together with their money.
type pile struct {
	jobs  int
	money purse
	// bare is how many jobs have no amount that can be read, where the gateway says that they have one.
	bare int
}

func newPile() *pile { return &pile{money: purse{}} }

func (p *pile) add(payload []byte, a config.Amount) {
	p.jobs++
	m, ok := moneyOf(payload, a)
	switch {
	case ok:
		p.money.add(m)
	case a.Field != "":
		p.bare++
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
