// Package outcome is step 6 of 8: a pure table that says what the result of one call means for its job. It only
// decides; recording, holding and parking are done elsewhere.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// Input is one call's result, with what is needed to judge it.
type Input struct {
	Result job.Result
	// KeySent says that the call carried an idempotency key.
	KeySent bool
	// KeyLives says that the gateway still remembers that key, so that repeating the call charges nothing
	// twice.
	KeyLives bool
	// Again says that an earlier call of the job had the same key, or may have.
	Again bool
	// Unsure says that such a call may have charged.
	Unsure bool
	// Lapse says that Redis may have forgotten such a call.
	Lapse bool
	// Last is the result of an earlier call, like Judgement.Error; empty if unknown.
	Last string
	// Job is the job that was called. Its id and payload are compared with the answer (see Table.Matching).
	Job job.Job
	// Received is the arrival time of the answer by the local clock. Dates in the answer are measured against
	// its Date header, or against Received without one.
	Received time.Time

	hide func([]byte) []byte // see Table.Hiding
}

// shown returns a text of the answer in the form that may be stored.
func (in Input) shown(text []byte) []byte {
	if in.hide == nil {
		return text
	}
	return in.hide(text)
}

// living reports whether the same call may be repeated whatever became of this one.
func (in Input) living() bool { return in.KeySent && in.KeyLives }

// Judgement is a verdict with its reasons.
type Judgement struct {
	Verdict job.Verdict
	// Spent says that the call uses up one of the job's attempts. Some do not: holds, calls that were not sent,
	// and answers that say that nothing was tried (425, 429, and, while an earlier call may still be running, a
	// 409, or a 2xx or 4xx that a rule retries).
	Spent bool
	// HoldFor is how long the gateway asked to be left alone. Only for job.VerdictHold; 0 = it did not say: a
	// growing back-off.
	HoldFor time.Duration
	// Scope is what the answer applies to, and so what is held. Only for job.VerdictHold; empty: the gateway.
	Scope job.Scope
	// Why is a short text for logs and the hold's reason: "HTTP 429" or, if a rule examined the body, "HTTP
	// 200, resultCode is Refused". It never quotes the answer.
	Why string
	// Error is for the job's record: the status and the first 500 bytes of the answer in one line (`HTTP 402:
	// {"error":…}`), or the transport error. Empty when done.
	Error string
	// Reference is the gateway's own name for the payment, if it is done and the answer has one; at most 100
	// visible ASCII characters.
	Reference string
	// Alarm says that an operator is needed: the gateway denies access (401, 403).
	Alarm bool
	// Fault says that the gateway failed or could not be reached: a 5xx, a timeout, a connection that broke or
	// was refused, a failed name look-up or handshake. A 5xx is no fault if a rule gave it a meaning other than
	// unknown or takes it for a repeated answer, or if it asked to wait. Many faults are an outage.
	Fault bool
	// Foreign says that another user of the gateway has the key: what the gateway knows of it is not this job's
	// outcome.
	Foreign bool
	// Renew says that an expired access token was rejected and dropped: nothing was tried, and the job is sent
	// again with another token. No attempt is spent.
	Renew bool
}

// Judge returns what a call's result means. It always decides: an outcome that can't be known is unknown.
func (t Table) Judge(in Input) Judgement {
	in.hide = t.hide
	switch in.Result.Stage {
	case job.Answered:
		return t.answered(in)
	case job.NotSent:
		return notSent(in)
	}
	return lost(in, "no answer", errorText(in.Result.Err, "the request was written and no answer came"))
}

// answered judges an answer: the first rule that matches decides, unless the answer can't be taken at face
// value.
func (t Table) answered(in Input) Judgement {
	a := &answer{in: in, most: cmp.Or(t.most, usualMax)}
	v, found, rule := t.verdict(a)
	if found == matches {
		a.by = rule
	}
	if in.Result.Renewed && found == differs { // otherwise a rule decides about a 401
		return Judgement{Verdict: job.VerdictRetry, Renew: true, Why: a.why(), Error: a.line()}
	}
	if v == job.VerdictNewKey && !in.KeySent {
		v = job.VerdictRefused // without keys there is no next key
	}
	compare := len(t.own) > 0 && ofThisPayment(v)
	if compare && a.partial() {
		found = unreadable
	}
	why := t.doubt(a, v, found)
	switch {
	case why == onlyAgain && in.Result.Status == http.StatusPaymentRequired:
		return a.judge(job.VerdictRefused) // the payment was declined: only another key gets another answer
	case why != "":
		return a.doubted(why)
	case found == unreadable:
		return lost(in, a.why()+", answer cut off", a.line())
	}
	if compare {
		if field := t.differing(a); field != "" {
			return a.another(field)
		}
	}
	j := t.referred(a, a.judge(v), rule.Reference)
	j.Fault = in.Result.Status >= 500 && (found == differs && v != job.VerdictHold || v == job.VerdictUnknown && rule.When != job.WhenRepeat)
	if v == job.VerdictRetry && (in.Again && in.Unsure || in.Lapse) && waits(in.Result.Status, found) {
		j.Spent = false // the job's own call is still running: nothing was tried, and the wait ends with the key's life
	}
	// If no call of the job can hold the key, a conflict is with another user's call.
	j.Foreign = in.Result.Status == http.StatusConflict && in.KeySent && (!in.Again || !in.Unsure && !in.Lapse)
	if j.Foreign {
		j.Reference = "" // another user's payment
	}
	return j
}

// verdict returns the meaning of an answer by the first rule that matches, or else by its status. It also
// returns which of these decided, and the rule.
func (t Table) verdict(a *answer) (v job.Verdict, found match, by job.Rule) {
	for _, rules := range [][]job.Rule{t.user, t.profile} {
		for _, r := range rules {
			if m := a.match(r); m != differs {
				return r.Then, m, r
			}
		}
	}
	if v := byStatus(a); v != job.VerdictDone || t.paid(a) != unreadable {
		return v, differs, job.Rule{}
	}
	return job.VerdictDone, unreadable, job.Rule{}
}

// waits reports whether an answer that means retry says that an earlier call with the key still runs. GraphQL says
// so with a 200.
func waits(status int, found match) bool {
	if status == http.StatusConflict {
		return true
	}
	return found == matches && (status/100 == 2 || status/100 == 4 && !TimedOut(status))
}

// TimedOut reports whether a status says that a server gave up on a call that may have charged: 408, or 499, with
// which nginx and gRPC gateways say that a caller was gone.
func TimedOut(status int) bool {
	const callerGone = 499 // not registered
	return status == http.StatusRequestTimeout || status == callerGone
}

// byStatus is the default profile: the meaning of a status without a rule.
func byStatus(a *answer) job.Verdict {
	status := a.in.Result.Status
	switch {
	case status >= 200 && status <= 299:
		return job.VerdictDone
	case status >= 300 && status <= 399:
		return job.VerdictUnknown // the charge may precede the redirection
	case status == 401, status == 403, status == 429:
		return job.VerdictHold
	case status == 503 && a.retryAfter():
		return job.VerdictHold
	case status == 409, status == 425:
		if a.in.KeySent {
			return job.VerdictRetry
		}
		return job.VerdictRefused
	case !TimedOut(status) && status >= 400 && status <= 499:
		return job.VerdictRefused
	}
	// 408, 499, 5xx, and unknown statuses: the call may have charged.
	if a.in.living() {
		return job.VerdictRetry
	}
	return job.VerdictUnknown
}

// Why an answer is not taken at face value, as appended to it in the record.
const (
	notOurs     = "a repeated answer, and no earlier call of this job can have got it: some other job or program has used the key"
	onlyAgain   = "a repeated answer: asking again with this key brings the same, and whether the first call has charged is not known"
	notAboutPay = "it says nothing of the earlier call with this key, which may have charged"
	noNewKey    = "it asks for another key, and an earlier call with this one may have charged"
	notPaid     = "it does not have what done_needs asks for"
)

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

// judge returns a judgement of the answer with this verdict.
func (a *answer) judge(v job.Verdict) Judgement {
	status := a.in.Result.Status
	j := Judgement{Verdict: v, Why: a.why()}
	if v != job.VerdictDone {
		j.Error = a.line()
	}
	if v == job.VerdictAccepted {
		j.Error = outcomeLater + j.Error
	}
	switch v {
	case job.VerdictHold:
		j.HoldFor, _ = HoldHint(a.in.Result.Header, status, a.in.Received, a.most)
		j.Alarm = status == 401 || status == 403
		j.Scope = a.by.Scope
	case job.VerdictFewer:
	case job.VerdictRetry:
		j.Spent = status != 425 && status != 429
	case job.VerdictDone, job.VerdictRefused, job.VerdictUnknown, job.VerdictAccepted, job.VerdictNewKey:
		j.Spent = true
	}
	return j
}

// outcomeLater is the prefix of the error of a job accepted by the gateway.
const outcomeLater = "accepted, outcome later: "

// notSent judges a call of which nothing reached the wire. The reason is an outage, a lost slot or this
// machine, never the job, and no attempt is spent. The exception is a job that can't be made into a request: no
// other attempt would succeed.
func notSent(in Input) Judgement {
	j := Judgement{Verdict: job.VerdictRetry, Why: "not sent", Error: errorText(in.Result.Err, "the request was not sent")}
	if in.Result.Late {
		j.Why = "too late for its slot"
		return j
	}
	if in.Result.Err != nil && job.CodeOf(in.Result.Err) == job.CodeInvalid {
		j.Verdict, j.Spent, j.Why = job.VerdictRefused, true, "not a request"
		return j
	}
	if errors.Is(in.Result.Err, job.ErrLocal) {
		j.Why = "this machine: " + j.Error
		return j
	}
	j.Fault = !errors.Is(in.Result.Err, context.Canceled)
	return j
}

// lost judges a call that was written and whose outcome is unknown.
func lost(in Input, why, text string) Judgement {
	j := Judgement{Verdict: job.VerdictUnknown, Spent: true, Why: why, Error: text}
	j.Fault = !errors.Is(in.Result.Err, context.Canceled) && !errors.Is(in.Result.Err, job.ErrLocal)
	if in.living() {
		j.Verdict = job.VerdictRetry
	}
	return j
}

func errorText(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return oneLine([]byte(err.Error()))
}

// Table is an ordered list of rules, which precede the meaning of the status. The zero Table is profile
// "default".
type Table struct {
	user, profile []job.Rule
	reference     string
	needs         map[string][]string // required values in the body of a 2xx, for done
	own           map[string]string   // fields of the body compared with the job
	saves         bool                // the gateway saves failures under the key
	most          time.Duration       // the longest pause that an answer can ask for; 0: usualMax
	hide          func([]byte) []byte // nil: hide nothing
}
