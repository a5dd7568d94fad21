package config

import (
	"github.com/goccy/go-yaml/ast"

	"spillway/internal/job"
)

// pan reads what to do with card numbers.
func (r *reader) pan(n node, c *job.CardRule) {
	r.object(n,
		field{"then", r.word((*string)(&c.Then), choice("a way", string(job.CardsRefuse), string(job.CardsMask), string(job.CardsAllow)))},
		field{"allow", func(n node) {
			if list, ok := n.tree.(*ast.SequenceNode); ok && len(list.Values) == 0 {
				return // it resets what a template sets
			}
			c.Allow = r.words(n, "name the payload's fields that may have a card number, like [token]", checkField)
		}},
	)
	if c.Then == job.CardsAllow && len(c.Allow) > 0 {
		r.clash(n.path+".allow", n.path+".then", "with then: allow every field may have a card number: take allow out, or then")
	}
}
