package deadletter

import (
	"fmt"
	"net/http"
	"time"

	"spillway/internal/job"
)

// Rules say which parked jobs may be sent again, and with which idempotency key.
type Rules struct {
	Keys        bool          // the gateway keeps idempotency keys
	KeyLifetime time.Duration // for how long after a key's first call another one may begin with it
	// ExpiredKeys lets jobs go whose key the gateway has forgotten by now.
	ExpiredKeys bool
	// Asks says when the gateway is first asked what became of a call. Zero: it can't be asked.
	Asks job.Asks
	// RouteAsks is Asks of each of the gateway's routes, by their names.
	RouteAsks map[string]job.Asks
	// MayBeCharged lets jobs be discarded that may have been charged.
	MayBeCharged bool
	// LoseAmounts lets a replacement take away an amount that can be read.
	LoseAmounts bool
	// Approvals is what a replacement has to know of them (ledger.Books.ReplacedBy). Empty: no batch needs one.
	Approvals string
	Now       time.Time // on Redis's clock
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
	neverRoom  = "its cost is more than admission can ever grant: raise its burst or its limits"
	coversNone = `an earlier call may have charged, and a key of this gateway covers no second call: look it up, then use "dlq resolve"`
	noKeys     = `an earlier call may have charged, and the gateway keeps no idempotency keys: look it up, then use "dlq resolve"`
)

// Key says what a replay does to a job's idempotency key; why is not empty if the job is to be held back instead. After
// a definite no the next key goes out, since a gateway answers a used one with its first answer again; in any other
// case the key stays, since only that makes another call safe where an earlier one may have charged.
func (r Rules) Key(rec job.Record) (change job.KeyChange, why string) {
	if why := rec.Reason.About().NoReplay; why != "" {
		return "", why
	}
	switch {
	case r.expired(rec):
		return "", job.Expired.About().NoReplay
	case rec.Replaced():
		return job.KeepKey, "" // the key came with the payload, and was never sent
	case saidNo(rec):
		return job.NextKey, ""
	}
	unsure := mayHaveCharged(rec)
	switch {
	case unsure && !r.Keys:
		return "", noKeys
	case unsure && r.KeyLifetime == 0:
		return "", coversNone
	case !unsure && (!r.Keys || r.KeyLifetime == 0 || rec.FirstCall.IsZero()):
		return job.KeepKey, ""
	case r.remembered(rec):
		return job.KeepKey, ""
	case r.ExpiredKeys:
		return job.ForgetKey, ""
	}
	return "", fmt.Sprintf("the gateway has forgotten its idempotency key after %s: look it up, or use --expired-keys", r.KeyLifetime)
}

func (r Rules) expired(rec job.Record) bool {
	return rec.Reason == job.Expired || (!rec.Job.Expires.IsZero() && !r.Now.Before(rec.Job.Expires))
}

func (r Rules) remembered(rec job.Record) bool {
	return !rec.FirstCall.IsZero() && r.Now.Sub(rec.FirstCall) < r.KeyLifetime
}

// saidNo says that the gateway has given a definite no to the present key: to the payment, that is, and to none of its calls anything else. A job can
// also be refused before it is written (it can't be made into a request any more): that is no answer to an earlier call that may have charged.
func saidNo(rec job.Record) bool {
	switch {
	case rec.Reason != job.Refused || redirected(rec):
		return false
	case !rec.Unsure: // park.lua settles an earlier doubt together with the no
		return true
	}
	last, ok := lastCall(rec) // of an older version, which took any 4xx for a no
	return ok && last.Verdict == string(job.VerdictRefused) && last.Status == http.StatusPaymentRequired
}

// mayHaveCharged says that a call with the present key may have charged.
func mayHaveCharged(rec job.Record) bool {
	return rec.Unsure || rec.Reason == job.UnknownOutcome || redirected(rec)
}

// redirected says that the job was refused by a redirection, which may come after the charge.
func redirected(rec job.Record) bool {
	last, ok := lastCall(rec)
	return ok && rec.Reason == job.Refused && last.Status >= 300 && last.Status <= 399
}

func lastCall(rec job.Record) (job.Call, bool) {
	if len(rec.History) == 0 {
		return job.Call{}, false
	}
	return rec.History[len(rec.History)-1], true
}
