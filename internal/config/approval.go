package config

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

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
