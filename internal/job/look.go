package job

import (
	"strings"
	"time"
)

// Pending is the state of a job that the gateway has, or may have: its outcome is being asked for.
const Pending State = "pending"

// LookVerdict is what a look-up says of a job's call.
type LookVerdict string

// The verdicts of look-ups.
const (
	LookDone    LookVerdict = "done"     // it was charged
	LookRefused LookVerdict = "refused"  // a definite no
	LookLater   LookVerdict = "later"    // it can't be said yet: ask again
	LookNotDone LookVerdict = "not_done" // the gateway has no such payment; believed only when it says so twice
)

// inHistory begins the verdict of a look-up in a record's history.
const inHistory = "look_"

// InHistory names the verdict in a record's history, where those of calls stand too.
func (v LookVerdict) InHistory() string { return inHistory + string(v) }

// Lookup says that the line of the history is of a look-up, and not of a call.
func (c Call) Lookup() bool { return strings.HasPrefix(c.Verdict, inHistory) }

// LookVerdicts returns every one.
func LookVerdicts() []LookVerdict {
	return []LookVerdict{LookDone, LookRefused, LookLater, LookNotDone}
}

// Asks is how long after the end of a call the gateway is first asked what came of it. Zero: it is not asked.
type Asks struct {
	Unknown  time.Duration // where nobody knows whether it was charged
	Accepted time.Duration // where the gateway has said that it accepted the payment
}

// First is the one of both in µs, as scripts have it.
func (a Asks) First(accepted bool) int64 {
	if accepted {
		return a.Accepted.Microseconds()
	}
	return a.Unknown.Microseconds()
}

// Look is one look-up of a pending job, written down before it is made.
type Look struct {
	Job           Job // with its payload
	Generation    int64
	KeyGeneration int64
	// AbsentKey is the KeyGeneration when look-ups last found no payment of the job. Its calls before left none that a look-up could show. 1: they never did.
	AbsentKey int64
	// Declined says that since then one of its calls was answered with a no, and tried again all the same.
	Declined bool
	Owner    string
	// Accepted says that the gateway has said that it accepted the payment. False: nobody knows.
	Accepted  bool
	Reference string    // the gateway's own, if it is known
	First     time.Time // first call with the present key, on Redis's clock
	Ended     time.Time // the end of the call in doubt, on Redis's clock
	Made      int       // look-ups made so far that count for the schedule
	Absent    int       // how many of the last ones in a row said not_done
	Failed    int       // how many of the last ones in a row failed
	Entered   time.Time // when the job was accepted here, on Redis's clock
	Claimed   time.Time // when this look-up was claimed, on Redis's clock
}

// Key is the idempotency key of the call in doubt, as Attempt.Key.
func (l Look) Key() string { return IdempotencyKey(l.Job.ID, l.KeyGeneration) }

// LookRequest is one HTTP request of a look-up.
type LookRequest struct {
	Look Look
	Key  string // idempotency key as Look.Key says
	// Page is the URL of a further page of a list. Empty: the first request.
	Page string
	// Bearer is the access token that the request carries, a secret. Empty = none.
	Bearer string
	// Due is the slot: nothing is written before it. Zero means at once.
	Due time.Time
	// TooLate is asked just before the write, with the present moment; true gives the request up (Result.Late). nil = never.
	TooLate func(time.Time) bool
	// Wrote is told once, the moment just after the first byte went out. It must not block. nil = nobody wants to know.
	Wrote func(time.Time)
}

// Finding is what a look-up's answer means.
type Finding struct {
	Verdict LookVerdict
	// After is, with LookNotDone, how long after the end of the call it is believed at the earliest.
	After     time.Duration
	Reference string // the gateway's own; empty if it gave none
	Status    int    // HTTP status; 0 without an answer
	// Error is for a person: the gateway's words, bounded and without secrets, or what was wrong.
	Error string
	// Failed says that the look-up itself failed (5xx, 429, no answer): it is made again after a back-off of its own.
	Failed bool
	// Wait is how long the gateway asked to be left alone (Retry-After). Zero: it did not say.
	Wait time.Duration
	// Limited says that the answer was a 429.
	Limited bool
	// Page is where the list goes on: ask again. Empty: this is the finding.
	Page string
}
