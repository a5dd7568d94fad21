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

// Matching returns the table by which an answer is another payment's where a field of its body, at one of these dotted paths, differs from the job's own: from
// what the payload has at the path beside it, or from the job's id where that is job.OwnID. What either of them lacks, or has empty, is not compared.
// nil: nothing is compared.
func (t Table) Matching(own map[string]string) Table {
	t.own = own
	return t
}

// compared says of a verdict that it holds only for an answer about this payment.
func compared(v job.Verdict) bool {
	return v == job.VerdictDone || v == job.VerdictAccepted || v == job.VerdictNewKey
}

// incomparable says that the answer is to be compared with the job, and that a part of its body is missing.
func (t Table) incomparable(a *answer, v job.Verdict) bool {
	if len(t.own) == 0 || !compared(v) || a.in.Result.Err == nil {
		return false
	}
	_, ok := a.body()
	return !ok
}

// differing returns the path of a field of the answer that is not this payment's; empty where there is none.
func (t Table) differing(a *answer, v job.Verdict) string {
	if len(t.own) == 0 || !compared(v) {
		return ""
	}
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

// another is an answer about another payment. What it says is not kept: it is somebody else's.
func (a *answer) another(field string) Judgement {
	return Judgement{Verdict: job.VerdictUnknown, Foreign: true, Why: a.why(),
		Error: a.why() + ": the answer is another payment's, as its " + field + " differs from the job's own: some other job or program has used the key, or answers.matches compares the wrong fields"}
}

// same says that two values are not known to differ. Amounts are compared as numbers, and the codes of currencies without regard to their case.
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

// textOf returns a value as text; empty where it is null, a list, an object or absent.
func textOf(v any) string {
	if v == nil {
		return ""
	}
	text, _ := scalar(v)
	return text
}

// numeric is a number as JSON has it, so that references such as 007 are none. What is longer, or has a larger exponent, is compared as text.
var numeric = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,60})(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,2})?$`)

// exact returns a number or a text of one; nil where a value is neither. Only numbers may have an exponent: 12e4 in a text is part of a reference.
func exact(v any) *big.Rat {
	text := textOf(v)
	if _, ok := v.(json.Number); !numeric.MatchString(text) || !ok && strings.ContainsAny(text, "eE") {
		return nil
	}
	n, _ := new(big.Rat).SetString(text)
	return n
}
