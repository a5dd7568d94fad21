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
	OpenGo        Opening = "go"        // the attempt is written down: call
	OpenStale     Opening = "stale"     // paper of an earlier generation, or finished: nothing to do
	OpenBusy      Opening = "busy"      // another attempt is open and its deadline has not passed: nothing to do here
	OpenExpired   Opening = "expired"   // the job's Expires has passed: park it
	OpenHeld      Opening = "held"      // Redis's data is not what was seen of it: call nothing, the task must come again
	OpenUnknown   Opening = "unknown"   // an attempt was cut off and no living key covers a second call: park it
	OpenExhausted Opening = "exhausted" // its attempts are used up: park it
	OpenSealed    Opening = "sealed"    // the key of its payload is not known here: put it aside until somebody has given it
	OpenChanged   Opening = "changed"   // its payload is not what was sealed for it: park it
	OpenPaused    Opening = "paused"    // its batch is paused or cancelled: park it until somebody resumes the batch, or takes the job in again
)

// Attempt is a job that a worker has open: written down before the call, closed after it.
type Attempt struct {
	Job           Job
	Generation    int64         // of the task; a record with another one has moved on
	Owner         string        // fencing token: who opened the attempt
	Spent         int           // attempts used up before this one
	KeyGeneration int64         // of the idempotency key
	KeySent       bool          // the present key has been sent before
	KeyAge        time.Duration // since the present key was first sent
	Accepted      time.Time     // when the job was accepted, on Redis's clock
	Outages       int           // outages of the gateway that the job has failed in
	LastError     string        // what went wrong last; only with OpenExhausted; with OpenPaused, OpenSealed and OpenChanged: why
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
	At      time.Time     // when the call was written, or the attempt begun
	Took    time.Duration // the call's duration
	// Reference is the gateway's own name for the payment; empty unless it succeeded and said one.
	Reference string
	// Failed is when the failure was counted, on Redis's clock; zero if the gateway did not fail, or nobody counts.
	Failed time.Time
	// Outage is the beginning of the outage that the failure belongs to; zero if of none so far.
	Outage time.Time
}

// Alive says that the gateway answered, and neither failed nor asked to wait.
func (e Ending) Alive() bool {
	return e.Status > 0 && e.Failed.IsZero() && e.Verdict != VerdictHold
}

// Line is the ending as one line of the record's history; empty if nothing was written to the gateway.
func (e Ending) Line() string {
	if !e.Called {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", e.At.UnixMicro(), e.Took.Microseconds(), e.Status, e.Verdict)
}
