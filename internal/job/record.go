package job

import (
	"errors"
	"slices"
	"time"
)

// Record is everything the ledger knows of one job. internal/record reads it.
type Record struct {
	Job           Job
	State         State
	Generation    int64
	KeyGeneration int64
	Attempts      int // calls made since it was last admitted, whatever they came to
	Spent         int // of retry.attempts, since then: calls that met a hold or an outage spend none
	Replays       int
	Accepted      time.Time
	Finished      time.Time
	Due           time.Time // end of its back-off
	Deadline      time.Time // of the open attempt
	FirstCall     time.Time // with the present idempotency key
	Reason        Reason
	Error         string
	ParkedAt      time.Time
	Edited        time.Time // when a person last gave it another payload; zero if nobody did
	Erased        time.Time // when its payload, error, reference and digest were erased; zero if they were not
	Status        int       // HTTP status of the last answer; 0 if there was none
	Money         string    // as MoneyField writes it; empty where the gateway's jobs have none
	Reference     string    // the gateway's own, of the call that succeeded; empty if it gave none
	Unsure        bool      // a call with the present key may have charged
	Settled       Settlement
	Looks         int       // look-ups made since CallEnded, but for those that failed
	NextLook      time.Time // when the next one is due; zero unless the job is pending
	LookFailing   time.Time // when the first of the last look-ups in a row ended that failed; zero if the last one did not
	LastSeen      string    // what the last one saw, for a person
	CallEnded     time.Time // end of the call in doubt, which look-ups ask for; zero if none did
	Taken         bool      // the gateway has said that it accepted the payment
	History       []Call
	// Sealed is the payload as it is stored, where that is sealed. Job.Payload is empty where Unopened says why it can't be opened: it is sealed, or damaged.
	Sealed   []byte
	Unopened error
}

// Calls is the calls of the history, without the look-ups.
func (r Record) Calls() []Call { return slices.DeleteFunc(slices.Clone(r.History), Call.Lookup) }

// Replaced says that the job was given another payload, and with it another key, since it was parked.
func (r Record) Replaced() bool { return !r.Edited.IsZero() && !r.Edited.Before(r.ParkedAt) }

// Over says that nothing more is to be done for the job: it is done or discarded. Its record has no payload any more, nor what the gateway said when
// it failed.
func (r Record) Over() bool { return r.State == Done || r.State == Discarded }

// PayloadGone says what became of the payload of a job that is over, for a person; empty where the job has its payload.
func (r Record) PayloadGone() string {
	if !r.Over() || len(r.Job.Payload)+len(r.Sealed) > 0 {
		return ""
	}
	return "deleted when the job was " + string(r.State)
}

// InDoubt says that nobody knows whether the job was charged: a call with its present key may have done it.
func (r Record) InDoubt() bool { return r.Unsure || r.Reason == UnknownOutcome }

// Waits says that the job is neither parked, nor called, nor over: it waits for its call.
func (r Record) Waits() bool { return r.State == Queued || r.State == Scheduled || r.State == Retrying }

// Settlement is how a person last settled what a job's calls came to.
type Settlement struct {
	Done bool      // it was charged; if not, it was not
	At   time.Time // on Redis's clock; zero if nobody settled the job
	Act  string    // the act's place in the gateway's trail, which says who and why; empty where none was written
}

// Call is one line of a record's history.
type Call struct {
	At      time.Time
	Took    time.Duration
	Status  int    // 0 without an answer
	Verdict string // a Verdict, or cut_off: its worker died with the call under way
}

// ErrDamaged is the error of a payload that was damaged in Redis.
var ErrDamaged = errors.New("its payload is damaged in Redis")
