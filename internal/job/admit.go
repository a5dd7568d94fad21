package job

import (
	"context"
	"fmt"
	"time"

	units "github.com/docker/go-units"
)

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

// Newcomer is a job to be admitted, with the digest of its payload. The same id with another digest is a
// conflict. Both are in plain text; the ledger seals them.
type Newcomer struct {
	Job    Job
	Digest string
	Money  string // as stored in the record (see MoneyField); empty if not read yet
}

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

// ParkedBound limits the parked jobs of a gateway, over all reasons. At the limit, no new job is parked.
type ParkedBound struct {
	Jobs  int64 // 0 = any number
	Bytes int64 // of payloads, as stored; 0 = any number
}

// Bounds reports whether there is a limit.
func (b ParkedBound) Bounds() bool { return b.Jobs > 0 || b.Bytes > 0 }

// Reached returns what is parked when a limit is reached, and the configuration key of that limit: "5000000
// jobs are parked, the most that parked.most allows".
func (b ParkedBound) Reached() (text, key string) {
	if b.Jobs > 0 {
		return fmt.Sprintf("%d jobs are parked, the most that parked.most allows", b.Jobs), "parked.most"
	}
	return fmt.Sprintf("with one more the payloads of the parked jobs would come to more than %s, which parked.bytes allows", units.BytesSize(float64(b.Bytes))), "parked.bytes"
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

// ClassChange is what a replay does to a job's class. Empty keeps the class.
type ClassChange string

// ToClass returns the change to the named class. Empty means the gateway's default class.
func ToClass(name string) ClassChange { return ClassChange("=" + name) }

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

// Offer submits prepared jobs, in a mode of admission. Repeated with the same ticket, it gets the same answers.
type Offer func(ctx context.Context, ticket Ticket, mode string) ([]Admittance, Room, error)
