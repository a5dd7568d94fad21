package outcome

import (
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/job"
)

// Why an answer is not taken at face value, as appended to it in the record.
const (
	notOurs     = "a repeated answer, and no earlier call of this job can have got it: some other job or program has used the key"
	onlyAgain   = "a repeated answer: asking again with this key brings the same, and whether the first call has charged is not known"
	notAboutPay = "it says nothing of the earlier call with this key, which may have charged"
	noNewKey    = "it asks for another key, and an earlier call with this one may have charged"
	notPaid     = "it does not have what done_needs asks for"
)

// outcomeLater is the prefix of the error of a job accepted by the gateway.
const outcomeLater = "accepted, outcome later: "

// doubt returns why an answer can't be taken at face value, for the verdict of its status or rule; empty if it
// can.
func (t Table) doubt(a *answer, v job.Verdict, found match) string {
	decided := v == job.VerdictDone || v == job.VerdictRefused || v == job.VerdictAccepted || v == job.VerdictNewKey
	switch {
	case a.marked() && (!a.in.Again || (v == job.VerdictDone || v == job.VerdictNewKey) && found != unreadable && !a.in.Unsure && !a.in.Lapse):
		return notOurs
	case found == unreadable:
		return "" // the missing rest may say what it means
	case v == job.VerdictNewKey && (a.in.Unsure || a.in.Lapse):
		return noNewKey
	case !decided && (a.marked() || t.savedFailure(a)):
		return onlyAgain
	case (a.in.Unsure || a.in.Lapse) && v == job.VerdictRefused && found == differs && a.in.Result.Status != http.StatusPaymentRequired:
		return notAboutPay
	case v == job.VerdictDone && found == differs && t.paid(a) == differs:
		return notPaid
	}
	return ""
}

// doubted judges an answer that is not taken at face value. A merely repeated answer is no failure and no
// attempt, because nothing was tried.
func (a *answer) doubted(why string) Judgement {
	j := a.judge(job.VerdictUnknown)
	j.Spent = why == notAboutPay || why == notPaid || why == noNewKey
	j.Foreign = why == notOurs
	j.Error += " (" + why + ")"
	return j
}

// marked reports whether the gateway marks the answer as a repeat of that to an earlier call with this key, as
// Stripe (docs.stripe.com/error-low-level) and Mollie (docs.mollie.com/reference/api-idempotency) do. No other
// gateway is known to mark repeats.
func (a *answer) marked() bool {
	for _, v := range http.Header(a.in.Result.Header).Values("Idempotent-Replayed") {
		if strings.EqualFold(strings.TrimSpace(v), "true") {
			return true
		}
	}
	return false
}

// requestID matches Stripe's request ids (docs.stripe.com/api/request_ids), which are unique.
var requestID = regexp.MustCompile(`\breq_[A-Za-z0-9]{6,}`)

// savedFailure reports whether this failure is a saved copy of the last one: Stripe saves 500s under the key
// (docs.stripe.com/api/idempotent_requests). Without a request id in it, two bodies may be equal only because
// the gateway is down.
func (t Table) savedFailure(a *answer) bool {
	if !t.saves || !a.in.Again || a.in.Result.Status < 500 {
		return false
	}
	line := a.line()
	return line == a.in.Last && requestID.MatchString(line)
}

// paid reports whether a 2xx has everything that done requires.
func (t Table) paid(a *answer) match {
	if len(t.needs) == 0 {
		return matches
	}
	doc, _ := a.body()
	if a.partial() {
		return unreadable
	}
	for path, values := range t.needs {
		if got, ok := fieldOf(doc, path); !ok || !slices.Contains(values, got) {
			return differs
		}
	}
	return matches
}

// Matching returns the table with a comparison of answers and jobs. own maps dotted paths in an answer's body
// to dotted paths in the payload, or to job.OwnID for the job's id. If the values differ, the answer is about
// another payment. Absent or empty values are not compared. nil: nothing is compared.
func (t Table) Matching(own map[string]string) Table {
	t.own = own
	return t
}

// compared reports whether a verdict holds only for an answer about this payment.
func compared(v job.Verdict) bool {
	return v == job.VerdictDone || v == job.VerdictAccepted || v == job.VerdictNewKey
}

// incomparable reports whether the answer has to be compared with the job and a part of its body is missing.
func (t Table) incomparable(a *answer, v job.Verdict) bool {
	return len(t.own) > 0 && compared(v) && a.partial()
}

// differing returns the path of a field that shows that the answer is about another payment; empty if none
// does.
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
