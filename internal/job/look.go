package job

import (
	"strings"
	"time"
)

// LookVerdict is what a look-up found out about a job's call.
type LookVerdict string

// The verdicts of look-ups.
const (
	LookDone    LookVerdict = "done"     // it was charged
	LookRefused LookVerdict = "refused"  // a definite no
	LookLater   LookVerdict = "later"    // not known yet: ask again
	LookNotDone LookVerdict = "not_done" // the gateway has no such payment; believed only if it says so twice
)

// inHistory is the prefix of a look-up's verdict in a record's history.
const inHistory = "look_"

// InHistory returns the verdict as written in a record's history, among those of calls.
func (v LookVerdict) InHistory() string { return inHistory + string(v) }

// Lookup reports whether the history line is a look-up rather than a call.
func (c Call) Lookup() bool { return strings.HasPrefix(c.Verdict, inHistory) }

// LookVerdicts returns every look-up verdict.
func LookVerdicts() []LookVerdict {
	return []LookVerdict{LookDone, LookRefused, LookLater, LookNotDone}
}

// Look is one look-up of a pending job. It is recorded before it is made.
type Look struct {
	Job           Job // including its payload
	Generation    int64
	KeyGeneration int64
	// AbsentKey is the KeyGeneration at the time when look-ups last found no payment of the job: earlier calls
	// left none that a look-up could show. 1 means that look-ups never found that.
	AbsentKey int64
	// Declined says that since then a call was answered with a no, and retried all the same.
	Declined bool
	Owner    string
	// Accepted says that the gateway accepted the payment. False means that its outcome is unknown.
	Accepted  bool
	Reference string    // the gateway's own, if known
	First     time.Time // first call with the current key, on Redis's clock
	Ended     time.Time // the end of the call in doubt, on Redis's clock
	Made      int       // look-ups made so far that count for the schedule
	Absent    int       // how many of the last look-ups in a row said not_done
	Failed    int       // how many of the last look-ups in a row failed
	Entered   time.Time // when the job was admitted, on Redis's clock
	Claimed   time.Time // when this look-up was claimed, on Redis's clock
}

// Key returns the idempotency key of the call in doubt, like Attempt.Key.
func (l Look) Key() string { return IdempotencyKey(l.Job.ID, l.KeyGeneration) }

// LookRequest is one HTTP request of a look-up.
type LookRequest struct {
	Look Look
	Key  string // idempotency key, as Look.Key returns it
	// Page is the URL of a further page of a list. Empty means the first request.
	Page string
	// Bearer is the access token that the request carries, a secret. Empty = none.
	Bearer string
	// Due is the slot: nothing is written before it. Zero means send at once.
	Due time.Time
	// TooLate is called just before the write, with the current time. If it returns true, the request is given
	// up (Result.Late). nil = never.
	TooLate func(time.Time) bool
	// Wrote is called once, just after the first byte was written. It must not block. nil = not called.
	Wrote func(time.Time)
}

// Finding is what a look-up's answer says.
type Finding struct {
	Verdict LookVerdict
	// After is, for LookNotDone, how long after the end of the call it is believed at the earliest.
	After     time.Duration
	Reference string // the gateway's own; empty if the answer had none
	Status    int    // HTTP status; 0 without an answer
	// Error is for an operator: the gateway's message, bounded and without secrets, or what was wrong.
	Error string
	// Failed says that the look-up itself failed (5xx, 429, no answer). It is repeated after a back-off of its
	// own.
	Failed bool
	// Wait is how long the gateway asked to be left alone (Retry-After). Zero means that it did not say.
	Wait time.Duration
	// Limited reports a 429.
	Limited bool
	// Page is the URL at which the list continues: ask again. Empty means that the finding is complete.
	Page string
}
