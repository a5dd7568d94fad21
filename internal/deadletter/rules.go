package deadletter

import (
	"fmt"
	"net/http"
	"time"

	"spillway/internal/job"
)

// Rules decide which parked jobs may be sent again, and with which idempotency key.
type Rules struct {
	Keys        bool          // the gateway has idempotency keys
	KeyLifetime time.Duration // how long after a key's first call another call may use it
	// ExpiredKeys permits jobs whose key the gateway has forgotten by now.
	ExpiredKeys bool
	// Asks says when the first look-up after a call is made. Zero: there are no look-ups.
	Asks job.Asks
	// RouteAsks is Asks for each route, by name.
	RouteAsks map[string]job.Asks
	// MayBeCharged permits discarding jobs that may have been charged.
	MayBeCharged bool
	// LoseAmounts permits a replacement to remove a readable amount.
	LoseAmounts bool
	// Approvals is what a replacement needs to know of approvals (ledger.Books.ReplacedBy). Empty: no batch
	// needs one.
	Approvals string
	Now       time.Time // on Redis's clock
	// Money returns the money of a replacing payload in the form stored in records. Nil: the gateway's jobs
	// have none.
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

// Key returns what a replay does to a job's idempotency key. why is not empty if the job is held back instead.
// After a definite no, the next key is used, because a gateway answers a used key with its first answer again.
// In any other case the key stays, because only that makes another call safe if an earlier one may have
// charged.
func (r Rules) Key(rec job.Record) (change job.KeyChange, why string) {
	if why := rec.Reason.About().NoReplay; why != "" {
		return "", why
	}
	switch {
	case r.expired(rec):
		return "", job.Expired.About().NoReplay
	case rec.Replaced():
		return job.KeepKey, "" // the key is new with the payload and was never sent
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

// saidNo reports whether the gateway gave a definite no to the current key: the payment was refused, and no
// call with the key had another answer. A job can also be refused before it is written, because it can't be
// made into a request any more. That does not answer an earlier call that may have charged.
func saidNo(rec job.Record) bool {
	switch {
	case rec.Reason != job.Refused || redirected(rec):
		return false
	case !rec.Unsure: // park.lua settles an earlier doubt together with the no
		return true
	}
	last, ok := lastCall(rec) // parked by an older version, which took any 4xx for a no
	return ok && last.Verdict == string(job.VerdictRefused) && last.Status == http.StatusPaymentRequired
}

// mayHaveCharged reports whether a call with the current key may have charged.
func mayHaveCharged(rec job.Record) bool {
	return rec.Unsure || rec.Reason == job.UnknownOutcome || redirected(rec)
}

// redirected reports whether the job was refused because of a redirection, which may follow the charge.
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
