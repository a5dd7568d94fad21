package job

import "time"

// Admittance is what admission did with a job.
type Admittance string

// The admittances.
const (
	Enqueued  Admittance = "enqueued"  // in the queue, or scheduled for its time
	ParkedNow Admittance = "parked"    // no room: parked as rejected
	Duplicate Admittance = "duplicate" // known already, nothing changed
	Conflict  Admittance = "conflict"  // the same id with another payload: the first one stands
	Full      Admittance = "full"      // no room, and not parked either: nothing changed
	Gone      Admittance = "gone"      // a replay found the job no longer parked as it was: nothing changed
)

// KeyChange says what a replay does to the job's idempotency key.
type KeyChange string

// The key changes.
const (
	KeepKey   KeyChange = "keep"      // the same key goes out again
	NextKey   KeyChange = "next"      // a new generation: the gateway has said a definite no
	ForgetKey KeyChange = "forgotten" // the same key, as if it had never been sent: the gateway has forgotten it
)

// Dead is a parked job, as the dead-letter store shows it.
type Dead struct {
	Job           Job
	Generation    int64
	Reason        Reason
	Error         string
	Attempts      int // spent since it was last admitted
	ParkedAt      time.Time
	Accepted      time.Time
	Order         int64     // the place among the gateway's parked jobs: its time of parking in µs, unique
	FirstCall     time.Time // when the present idempotency key was first sent; zero if never
	KeyGeneration int64
	Replays       int
}
