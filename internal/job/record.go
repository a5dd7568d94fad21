package job

import (
	"errors"
	"slices"
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
