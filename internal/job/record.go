package job

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Record is everything stored about one job. Package record reads it.
type Record struct {
	Job           Job
	State         State
	Generation    int64
	KeyGeneration int64
	Attempts      int // calls made since it was last admitted, whatever their outcome
	Spent         int // attempts counted against retry.attempts since then; a call that met a hold or an outage does not count
	Replays       int
	Accepted      time.Time
	Finished      time.Time
	Due           time.Time // end of its back-off
	Deadline      time.Time // of the open attempt
	FirstCall     time.Time // with the current idempotency key
	Reason        Reason
	Error         string
	ParkedAt      time.Time
	Edited        time.Time // when an operator last replaced its payload; zero if never
	Erased        time.Time // when its payload, error, reference and digest were erased; zero if never
	Status        int       // HTTP status of the last answer; 0 if none
	Money         string    // as MoneyField returns it; empty if the gateway's jobs have no money
	Reference     string    // the gateway's own, of the call that succeeded; empty if it gave none
	Unsure        bool      // a call with the current key may have charged
	Settled       Settlement
	Looks         int       // look-ups made since CallEnded that did not fail
	NextLook      time.Time // when the next look-up is due; zero unless the job is pending
	LookFailing   time.Time // end of the first of the look-ups that have failed in a row; zero if the last one did not fail
	LastSeen      string    // what the last look-up saw, for a person
	CallEnded     time.Time // end of the call in doubt, which look-ups ask about; zero if there is none
	Taken         bool      // the gateway accepted the payment
	History       []Call
	// Sealed is the payload as stored, if it is sealed. If Job.Payload is empty, Unopened says why: it is
	// sealed and can't be opened, or damaged.
	Sealed   []byte
	Unopened error
}

// Calls returns the calls of the history, without look-ups.
func (r Record) Calls() []Call { return slices.DeleteFunc(slices.Clone(r.History), Call.Lookup) }

// Replaced reports whether the job was given a new payload, and with it a new key, since it was parked.
func (r Record) Replaced() bool { return !r.Edited.IsZero() && !r.Edited.Before(r.ParkedAt) }

// Over reports whether the job is done or discarded. Such a record no longer has the payload or the gateway's
// error.
func (r Record) Over() bool { return r.State == Done || r.State == Discarded }

// PayloadGone says for a person what became of the payload of a finished job. It is empty if the record still
// has it.
func (r Record) PayloadGone() string {
	if !r.Over() || len(r.Job.Payload)+len(r.Sealed) > 0 {
		return ""
	}
	return "deleted when the job was " + string(r.State)
}

// InDoubt reports whether it is unknown if the job was charged: a call with its current key may have charged.
func (r Record) InDoubt() bool { return r.Unsure || r.Reason == UnknownOutcome }

// Waits reports whether the job waits for its call: it is not parked, not in flight, and not over.
func (r Record) Waits() bool { return r.State == Queued || r.State == Scheduled || r.State == Retrying }

// Settlement is how an operator last settled the outcome of a job's calls.
type Settlement struct {
	Done bool      // charged, or not charged
	At   time.Time // on Redis's clock; zero if never settled
	Act  string    // the entry in the gateway's audit trail, with who and why; empty if none was written
}

// Call is one line of a record's history.
type Call struct {
	At      time.Time
	Took    time.Duration
	Status  int    // 0 if there was no answer
	Verdict string // a Verdict, or cut_off: its worker died during the call
}

// ErrDamaged is the error for a payload that is damaged in Redis.
var ErrDamaged = errors.New("its payload is damaged in Redis")

// Pending is the state of a job that the gateway has, or may have, and whose outcome is being looked up.
const Pending State = "pending"

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

// Asks is how long after the end of a call the first look-up is made. Zero means no look-up.
type Asks struct {
	Unknown  time.Duration // if the outcome is unknown
	Accepted time.Duration // if the gateway accepted the payment
}

// First returns the one that applies, in µs, as scripts take it.
func (a Asks) First(accepted bool) int64 {
	if accepted {
		return a.Accepted.Microseconds()
	}
	return a.Unknown.Microseconds()
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
