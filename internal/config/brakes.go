package config

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

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

// mostBrake is the most calls that a batch's brake may count.
const mostBrake = 1_000_000

// batchBrake reads when a batch stops itself: its keys, or off.
func (r *reader) batchBrake(n node, b *job.Brake) {
	if _, scalar := raw(n); scalar {
		var word string
		r.word(&word, checkBrakeWord)(n)
		if word != "" {
			*b = job.Brake{}
		}
		return
	}
	r.object(n,
		field{"calls", r.count(&b.Calls, 2, mostBrake)},
		field{"refused", r.percent(&b.Refused)},
	)
}

func checkBrakeWord(text string) string {
	if text == "off" {
		return ""
	}
	return "is not a brake of batches: write off, or its keys, like {calls: 50, refused: 90%}"
}

// never means no sum or number, or no approval; always means that each act needs approval.
const (
	never  = "never"
	always = "always"
)

// approval reads what needs a second person's approval.
func (r *reader) approval(n node, a *job.Approval) {
	r.object(n,
		field{"batch_over", r.sums(&a.BatchOver)},
		field{"payee", r.word(&a.Payee, checkField)},
		field{"replay_over", r.replayOver(&a.ReplayOver)},
		field{"discard", r.always(&a.Discard)},
		field{"brake_lift", r.always(&a.BrakeLift)},
	)
}

// replayOver reads a number of jobs, or never.
func (r *reader) replayOver(dst **int64) func(node) {
	return func(n node) {
		var text string
		r.word(&text, func(text string) string {
			if text == never || job.Digits(text) && len(text) <= mostJobsDigits {
				return ""
			}
			return "is not a number of jobs: write a whole one from 0, above which a replay needs an approval, or never"
		})(n)
		if *dst = nil; text != "" && text != never {
			jobs, _ := strconv.ParseInt(text, 10, 64) // checked above
			*dst = &jobs
		}
	}
}

// mostJobsDigits is the most digits of a number of jobs.
const mostJobsDigits = 15

// always reads whether each act needs approval.
func (r *reader) always(dst *bool) func(node) {
	return func(n node) {
		var text string
		r.word(&text, choice("a choice", always, never))(n)
		*dst = text == always
	}
}

func checkSum(text string) string {
	if text == never {
		return ""
	}
	if _, err := job.ParseSum(text); err != nil {
		return "is not a sum: " + err.Error()
	}
	return ""
}

// sums reads one sum of money, several of different currencies, or never.
func (r *reader) sums(dst *job.Amounts) func(node) {
	return func(n node) {
		texts := make([]string, 1)
		if _, list := n.tree.(*ast.SequenceNode); list {
			texts = r.words(n, `write sums, like ["EUR 100000", "USD 120000"]`, checkSum)
		} else {
			r.word(&texts[0], checkSum)(n)
		}
		*dst = nil
		for _, text := range texts {
			m, err := job.ParseSum(text)
			if err != nil {
				continue // reported already, or never
			}
			if (*dst)[m.Currency] != nil {
				r.fault(n.path, "there are two sums in %s: keep one of them", m.Currency)
			}
			dst.Add(m)
		}
	}
}

// checkApproval reports settings that can't take effect.
func (r *reader) checkApproval(path string, g *Gateway) {
	if len(g.Approval.BatchOver) > 0 && g.Amount.Currency == "" && !g.Routed {
		r.clash(path+".approval.batch_over", path+".amount.currency", "sums of batches are known only where amount has a field and a currency: say where payloads have them")
	}
}
