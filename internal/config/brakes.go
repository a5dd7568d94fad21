package config

import (
	"fmt"
	"slices"

	"spillway/internal/job"
)

// mostBrakes is the most money limits of a gateway: each is checked before each call.
const mostBrakes = 8

// brakes reads a list of brakes, each with one key.
func (r *reader) brakes(n node, b *job.Brakes) {
	for _, item := range r.items(n, "write a list of brakes, like [{limit: EUR 50000/1m}, {single: EUR 20000}]") {
		r.object(item,
			field{"limit", func(n node) { r.moneyLimit(n, b) }},
			field{"single", func(n node) { r.single(n, b) }},
			field{"unknown_currency", func(n node) {
				var word string
				r.word(&word, choice("a way with unknown currencies", "refuse", "allow"))(n)
				b.RefuseUnknown = word == "refuse"
			}},
		)
	}
}

func (r *reader) moneyLimit(n node, b *job.Brakes) {
	var limit job.MoneyLimit
	var text string
	r.word(&text, func(text string) (rule string) {
		limit, rule = job.ReadMoneyLimit(text)
		if rule == "" && slices.ContainsFunc(b.Limits, func(l job.MoneyLimit) bool { return l.Most.Currency == limit.Most.Currency && l.Window == limit.Window }) {
			rule = "is the second limit of this currency and window: keep one of them"
		}
		if rule == "" && len(b.Limits) == mostBrakes {
			rule = fmt.Sprintf("is one limit too many: give at most %d", mostBrakes)
		}
		return rule
	})(n)
	if text != "" {
		b.Limits = append(b.Limits, limit)
	}
}

func (r *reader) single(n node, b *job.Brakes) {
	var most job.Money
	var text string
	r.word(&text, func(text string) (rule string) {
		most, rule = job.ReadMoney(text)
		if rule == "" && slices.ContainsFunc(b.Single, func(m job.Money) bool { return m.Currency == most.Currency }) {
			rule = "is the second single of this currency: keep one of them"
		}
		return rule
	})(n)
	if text != "" {
		b.Single = append(b.Single, most)
	}
}

// checkBrakes reports money brakes without a readable amount.
func (r *reader) checkBrakes(path string, g *Gateway) {
	if g.Brakes.Any() && (g.Amount.Field == "" || g.Amount.Currency == "") {
		r.clash(path+".brakes", path+".amount", "brakes go by the money of each job: say where it is, amount: {field: amount, currency: currency}")
	}
}
