package outcome

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"spillway/internal/job"
)

// The reasons why an answer is not taken for what it says, as they stand behind it in the record.
const (
	notOurs     = "a repeated answer, and no earlier call of this job can have got it: some other job or program has used the key"
	onlyAgain   = "a repeated answer: asking again with this key brings the same, and whether the first call has charged is not known"
	notAboutPay = "it says nothing of the earlier call with this key, which may have charged"
	noNewKey    = "it asks for another key, and an earlier call with this one may have charged"
	notPaid     = "it does not have what done_needs asks for"
)

// outcomeLater begins the error of a job that the gateway has accepted.
const outcomeLater = "accepted, outcome later: "

// doubt returns why an answer can't be taken for the verdict that its status or a rule, found, gives it; empty where it can.
func (t Table) doubt(a *answer, v job.Verdict, found match) string {
	decided := v == job.VerdictDone || v == job.VerdictRefused || v == job.VerdictAccepted || v == job.VerdictNewKey
	switch {
	case a.marked() && (!a.in.Again || (v == job.VerdictDone || v == job.VerdictNewKey) && found != unreadable && !a.in.Unsure && !a.in.Lapse):
		return notOurs
	case found == unreadable:
		return "" // the rest of it may say what it means
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

// doubted is an answer that is not taken for what it says. One that is only repeated is no failure, and no attempt: nothing was tried.
func (a *answer) doubted(why string) Judgement {
	j := a.judge(job.VerdictUnknown)
	j.Spent = why == notAboutPay || why == notPaid || why == noNewKey
	j.Foreign = why == notOurs
	j.Error += " (" + why + ")"
	return j
}

// marked says that the gateway marks the answer as the one that it gave to an earlier call with this key, as Stripe
// (docs.stripe.com/error-low-level) and Mollie (docs.mollie.com/reference/api-idempotency) do. No other gateway is known to mark repeats.
func (a *answer) marked() bool {
	for _, v := range http.Header(a.in.Result.Header).Values("Idempotent-Replayed") {
		if strings.EqualFold(strings.TrimSpace(v), "true") {
			return true
		}
	}
	return false
}

// requestID is Stripe's number of a request (docs.stripe.com/api/request_ids), which no two requests share.
var requestID = regexp.MustCompile(`\breq_[A-Za-z0-9]{6,}`)

// savedFailure says that this failure is the last one, from where the gateway keeps it: Stripe saves 500s under the key
// (docs.stripe.com/api/idempotent_requests). Without the number of a request in it, a body may be the same because the gateway is down.
func (t Table) savedFailure(a *answer) bool {
	if !t.saves || !a.in.Again || a.in.Result.Status < 500 {
		return false
	}
	line := a.line()
	return line == a.in.Last && requestID.MatchString(line)
}

// paid says whether a 2xx has all that done needs.
func (t Table) paid(a *answer) match {
	if len(t.needs) == 0 {
		return matches
	}
	doc, ok := a.body()
	if !ok && a.in.Result.Err != nil {
		return unreadable
	}
	for path, values := range t.needs {
		if got, ok := fieldOf(doc, path); !ok || !slices.Contains(values, got) {
			return differs
		}
	}
	return matches
}
