// Package job defines the types that every step shares: a job, its states, the reasons for parking it, verdicts
// on calls, and errors with codes. It imports no other package of this module.
package job

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"
	"unicode"
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

// Class is a priority class of jobs. Jobs of a higher class are called first.
type Class struct {
	Name string
	// Floor is the least share, in percent, of first calls that the class gets while it has jobs never called;
	// 0 = none.
	Floor int64
	// Usual marks the default class, of jobs that name none.
	Usual bool
}

// State is the state of a job. Its record has exactly one at any time.
type State string

// The states of a job.
const (
	Scheduled State = "scheduled" // waiting for its At
	Queued    State = "queued"    // waiting in the queue, due now
	InFlight  State = "in_flight" // pulled by a worker, not finished
	Retrying  State = "retrying"  // waiting for its back-off to end
	Done      State = "done"      // the call succeeded, or an operator resolved it as done
	Parked    State = "parked"    // in the dead-letter store
	Discarded State = "discarded" // removed for good by an operator; its record stays
)

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

// Texts converts words such as reasons, states or verdicts to strings.
func Texts[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = string(word)
	}
	return all
}

// Trouble is a kind of trouble of a call that may be the gateway's.
type Trouble string

// The kinds of trouble.
const (
	Fail Trouble = "fail" // the gateway failed, or could not be reached
	Wait Trouble = "wait" // it asked for a pause (429, or 503 with Retry-After)
	Deny Trouble = "deny" // it denied access (401, 403)
)

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
	// (Result.Late). nil = never.
	TooLate func(time.Time) bool
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

// MaxLane is the longest lane name, in bytes.
const MaxLane = 128

// LaneKey says where a gateway's jobs have their lane.
type LaneKey struct {
	// Field is the payload field (dotted path) that names the lane. Empty means that the job names it itself.
	Field string
	// Required refuses jobs without a lane, because the call contains it.
	Required bool
}

// CheckLane returns why name can't be a lane's name, or nil.
func CheckLane(name string) error {
	switch {
	case name == "" || len(name) > MaxLane:
		return fmt.Errorf("the lane's name has %d bytes: give it 1 to %d", len(name), MaxLane)
	case !utf8.ValidString(name):
		return fmt.Errorf("the lane's name %q is not UTF-8", name)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("the lane's name has the character %q, which can't be printed", c)
		}
	}
	return nil
}
