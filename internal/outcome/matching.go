package outcome

import (
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/job"
)

// Matching returns the table with a comparison of answers and jobs. own maps dotted paths in an answer's body
// to dotted paths in the payload, or to job.OwnID for the job's id. If the values differ, the answer is about
// another payment. Absent or empty values are not compared. nil: nothing is compared.
func (t Table) Matching(own map[string]string) Table {
	t.own = own
	return t
}

// ofThisPayment reports whether a verdict holds only for an answer about this payment.
func ofThisPayment(v job.Verdict) bool {
	return v == job.VerdictDone || v == job.VerdictAccepted || v == job.VerdictNewKey
}

// differing returns the path of a field that shows that the answer is about another payment; empty if none
// does.
func (t Table) differing(a *answer) string {
	doc, _ := a.body()
	payload, _ := parse(job.Result{Body: a.in.Job.Payload})
	for _, path := range slices.Sorted(maps.Keys(t.own)) {
		theirs, _ := follow(doc, path)
		var ours any = a.in.Job.ID
		if field := t.own[path]; field != job.OwnID {
			ours, _ = follow(payload, field)
		}
		if !same(theirs, ours) {
			return path
		}
	}
	return ""
}

// another judges an answer about another payment. Its content is not stored, because it belongs to someone
// else.
func (a *answer) another(field string) Judgement {
	return Judgement{Verdict: job.VerdictUnknown, Foreign: true, Why: a.why(),
		Error: a.why() + ": the answer is another payment's, as its " + field + " differs from the job's own: some other job or program has used the key, or answers.matches compares the wrong fields"}
}

// same reports whether two values may be equal. Amounts are compared as numbers, and currency codes without
// regard to case.
func same(theirs, ours any) bool {
	a, b := textOf(theirs), textOf(ours)
	if a == "" || b == "" || a == b {
		return true
	}
	x, y := exact(theirs), exact(ours)
	if x != nil && y != nil {
		return x.Cmp(y) == 0
	}
	return strings.EqualFold(a, b) && job.IsCurrency(strings.ToUpper(a))
}

// textOf returns a value as text; empty for null, a list, an object, or an absent value.
func textOf(v any) string {
	if v == nil {
		return ""
	}
	text, _ := scalar(v)
	return text
}

// numeric matches JSON numbers, so references such as 007 do not match. Longer numbers, or larger exponents,
// are compared as text.
var numeric = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,60})(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,2})?$`)

// exact returns the number in a value; nil if it is not numeric. Only JSON numbers may have an exponent: 12e4
// in a text is part of a reference.
func exact(v any) *big.Rat {
	text := textOf(v)
	if _, ok := v.(json.Number); !numeric.MatchString(text) || !ok && strings.ContainsAny(text, "eE") {
		return nil
	}
	n, _ := new(big.Rat).SetString(text)
	return n
}
