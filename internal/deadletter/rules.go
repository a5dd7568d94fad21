package deadletter

import (
	"fmt"
	"time"

	"spillway/internal/job"
)

// Rules say which parked jobs may be sent again, and with which idempotency key.
type Rules struct {
	Keys        bool          // the gateway keeps idempotency keys
	KeyLifetime time.Duration // for how long
	// ExpiredKeys lets jobs go whose key the gateway has forgotten by now.
	ExpiredKeys bool
	Now         time.Time // on Redis's clock
	// Money reads the money of a payload that replaces another, as a record has it. Nil: the gateway's jobs have none.
	Money func(payload []byte) string
}

func (r Rules) money(payload []byte) string {
	if r.Money == nil {
		return ""
	}
	return r.Money(payload)
}

// Why a job is held back.
const (
	notAJob   = "not a job: there is nothing to send"
	tooLate   = "its time to expire has passed"
	neverRoom = "its cost is more than admission can ever grant: raise its burst or its limits"
	noKeys    = `an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use "dlq resolve"`
)

// Key says what a replay does to a job's idempotency key; why is not empty if the job is to be held back instead. After
// a definite no the next key goes out, since a gateway answers a used one with its first answer again; in any other
// case the key stays, since only that makes another call safe where an earlier one may have charged.
func (r Rules) Key(rec job.Record) (change job.KeyChange, why string) {
	switch {
	case rec.Reason == job.Unreadable:
		return "", notAJob
	case r.expired(rec):
		return "", tooLate
	case rec.Replaced():
		return job.KeepKey, "" // the key came with the payload, and was never sent
	case saidNo(rec):
		return job.NextKey, ""
	}
	unsure := rec.Unsure || rec.Reason == job.UnknownOutcome
	switch {
	case unsure && !r.Keys:
		return "", noKeys
	case !unsure && (!r.Keys || rec.FirstCall.IsZero()):
		return job.KeepKey, ""
	case r.remembered(rec):
		return job.KeepKey, ""
	case r.ExpiredKeys:
		return job.ForgetKey, ""
	}
	return "", fmt.Sprintf("the gateway has forgotten its idempotency key after %s: look it up, or use --expired-keys", r.KeyLifetime)
}

// NotDone is Key for a job of unknown outcome that a person has found not to be charged: a definite no.
func (r Rules) NotDone(rec job.Record) (change job.KeyChange, why string) {
	if r.expired(rec) {
		return "", tooLate
	}
	return job.NextKey, ""
}

func (r Rules) expired(rec job.Record) bool {
	return rec.Reason == job.Expired || (!rec.Job.Expires.IsZero() && !r.Now.Before(rec.Job.Expires))
}

func (r Rules) remembered(rec job.Record) bool {
	return !rec.FirstCall.IsZero() && r.Now.Sub(rec.FirstCall) < r.KeyLifetime
}

// saidNo says that the gateway has given a definite no to the present key. A job can also be refused before it is
// written (it can't be made into a request any more): that is no answer to an earlier call that may have charged.
func saidNo(rec job.Record) bool {
	if rec.Reason != job.Refused {
		return false
	}
	if !rec.Unsure {
		return true
	}
	last := len(rec.History) - 1
	return last >= 0 && rec.History[last].Verdict == string(job.VerdictRefused) && ofTheGateway(rec.History[last].Status)
}

// ofTheGateway says that a status is the gateway's word on the payment. The others may come from something in front of it that
// never asked: then they are no answer to an earlier call.
func ofTheGateway(status int) bool {
	switch {
	case status >= 300 && status < 400:
		return false
	case status == 404, status == 405, status == 407, status == 413, status == 414, status == 421, status == 431:
		return false
	}
	return true
}
