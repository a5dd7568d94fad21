package job

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TaskID names the queue's task for one generation of a job. A job gets a new generation each time it enters the
// queue, so that a replay or a retry never collides with a task that the queue has yet to finish.
func TaskID(id string, generation int64) string {
	return id + "~" + strconv.FormatInt(generation, 10)
}

// ParseTaskID is TaskID undone; ok is false for a task that is not one of ours.
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

// IdempotencyKey is what the gateway gets to see: the id itself for key generation 1, then ID~2, ID~3, … after each
// definite no, since a gateway answers a used key with its first answer again.
func IdempotencyKey(id string, keyGeneration int64) string {
	if keyGeneration <= 1 {
		return id
	}
	return id + "~" + strconv.FormatInt(keyGeneration, 10)
}

// Opening says what a worker may do with a task it has pulled.
type Opening string

// The openings.
const (
	OpenGo        Opening = "go"                // the attempt is written down: call
	OpenStale     Opening = "stale"             // paper of an earlier generation, or finished: nothing to do
	OpenBusy      Opening = "busy"              // another attempt is open and its deadline has not passed: nothing to do here
	OpenExpired   Opening = "expired"           // the job's Expires has passed: park it
	OpenHeld      Opening = "held"              // Redis's data is not what was seen of it: call nothing, the task must come again
	OpenUnknown   Opening = "unknown"           // an attempt was cut off and no living key covers a second call: park it
	OpenExhausted Opening = "exhausted"         // its attempts are used up: park it
	OpenSealed    Opening = "sealed"            // its payload can't be opened as this process is configured: put it aside until that is mended
	OpenDiffers   Opening = "differs"           // an attempt may have charged, and another call would not be the same request: park it
	OpenUnrouted  Opening = "unrouted"          // the configuration does not have its route: put it aside until that is mended
	OpenChanged   Opening = "changed"           // its payload is not what was sealed for it: park it
	OpenPaused    Opening = "paused"            // its batch is paused: park it until the batch is resumed
	OpenAwaits    Opening = "awaiting_approval" // its batch awaits an approval: park it until a second person has approved it
	OpenCancelled Opening = "cancelled"         // its batch is cancelled: park it until a person takes it in again
	OpenBraked    Opening = "braked"            // no brake has room for its money now: put it back, the gateway waits
	OpenOver      Opening = "over"              // a brake forbids its money: park it
)

// Attempt is a job that a worker has open: written down before the call, closed after it.
type Attempt struct {
	Job           Job
	Generation    int64         // of the task; a record with another one has moved on
	Owner         string        // fencing token: who opened the attempt
	Spent         int           // attempts used up before this one, since the job was last admitted
	Calls         int           // calls made before this one, since the job was last admitted
	KeyGeneration int64         // of the idempotency key
	KeySent       bool          // the present key has been sent before
	KeyAge        time.Duration // since the present key was first sent
	Unsure        bool          // a call with the present key may have charged
	Lapse         bool          // so may one that Redis has forgotten: it lost its latest writes since the job was accepted
	Accepted      time.Time     // when the job was accepted, on Redis's clock
	Outages       int           // outages of the gateway that the job has met
	Failed        time.Time     // its first failure that counts as an attempt, on Redis's clock; zero if there is none
	// LastError is what went wrong last, with OpenGo and OpenExhausted; with OpenPaused, OpenAwaits, OpenCancelled, OpenSealed, OpenUnrouted, OpenBraked, OpenOver and OpenChanged why; with OpenDiffers what
	// was sent then (see SentChanges).
	LastError string
}

// Key returns the idempotency key of this attempt.
func (a Attempt) Key() string { return IdempotencyKey(a.Job.ID, a.KeyGeneration) }

// Ending is what is written down when an attempt ends.
type Ending struct {
	Called  bool          // the request was written, at least in part
	Spent   bool          // the attempt counts
	Status  int           // HTTP status; 0 without an answer
	Verdict Verdict       // what it came to; empty if the job was given back unsent
	Error   string        // the status and the answer's first 500 bytes, or what went wrong on the way
	Unsure  bool          // the call may have charged: only its key makes another one safe
	Foreign bool          // the key is in use by somebody else: it does not count as sent
	At      time.Time     // when the call was written, or the attempt begun
	Took    time.Duration // the call's duration
	// Reference is the gateway's own name for the payment; empty unless it was paid or accepted, and the answer said one.
	Reference string
	// Trouble says that the gateway failed, wanted to be left alone, or did not let the call in, and that this was counted.
	Trouble bool
	// Failed is when the trouble was counted, on Redis's clock; zero if there was none, it is the job's own, or nobody counts.
	Failed time.Time
	// Outage is the beginning of the outage that the failure belongs to; zero if of none so far.
	Outage time.Time
}

// Doubt is what the ending says of the present key, as the scripts read it: "1" it may have charged, "other" the same, and the key is in use
// by somebody else, "no" it has not charged, whatever an earlier call left open, "next" the same, and the job goes on with the next key, "0" nothing new.
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

// Alive says that the gateway did its work: it has paid, or said that it can't. Any other answer may come from something in front of it.
func (e Ending) Alive() bool {
	return (e.Status >= 200 && e.Status <= 299 || e.Status == 402) && !e.Trouble && e.Verdict != VerdictHold
}

// Line is the ending as one line of the record's history; empty if nothing was written to the gateway.
func (e Ending) Line() string {
	if !e.Called {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", e.At.UnixMicro(), e.Took.Microseconds(), e.Status, e.Verdict)
}
