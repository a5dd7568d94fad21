package job

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// TaskID returns the queue's task id for one generation of a job. A job gets a new generation each time it
// enters the queue, so that a replay or retry never collides with a task that is not acknowledged yet.
func TaskID(id string, generation int64) string {
	return id + "~" + strconv.FormatInt(generation, 10)
}

// ParseTaskID is the inverse of TaskID. ok is false for a foreign task.
func ParseTaskID(task string) (id string, generation int64, ok bool) {
	i := strings.LastIndexByte(task, '~')
	if i < 1 {
		return "", 0, false
	}
	generation, err := strconv.ParseInt(task[i+1:], 10, 64)
	if err != nil || generation < 1 {
		return "", 0, false
	}
	return task[:i], generation, true
}

// IdempotencyKey returns the key sent to the gateway: the id itself for key generation 1, then ID~2, ID~3, and
// so on. A definite no starts a new generation, because a gateway answers a used key with its first answer
// again.
func IdempotencyKey(id string, keyGeneration int64) string {
	if keyGeneration <= 1 {
		return id
	}
	return id + "~" + strconv.FormatInt(keyGeneration, 10)
}

// Opening is what a worker may do with a task it has pulled.
type Opening string

// The values of Opening.
const (
	OpenGo        Opening = "go"                // the attempt is recorded: call
	OpenStale     Opening = "stale"             // a task of an earlier generation, or of a finished job: nothing to do
	OpenBusy      Opening = "busy"              // another attempt is open and its deadline has not passed: nothing to do
	OpenExpired   Opening = "expired"           // the job's Expires has passed: park it
	OpenHeld      Opening = "held"              // Redis has lost data: call nothing; the task must come again
	OpenUnknown   Opening = "unknown"           // an attempt was cut off, and no valid key makes a second call safe: park it
	OpenExhausted Opening = "exhausted"         // its attempts are used up: park it
	OpenSealed    Opening = "sealed"            // this process's configuration can't open its payload: set it aside until that is fixed
	OpenDiffers   Opening = "differs"           // an attempt may have charged, and another call would not be the same request: park it
	OpenUnrouted  Opening = "unrouted"          // its route is not configured: set it aside until that is fixed
	OpenChanged   Opening = "changed"           // its payload is not the one that was sealed for it: park it
	OpenPaused    Opening = "paused"            // its batch is paused: park it until the batch is resumed
	OpenAwaits    Opening = "awaiting_approval" // its batch needs approval: park it until a second person approves
	OpenCancelled Opening = "cancelled"         // its batch is cancelled: park it until an operator replays it
	OpenBraked    Opening = "braked"            // no brake has room for its amount now: give it back; the gateway waits
	OpenOver      Opening = "over"              // a brake forbids its amount: park it
)

// Attempt is a job opened by a worker. It is recorded before the call and closed after it.
type Attempt struct {
	Job           Job
	Generation    int64         // of the task; a record with another generation has moved on
	Owner         string        // fencing token: who opened the attempt
	Spent         int           // attempts spent before this one, since the job was last admitted
	Calls         int           // calls made before this one, since the job was last admitted
	KeyGeneration int64         // of the idempotency key
	KeySent       bool          // the current key has been sent before
	KeyAge        time.Duration // since the current key was first sent
	Unsure        bool          // a call with the current key may have charged
	Lapse         bool          // a forgotten call may have charged: Redis lost its latest writes after the job was accepted
	Accepted      time.Time     // when the job was accepted, on Redis's clock
	Left          time.Duration // from the opening to the job's expiry; zero if it has none
	Outages       int           // outages of the gateway that the job has been through
	Failed        time.Time     // its first failure that counts as an attempt, on Redis's clock; zero if none
	// LastError depends on the Opening. With OpenGo and OpenExhausted it is the last error. With OpenPaused,
	// OpenAwaits, OpenCancelled, OpenSealed, OpenUnrouted, OpenBraked, OpenOver and OpenChanged it is the
	// reason. With OpenDiffers it is the digest of what was sent then (see SentChanges).
	LastError string
}

// Key returns the idempotency key of this attempt.
func (a Attempt) Key() string { return IdempotencyKey(a.Job.ID, a.KeyGeneration) }

// Ending is recorded when an attempt ends.
type Ending struct {
	Called  bool          // the request was written, at least in part
	Spent   bool          // the attempt counts against the retry limit
	Status  int           // HTTP status; 0 without an answer
	Verdict Verdict       // the verdict; empty if the job was given back unsent
	Error   string        // the status and the first 500 bytes of the answer, or the transport error
	Unsure  bool          // the call may have charged: only its key makes another call safe
	Foreign bool          // another user of the gateway has the key: it does not count as sent
	At      time.Time     // when the call was written, or the attempt began
	Took    time.Duration // the call's duration
	// Reference is the gateway's own name for the payment. It is empty unless the payment was made or accepted
	// and the answer had one.
	Reference string
	// Trouble says that the gateway failed, asked for a pause, or denied access, and that this was counted.
	Trouble bool
	// Failed is when the trouble was counted, on Redis's clock. It is zero if there was none, if it was the
	// job's own, or if the circuit is off.
	Failed time.Time
	// Outage is the start of the outage that the failure belongs to; zero if it belongs to none so far.
	Outage time.Time
}

// Doubt returns what the ending means for the current key, in the form that scripts read: "1" it may have
// charged; "other" the same, and another user has the key; "no" it has not charged, even if an earlier call
// left that open; "next" the same, and the job continues with the next key; "0" nothing new.
func (e Ending) Doubt() string {
	switch {
	case e.Unsure && e.Foreign:
		return "other"
	case e.Unsure:
		return "1"
	case e.Called && e.Verdict == VerdictRefused:
		return "no"
	case e.Called && e.Verdict == VerdictNewKey:
		return "next"
	}
	return "0"
}

// Alive reports whether the gateway itself did its work: it has paid, or refused. Any other answer may come
// from a proxy in front of it.
func (e Ending) Alive() bool {
	return (e.Status >= 200 && e.Status <= 299 || e.Status == 402) && !e.Trouble && e.Verdict != VerdictHold
}

// Line returns the ending as one line of the record's history. It is empty if nothing was written to the
// gateway.
func (e Ending) Line() string {
	if !e.Called {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", e.At.UnixMicro(), e.Took.Microseconds(), e.Status, e.Verdict)
}

// Slot is the time at which one call may start, and what was taken from the limits for it. The fields after
// Lease are for the pacer that granted it.
type Slot struct {
	// At is the time in µs on Redis's clock. Zero means no slot.
	At int64
	// Cost is the number of units taken from every limit.
	Cost int64
	// Lease identifies the slot among the calls in flight; empty if their number has no cap.
	Lease string

	// Era is the period between two steps of Redis's clock in which At lies.
	Era int64
	// Number distinguishes the slots of one process.
	Number int64
	// Seen is how far Redis's clock was seen to run ahead, and may run ahead until At, when the slot was
	// requested, in µs.
	Seen int64
	// Counted is the time at which Redis counts the call, unless it is told another one, in µs.
	Counted int64
	// StateID is the number of the pacer state that the slot was taken from. It changes whenever that state is
	// recreated.
	StateID int64
	// Asked is when the slot was granted for a job still to be pulled, in µs on the pacer's own clock. Zero
	// means that the job was already pulled.
	Asked int64
	// Flow is the flow that the slot was taken for; the slot has the permits of its route and lane, too. It is
	// the zero Flow if the gateway has neither lanes nor route limits.
	Flow Flow
	// Task is the task to be called at the slot, and Message is asynq's message for it, until the queue has
	// taken the job over. Both are empty if the queue is to pull a task.
	Task, Message string
	// Costly says that jobs have costs of their own, and that the slot was taken for the job whose turn it was.
	Costly bool
	// Probe marks the slot of the single call that is sent ahead after a hold.
	Probe bool
}

// Flow is the jobs of one class, one route and one lane, which are called in order.
type Flow struct {
	// Class and Route are names; empty means the default.
	Class, Route string
	// Lane is empty for jobs without a lane.
	Lane string
	// Line is the flow's line that the job waited in, as scripts number it.
	Line int64
	// Kept says that the gateway has lanes, or routes with limits.
	Kept bool
	// Marks say whether the call is the probe after a hold of its route or lane, and whether it counts among
	// their calls in flight, encoded as in scripts.
	Marks int64
}

// Zero reports whether this is no slot.
func (s Slot) Zero() bool { return s.At == 0 }

// Delivery is one task pulled from the queue, with the slot for its call.
type Delivery struct {
	TaskID     string
	JobID      string
	Generation int64
	// Slot is the zero Slot if the job was pulled without one: take a slot before calling.
	Slot Slot
	// Foreign means that another program put the task into the queue: JobID and Generation are empty, and
	// Payload is the task's content.
	Foreign bool
	Payload []byte
}

// Stage says how far a call got. It decides whether the job can have been charged.
type Stage string

// The stages of a call.
const (
	NotSent  Stage = "not_sent" // nothing of the request reached the wire
	Sent     Stage = "sent"     // written, at least in part, but no whole answer came back
	Answered Stage = "answered" // the gateway's status line and headers arrived
)

// Request is one call to a gateway that is still to be made.
type Request struct {
	Job Job
	// Key is the idempotency key before KeyShape is applied. It is sent if the gateway has keys.
	Key string
	// Bearer is the access token that the call carries, a secret. Empty = none.
	Bearer string
	// Due is the slot: nothing is written before it. Zero means send at once.
	Due time.Time
	// TooLate is called just before the write, with the current time. If it returns true, the call is given up
	// (Result.Late), unless Again has another slot. nil = never.
	TooLate func(time.Time) bool
	// Again is called instead, if TooLate returns true, and takes another slot for the call on the connection that it
	// has. TooLate and Wrote are then about that slot. It returns the moment before which nothing is written; ok is false
	// if there is no slot, and the call is given up. It may be running when the call is over. nil = there is none.
	Again func() (due time.Time, ok bool)
	// Wrote is called once, just after the first byte was written, with that time; never for a call that was
	// not sent. It must not block. nil = not called.
	Wrote func(time.Time)
}

// Result is the raw outcome of one call, before it is judged.
type Result struct {
	Stage  Stage
	Status int                 // HTTP status; 0 unless Stage is Answered
	Header map[string][]string // the answer's headers, canonical names
	Body   []byte              // at most the first 64 KiB of the answer, or 1 MiB for a look-up
	Err    error               // why there is no answer; never contains a payload or a secret
	// Late reports a call that was given up before its write because its slot had passed too long ago.
	Late bool
	// Renewed reports a 401 on an access token that has been dropped since: the job may be sent again, with a
	// new token.
	Renewed bool
	// Wrote is the local moment just after the first byte was handed to the kernel; zero if NotSent.
	Wrote time.Time
	// Took is the time from the write (or from the start, if NotSent) to the end.
	Took time.Duration
}

// Where a call carries the key.
const (
	KeyInHeader = "header"
	KeyInBody   = "body"
	KeyInQuery  = "query"
)

// How a key is written.
const (
	KeyID   = "id"   // the prefix, the job's id, then the key's generation
	KeyUUID = "uuid" // a UUID (version 5 of RFC 9562) of the same; always the same for one key
	KeyHash = "hash" // the first 32 hex digits of the SHA-256 of the same
)

// KeyShape says where a gateway's calls carry the idempotency key and how it is written. The zero KeyShape
// means that the gateway has no keys.
type KeyShape struct {
	// In is KeyInHeader, KeyInBody or KeyInQuery. Empty means KeyInHeader.
	In string
	// Name is the name of the header, body field or query parameter. Empty means that the gateway has no keys.
	Name string
	// Prefix is put before the job's id. Empty means no prefix.
	Prefix string
	// Form is KeyID, KeyUUID or KeyHash. Empty means KeyID.
	Form string
	// Min and Max bound the length of a key, in characters. Zero means no bound.
	Min, Max int
	// Alphabet is the set of characters that a key may contain, written like the inside of a regular
	// expression's class (a-zA-Z0-9-). Empty means visible ASCII.
	Alphabet string
}

// Any reports whether the gateway has keys.
func (k KeyShape) Any() bool { return k.Name != "" }

// Header returns the name of the header that carries the key, or "" if none does.
func (k KeyShape) Header() string {
	if k.In == "" || k.In == KeyInHeader {
		return k.Name
	}
	return ""
}

// keySpace is the namespace of key UUIDs.
var keySpace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("spillway:idempotency-key"))

// Text returns a key as it is sent.
func (k KeyShape) Text(key string) string {
	key = k.Prefix + key
	switch k.Form {
	case KeyUUID:
		return uuid.NewSHA1(keySpace, []byte(key)).String()
	case KeyHash:
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:16])
	}
	return key
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
