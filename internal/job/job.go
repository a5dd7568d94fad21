// Package job holds the words that every step shares: a job, its states, the reasons for which one is
// parked, what a gateway's call came to, and errors that carry a code. It imports nothing of ours.
package job

import (
	"encoding/json"
	"time"
)

// Job is one request to one gateway, as a producer hands it over.
type Job struct {
	// ID names the job within its gateway: 1 to 200 visible ASCII characters, none of them a space.
	// It is the first generation of the idempotency key.
	ID string
	// Gateway is the configured gateway, and its queue of the same name.
	Gateway string
	// Payload is one compact JSON object, numbers and key order as the producer wrote them. Empty means {}.
	Payload json.RawMessage
	// Cost is how many units of every limit one call takes; at least 1. Zero means 1.
	Cost int64
	// At is the earliest moment at which the job may be sent. Zero means now.
	At time.Time
	// Expires is the moment after which the job must not be sent any more. Zero means never.
	Expires time.Time
	// Batch is the producer's name for the run that the job belongs to. Empty means none.
	Batch string
	// Route is the gateway's named request that is made for the job. Empty means the gateway's own.
	Route string
	// Lane is the job's own line among the gateway's: a merchant, say. Empty means that of all jobs that have none.
	Lane string
	// Priority is the job's class: those of a higher one are called first. Empty means the usual one.
	Priority string
}

// Class is a class of jobs. Those of a higher one are called first.
type Class struct {
	Name string
	// Floor is the share of the calls of jobs that were never called which the class has at least while it has such jobs, in percent; 0 = none.
	Floor int64
	// Usual says that jobs which name no class are of this one.
	Usual bool
}

// State is where a job stands; its record says exactly one at every moment.
type State string

// The states of a job.
const (
	Scheduled State = "scheduled" // its At is still to come
	Queued    State = "queued"    // waiting in the queue, due now
	InFlight  State = "in_flight" // pulled by a worker and not finished
	Retrying  State = "retrying"  // waiting out a back-off
	Done      State = "done"      // the call succeeded, or a person resolved it as done
	Parked    State = "parked"    // in the dead-letter store
	Discarded State = "discarded" // taken out for good by a person; its record stays
)

// Verdict is what a call's result means for its job.
type Verdict string

// The verdicts.
const (
	VerdictDone    Verdict = "done"    // paid: finish the job
	VerdictHold    Verdict = "hold"    // nobody calls this gateway until the hold ends; no attempt spent
	VerdictRetry   Verdict = "retry"   // this job only, after its back-off
	VerdictFewer   Verdict = "fewer"   // too many calls at once, not too fast
	VerdictRefused Verdict = "refused" // a definite no: park it
	VerdictUnknown Verdict = "unknown" // nobody knows whether it was charged: park it for a person
	// VerdictAccepted: the gateway has it, and its outcome comes later. It is parked for a person as one of unknown outcome.
	VerdictAccepted Verdict = "accepted"
	VerdictNewKey   Verdict = "new_key" // a definite no for this key: this job again, after its back-off, with the next key
)

// Verdicts returns every verdict.
func Verdicts() []Verdict {
	return []Verdict{VerdictDone, VerdictHold, VerdictRetry, VerdictFewer, VerdictRefused, VerdictUnknown, VerdictAccepted, VerdictNewKey}
}

// Texts returns words such as reasons, states or verdicts as plain texts.
func Texts[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = string(word)
	}
	return all
}

// Trouble is what kind of trouble a call met that may be the gateway's.
type Trouble string

// The kinds of trouble.
const (
	Fail Trouble = "fail" // it failed, or could not be reached
	Wait Trouble = "wait" // it answered that it wants to be left alone for a while (429, or 503 with Retry-After)
	Deny Trouble = "deny" // it did not let the call in (401, 403)
)

// Stage says how far a call got. It decides whether the job can have been charged.
type Stage string

// The stages of a call.
const (
	NotSent  Stage = "not_sent" // nothing of the request reached the wire
	Sent     Stage = "sent"     // written, at least in part, and no whole answer came back
	Answered Stage = "answered" // the gateway's status line and headers arrived
)

// Request is one call to a gateway, before it is made.
type Request struct {
	Job Job
	// Key is the idempotency key, without what the gateway's KeyShape makes of it. It is sent where the gateway has keys.
	Key string
	// Bearer is the access token that the call carries, a secret. Empty = none.
	Bearer string
	// Due is the slot: nothing is written before it. Zero means at once.
	Due time.Time
	// TooLate is asked just before the write, with the present moment; true gives the call up (Result.Late). nil = never.
	TooLate func(time.Time) bool
	// Wrote is told once, the moment just after the first byte went out, as soon as it did; never for a call that was not
	// sent. It must not block. nil = nobody wants to know.
	Wrote func(time.Time)
}

// Result is the raw outcome of one call, before anybody has judged it.
type Result struct {
	Stage  Stage
	Status int                 // HTTP status; 0 unless Stage is Answered
	Header map[string][]string // the answer's headers, canonical names
	Body   []byte              // at most the first 64 KiB of the answer, or MiB where it is a look-up's
	Err    error               // why there is no answer; never holds a payload or a secret
	// Late reports a call that was given up before its write because its slot had passed too long ago.
	Late bool
	// Renewed reports a 401 on an access token that was dropped since: the job may go again, with another one.
	Renewed bool
	// Wrote is the local moment just after the first byte was handed to the kernel; zero if NotSent.
	Wrote time.Time
	// Took is the time from the write (or from the start, if NotSent) to the end.
	Took time.Duration
}
