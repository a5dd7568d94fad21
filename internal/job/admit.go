package job

import (
	"context"
	"fmt"
	"time"

	units "github.com/docker/go-units"
)

// Admittance is what admission did with a job.
type Admittance string

// The admittances.
const (
	Enqueued  Admittance = "enqueued"  // in the queue, or scheduled for its time
	ParkedNow Admittance = "parked"    // no room: parked as rejected
	Duplicate Admittance = "duplicate" // known already, nothing changed
	Conflict  Admittance = "conflict"  // the same id with another payload: the first one stands
	Elsewhere Admittance = "elsewhere" // the same id with another route of the gateway: the first one stands
	KeyTaken  Admittance = "key_taken" // the id is an idempotency key that another job has used: nothing changed
	Full      Admittance = "full"      // no room, and not parked either: nothing changed
	Damaged   Admittance = "damaged"   // a key of the job in Redis is of another type: nothing changed
	Claimed   Admittance = "claimed"   // another gateway is taking this id in at the moment: nothing changed, and nobody knows yet what comes of it
	Gone      Admittance = "gone"      // a replay found the job no longer parked as it was: nothing changed
)

// Ticket names one offer of jobs to the books, so that an offer whose answer was lost can be made again and gets that answer. Of two
// offers in one lane the later has the higher number, and only the latest one's answer is kept.
type Ticket struct {
	Lane   string // of one caller, who makes one offer at a time
	Number int64  // 1 or more
	// Until is the moment of Redis's clock (µs) from which on the offer changes nothing and fails. Zero: there is none.
	Until int64
	// Behind is the offer of another lane that must have been carried out before: until then this one changes nothing and fails. Zero: none.
	Behind Place
}

// Place is where an offer stands.
type Place struct {
	Lane   string
	Number int64
}

// Newcomer is a job on its way in, with the digest of its payload: the same id with another digest is a conflict. Both are in plain: the
// books seal them.
type Newcomer struct {
	Job    Job
	Digest string
	Money  string // as its record has it (MoneyField); empty where nobody has read it yet
}

// Room is what admission still has room for after an offer.
type Room struct {
	// Retry is when the first job without room would find some: zero if nobody knows (it waits behind parked jobs), negative if never.
	Retry time.Duration
	// Left is how much each limit has left, in units of cost and in the order of the configuration.
	Left []int64
	// Reset is how long it takes until every limit has all of its room again, if nobody takes any.
	Reset time.Duration
	// Parked is what bounds the gateway's parked jobs, where a job of the offer was not parked for that. Zero: that was not so.
	Parked ParkedBound
	// Elsewhere has, by their places in the offer, the other gateway that knows a job: of duplicates and conflicts with one. Nil: there are none.
	Elsewhere map[int]string
}

// ParkedBound is what the parked jobs of a gateway may come to, of all reasons together, for a newcomer to be parked.
type ParkedBound struct {
	Jobs  int64 // 0 = any number
	Bytes int64 // of their payloads, as they are stored; 0 = any number
}

// Bounds says that there is a bound.
func (b ParkedBound) Bounds() bool { return b.Jobs > 0 || b.Bytes > 0 }

// Reached says what there is parked once it comes to a bound, and which key of the configuration has it: "5000000 jobs are parked, the most that parked.most allows".
func (b ParkedBound) Reached() (text, key string) {
	if b.Jobs > 0 {
		return fmt.Sprintf("%d jobs are parked, the most that parked.most allows", b.Jobs), "parked.most"
	}
	return fmt.Sprintf("with one more the payloads of the parked jobs would come to more than %s, which parked.bytes allows", units.BytesSize(float64(b.Bytes))), "parked.bytes"
}

// Return is a parked job on its way back in.
type Return struct {
	ID         string
	Generation int64
	Reason     Reason
	Key        KeyChange
	Class      ClassChange
	// Agreed is when people agreed to the replay: a job whose payload was replaced after that is Gone. Zero: it may have been replaced.
	Agreed time.Time
}

// ClassChange is what a replay does to the job's class. Empty: it keeps the one that it has.
type ClassChange string

// ToClass returns the change to a class; empty is the gateway's usual one.
func ToClass(name string) ClassChange { return ClassChange("=" + name) }

// Readmitter takes parked jobs through admission again. retry is when there may be room for the first that found none:
// zero if nobody knows, negative if never.
type Readmitter interface {
	Readmit(ctx context.Context, jobs []Return) (answers []Admittance, retry time.Duration, err error)
}

// KeyChange says what a replay does to the job's idempotency key.
type KeyChange string

// The key changes.
const (
	KeepKey   KeyChange = "keep"      // the same key goes out again
	NextKey   KeyChange = "next"      // a new generation: the gateway has said a definite no
	SettleKey KeyChange = "settled"   // a new generation: a person has looked the job up, and it was not done
	ForgetKey KeyChange = "forgotten" // the same key, as if it had never been sent: the gateway has forgotten it
)

// Offer puts jobs that are ready for it before the books, in a mode of admission. Made again with its ticket, it gets the same answers.
type Offer func(ctx context.Context, ticket Ticket, mode string) ([]Admittance, Room, error)
