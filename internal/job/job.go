// Package job defines the types that every step shares: a job, its states, the reasons for parking it, verdicts
// on calls, and errors with codes. It imports no other package of this module.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Job is one request to one gateway, as a producer submits it.
type Job struct {
	// ID names the job within its gateway: 1 to 200 visible ASCII characters without spaces. It is the first
	// generation of the idempotency key.
	ID string
	// Gateway names a configured gateway, which is also the name of its queue.
	Gateway string
	// Payload is one compact JSON object, with numbers and key order as the producer wrote them. Empty means
	// {}.
	Payload json.RawMessage
	// Cost is how many units of every limit a call takes; at least 1. Zero means 1.
	Cost int64
	// At is the earliest time at which the job may be sent. Zero means now.
	At time.Time
	// Expires is the time after which the job must not be sent. Zero means never.
	Expires time.Time
	// Batch is the producer's name for the run that the job belongs to. Empty means none.
	Batch string
	// Route names a request configured for the gateway. Empty means the gateway's own request.
	Route string
	// Lane is the job's sub-queue at the gateway: a merchant, say. Empty means the lane shared by all jobs that
	// name none.
	Lane string
	// Priority names the job's class: jobs of a higher class are called first. Empty means the default class.
	Priority string
}

// State is the state of a job. Its record has exactly one at any time.
type State string

// The states of a job.
const (
	Scheduled State = "scheduled" // waiting for its At
	Queued    State = "queued"    // waiting in the queue, due now
	InFlight  State = "in_flight" // pulled by a worker, not finished
	Retrying  State = "retrying"  // waiting for its back-off to end
	Pending   State = "pending"   // the gateway has it, or may have, and its outcome is being looked up
	Done      State = "done"      // the call succeeded, or an operator resolved it as done
	Parked    State = "parked"    // in the dead-letter store
	Discarded State = "discarded" // removed for good by an operator; its record stays
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
	Edited        time.Time     // when an operator last replaced its payload; zero if never
	Erased        time.Time     // when its payload, error, reference and digest were erased; zero if never
	Status        int           // HTTP status of the last answer; 0 if none
	Money         string        // as MoneyField returns it; empty if the gateway's jobs have no money
	Reference     string        // the gateway's own, of the call that succeeded; empty if it gave none
	Unsure        bool          // a call with the current key may have charged
	FirstCallBack time.Duration // by how much Redis's clock had been set back in all at FirstCall
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

// MaxIDLength is the longest job id, in bytes.
const MaxIDLength = 200

// MaxLine is the longest line of a billing file and the largest job that a producer may submit, in bytes.
const MaxLine = 1 << 20

var gatewayName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// CheckID returns why id can't name a job, or nil. Ids are sent in a header: HTTP trims its ends and allows
// only visible ASCII. A trailing space would give two jobs the same idempotency key.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the id is empty: give each job an id of 1 to %d visible ASCII characters", MaxIDLength)
	case len(id) > MaxIDLength:
		return fmt.Errorf("the id is %d characters long: at most %d are allowed", len(id), MaxIDLength)
	}
	for i, c := range id {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("the id has the character %s at place %d: only visible ASCII without spaces is allowed", shown(id[i:]), i+1)
		}
	}
	return nil
}

// shown returns the first character of text in quotes, or its first byte if that is not valid UTF-8.
func shown(text string) string {
	c, size := utf8.DecodeRuneInString(text)
	if c == utf8.RuneError && size == 1 {
		return fmt.Sprintf(`'\x%02x'`, text[0])
	}
	return strconv.QuoteRune(c)
}

// CheckGateway returns why name can't name a gateway, or nil.
func CheckGateway(name string) error {
	if !gatewayName.MatchString(name) {
		return fmt.Errorf("%q is not a gateway's name: use lower-case letters, digits, _ and -, starting with a letter or digit", name)
	}
	return nil
}

// Admittance is the result of admission for one job.
type Admittance string

// The results of admission.
const (
	Enqueued  Admittance = "enqueued"  // in the queue, or scheduled for its At
	ParkedNow Admittance = "parked"    // no room: parked as rejected
	Duplicate Admittance = "duplicate" // already known; nothing changed
	Conflict  Admittance = "conflict"  // the id exists with another payload; the stored one is kept
	Elsewhere Admittance = "elsewhere" // the id exists with another route of the gateway; the stored one is kept
	KeyTaken  Admittance = "key_taken" // the id is an idempotency key that another job has used; nothing changed
	Full      Admittance = "full"      // no room, and not parked either; nothing changed
	Damaged   Admittance = "damaged"   // a Redis key of the job has the wrong type; nothing changed
	Claimed   Admittance = "claimed"   // another gateway is admitting this id right now: the result is still open; nothing changed
	Gone      Admittance = "gone"      // a replay found the job no longer parked as expected; nothing changed
)

// Newcomer is a job to be admitted, with the digest of its payload. The same id with another digest is a
// conflict. Both are in plain text; the ledger seals them.
type Newcomer struct {
	Job    Job
	Digest string
	Money  string // as stored in the record (see MoneyField); empty if not read yet
}

// Return is a parked job to be admitted again.
type Return struct {
	ID         string
	Generation int64
	Reason     Reason
	Key        KeyChange
	Class      ClassChange
	// Agreed is when people agreed to the replay: a job whose payload was replaced after that is Gone. Zero: it may have been replaced.
	Agreed time.Time
}

// Ticket identifies one offer of jobs, so that an offer whose reply was lost can be repeated and gets the same
// reply. Within a sequence, a later offer has a higher number. Only the reply to the latest one is stored.
type Ticket struct {
	Sequence string // of one caller, which makes one offer at a time
	Number   int64  // 1 or more
	// Until is the time on Redis's clock, in µs, from which on the offer fails and changes nothing. Zero means
	// no deadline.
	Until int64
	// Behind is an offer of another sequence that must be carried out first. Until then this one fails and changes
	// nothing. Zero means none.
	Behind Place
}

// Place identifies an offer by its sequence and number.
type Place struct {
	Sequence string
	Number   int64
}

// Offer submits prepared jobs, in a mode of admission. Repeated with the same ticket, it gets the same answers.
type Offer func(ctx context.Context, ticket Ticket, mode string) ([]Admittance, Room, error)

// Room is the room left at admission after an offer.
type Room struct {
	// Retry is when the first job without room would find some. Zero means unknown, because it waits behind
	// parked jobs; negative means never.
	Retry time.Duration
	// Left is how much each limit has left, in units of cost and in configured order.
	Left []int64
	// Reset is how long it takes until every limit has its full room again, if nothing takes any.
	Reset time.Duration
	// Parked is the bound on the gateway's parked jobs that kept a job of the offer from being parked. Zero
	// means that none did.
	Parked ParkedBound
	// Elsewhere names the other gateway that knows a job, for duplicates and conflicts, by index in the offer.
	// Nil means none.
	Elsewhere map[int]string
}

// Readmitter admits parked jobs again. retry is when there may be room for the first job that found none. Zero
// means unknown, negative means never.
type Readmitter interface {
	Readmit(ctx context.Context, jobs []Return) (answers []Admittance, retry time.Duration, err error)
}

// KeyChange is what a replay does to a job's idempotency key.
type KeyChange string

// The key changes.
const (
	KeepKey   KeyChange = "keep"      // send the same key again
	NextKey   KeyChange = "next"      // a new generation: the gateway gave a definite no
	SettleKey KeyChange = "settled"   // a new generation: an operator found that the job was not done
	ForgetKey KeyChange = "forgotten" // the same key, as if never sent: the gateway has forgotten it
)

// ClassChange is what a replay does to a job's class. Empty keeps the class.
type ClassChange string

// ToClass returns the change to the named class. Empty means the gateway's default class.
func ToClass(name string) ClassChange { return ClassChange("=" + name) }

// Verdict is what a call's result means for its job.
type Verdict string

// The verdicts.
const (
	VerdictDone    Verdict = "done"    // paid: finish the job
	VerdictHold    Verdict = "hold"    // call nothing at this gateway until the hold ends; no attempt spent
	VerdictRetry   Verdict = "retry"   // retry this job after its back-off
	VerdictFewer   Verdict = "fewer"   // too many concurrent calls, though not too fast
	VerdictRefused Verdict = "refused" // a definite no: park it
	VerdictUnknown Verdict = "unknown" // it may or may not have been charged: park it for an operator
	// VerdictAccepted: the gateway accepted the payment, and its outcome comes later. The job is parked as
	// unknown_outcome.
	VerdictAccepted Verdict = "accepted"
	VerdictNewKey   Verdict = "new_key" // a definite no for this key: retry after the back-off, with the next key
)

// Verdicts returns every verdict.
func Verdicts() []Verdict {
	return []Verdict{VerdictDone, VerdictHold, VerdictRetry, VerdictFewer, VerdictRefused, VerdictUnknown, VerdictAccepted, VerdictNewKey}
}

// Trouble is a kind of trouble of a call that may be the gateway's.
type Trouble string

// The kinds of trouble.
const (
	Fail Trouble = "fail" // the gateway failed, or could not be reached
	Wait Trouble = "wait" // it asked for a pause (429, or 503 with Retry-After)
	Deny Trouble = "deny" // it denied access (401, 403)
)

// Texts converts words such as reasons, states or verdicts to strings.
func Texts[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = string(word)
	}
	return all
}
