// Package outcome is step 6 of 8: a pure table that says what the result of one call means for its job.
// It decides and does nothing: recording, holding and parking are for others.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"spillway/internal/job"
)

// Input is one call's result with what has to be known beside it to judge it.
type Input struct {
	Result job.Result
	// KeySent says that an idempotency key went with the call.
	KeySent bool
	// KeyLives says that the gateway still remembers that key, so that the same call again charges nothing twice.
	KeyLives bool
	// Again says that an earlier call of the job carried the same key, or may have.
	Again bool
	// Unsure says that such a call may have charged.
	Unsure bool
	// Lapse says that there may have been such a call, which Redis has forgotten since.
	Lapse bool
	// Last is what an earlier call came to, as Judgement.Error; empty where it is not known.
	Last string
	// Job is the job that was called: its id and payload are compared with the answer, see Table.Matching.
	Job job.Job
	// Received is the moment at which the answer arrived, by the local clock. Dates in the answer are measured
	// against its own Date header, and against this where it has none.
	Received time.Time

	hide func([]byte) []byte // see Table.Hiding
}

// shown returns a text of the answer as it may be kept.
func (in Input) shown(text []byte) []byte {
	if in.hide == nil {
		return text
	}
	return in.hide(text)
}

// living says that the same call may go out again whatever became of this one.
func (in Input) living() bool { return in.KeySent && in.KeyLives }

// Judgement is a verdict with its reasons.
type Judgement struct {
	Verdict job.Verdict
	// Spent says that the call uses up one of the job's attempts. Holds, calls that were not sent, and answers which
	// say that nothing was tried (425, 429, and while an earlier call may still run a 409, or a 4xx for which a rule says retry) use up none.
	Spent bool
	// HoldFor is how long the gateway asked to be left alone. Only with job.VerdictHold; 0 = it did not say: a growing back-off.
	HoldFor time.Duration
	// Scope is what the answer concerns, and so what is to be held. Only with job.VerdictHold; empty: the gateway.
	Scope job.Scope
	// Why is short, for logs and the hold's reason: "HTTP 429", or with what a rule asks of the body "HTTP 200, resultCode is Refused"; never the answer's own words.
	Why string
	// Error is for the job's record: the status and the answer's first 500 bytes in one line
	// (`HTTP 402: {"error":…}`), or what went wrong on the way. Empty when done.
	Error string
	// Reference is the gateway's own name for the payment, where it is done and its answer has one; at most 100 visible ASCII characters.
	Reference string
	// Alarm asks for a person: the gateway does not let us in (401, 403).
	Alarm bool
	// Fault says that the gateway failed, or could not be reached: 5xx, unless a rule gave it a meaning other than unknown, or takes it for a repeated answer, or it asked to wait,
	// a time-out, a connection that broke or was refused, a failed look-up or handshake. Many of them are an outage.
	Fault bool
	// Foreign says that the key is in use by somebody else: what the gateway knows of it is not what became of this job.
	Foreign bool
	// Renew says that an access token which had run out was not taken, and was dropped: nothing was tried, and the job goes again with another one. No attempt is spent.
	Renew bool
}

// Judge says what a call's result means. It always has an answer: what nobody can know is unknown.
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

// answered judges an answer: the first rule that matches decides, unless the answer can't be taken for what it says.
func (t Table) answered(in Input) Judgement {
	a := &answer{in: in, most: cmp.Or(t.most, usualMax)}
	v, found, rule := t.verdict(a)
	if found == matches {
		a.by = rule
	}
	if in.Result.Renewed && found == differs { // else a rule says what a 401 means
		return Judgement{Verdict: job.VerdictRetry, Renew: true, Why: a.why(), Error: a.line()}
	}
	if v == job.VerdictNewKey && !in.KeySent {
		v = job.VerdictRefused // there is no key to take another one of
	}
	if t.incomparable(a, v) {
		found = unreadable
	}
	why := t.doubt(a, v, found)
	switch {
	case why == onlyAgain && in.Result.Status == http.StatusPaymentRequired:
		return a.judge(job.VerdictRefused) // the payment was declined: only another key brings another answer
	case why != "":
		return a.doubted(why)
	case found == unreadable:
		return lost(in, a.why()+", answer cut off", a.line())
	}
	if field := t.differing(a, v); field != "" {
		return a.another(field)
	}
	j := t.referred(a, a.judge(v), rule.Reference)
	j.Fault = in.Result.Status >= 500 && (found == differs && v != job.VerdictHold || v == job.VerdictUnknown && rule.When != job.WhenRepeat)
	if status := in.Result.Status; v == job.VerdictRetry && (status == http.StatusConflict || found == matches && status/100 == 4 && status != http.StatusRequestTimeout) && (in.Unsure || in.Lapse) {
		j.Spent = false // the job's own call still runs: nothing was tried, and it ends with the key's life
	}
	// While no call of the job's own can hold the key, a conflict is with somebody else's.
	j.Foreign = in.Result.Status == http.StatusConflict && in.KeySent && (!in.Again || !in.Unsure && !in.Lapse)
	if j.Foreign {
		j.Reference = "" // of somebody else's payment
	}
	return j
}

// verdict is what an answer means by the first rule that matches, else by its status, which of the two it was, and that rule.
func (t Table) verdict(a *answer) (v job.Verdict, found match, by Rule) {
	for _, rules := range [][]Rule{t.user, t.profile} {
		for _, r := range rules {
			if m := r.match(a); m != differs {
				return r.Then, m, r
			}
		}
	}
	if v := byStatus(a); v != job.VerdictDone || t.paid(a) != unreadable {
		return v, differs, Rule{}
	}
	return job.VerdictDone, unreadable, Rule{}
}

// byStatus is the default profile: what a status means where no rule says otherwise.
func byStatus(a *answer) job.Verdict {
	status := a.in.Result.Status
	switch {
	case status >= 200 && status <= 299:
		return job.VerdictDone
	case status >= 300 && status <= 399:
		return job.VerdictUnknown // the charge may come before the redirection
	case status == 401, status == 403, status == 429:
		return job.VerdictHold
	case status == 503 && a.retryAfter():
		return job.VerdictHold
	case status == 409, status == 425:
		if a.in.KeySent {
			return job.VerdictRetry
		}
		return job.VerdictRefused
	case status != 408 && status >= 400 && status <= 499:
		return job.VerdictRefused
	}
	// 408, 5xx, and statuses that HTTP does not know: it may have been charged.
	if a.in.living() {
		return job.VerdictRetry
	}
	return job.VerdictUnknown
}

// judge puts a verdict on an answer together with its reasons.
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

// notSent judges a call of which nothing reached the wire. That is an outage, a lost slot or this machine, never the job's fault,
// and spends no attempt; but for a job that can't be made into a request, which no other attempt would mend.
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

// lost judges a call that was written and whose outcome did not reach us.
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
