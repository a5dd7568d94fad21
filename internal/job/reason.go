package job

import (
	"slices"
	"time"
)

// Reason says why a job is parked.
type Reason string

// The reasons for which a job is parked.
const (
	UnknownOutcome Reason = "unknown_outcome"   // it may or may not have been charged
	Refused        Reason = "refused"           // the gateway gave a definite no
	Exhausted      Reason = "exhausted"         // its attempts are used up
	Unreadable     Reason = "unreadable"        // not a job
	Expired        Reason = "expired"           // its Expires passed before it was sent
	Cancelled      Reason = "cancelled"         // its batch was cancelled
	Paused         Reason = "paused"            // its batch is paused
	AwaitsApproval Reason = "awaiting_approval" // its batch awaits a second person's approval
	Rejected       Reason = "rejected"          // no room at admission
)

// Unrouted is how the error of a job begins whose route a dispatcher's configuration lacks. The name follows in
// quotes.
const Unrouted = "the configuration of the dispatcher has no route "

// PostponedFor is how long such a job waits, or one whose payload can't be opened. By then the route or the key may
// have been configured, or another process that has it may take the job.
const PostponedFor = time.Minute

// Uncovered is the error of a job that may have been charged, and that no other call may be made for.
const Uncovered = "an earlier call may have charged, and no living idempotency key covers another one"

// ExpiredUnsent is the error of a job that expired before it was sent.
const ExpiredUnsent = "its time to expire passed before it was sent"

// About is how a reason is explained to people, and what follows from it.
type About struct {
	Reason Reason
	// Why explains the reason on the page of a parked job. Next says what happens next.
	Why, Next string
	// Needs says why an operator is needed. Do is the command to type, with %s for the gateway. Empty: no
	// operator is needed.
	Needs, Do string
	// Section is the section of docs/runbook.md. Empty means "Why a job is parked".
	Section string
	// NoReplay says why a replay holds such jobs back. Empty means that it does not.
	NoReplay string
}

// reasons is the only table of reasons, in display order: those that need an operator first, those that resolve
// themselves last.
var reasons = []About{
	{Reason: UnknownOutcome, Section: "spillwayunknownoutcomes",
		Why:   "It may or may not have been charged: a call went out and no certain answer came back.",
		Next:  "It is never sent again by itself.",
		Needs: "nobody knows whether these payments were made",
		Do:    "dispatcher dlq list -g %s --reason unknown_outcome; look each up at the gateway, then dispatcher dlq resolve"},
	{Reason: Refused, Section: "spillwaymanyrefused",
		Why:   "The gateway said a definite no.",
		Next:  "A replay goes out with a new idempotency key.",
		Needs: "the gateway refused them",
		Do:    "dispatcher dlq list -g %s --reason refused; then dispatcher dlq replay or discard"},
	{Reason: Exhausted, Section: "spillwayexhausted",
		Why:   "Its attempts are used up.",
		Next:  "Replay it once the cause is gone.",
		Needs: "their attempts are used up",
		Do:    "dispatcher dlq list -g %s --reason exhausted; then dispatcher dlq replay"},
	{Reason: Unreadable, Section: "spillwayunreadable",
		Why:      "It is not a job: something else put it into the queue.",
		Next:     "Look at its payload, then discard it.",
		Needs:    "something else writes into the gateway's queue, or into its records",
		Do:       "dispatcher dlq list -g %s --reason unreadable; find the writer",
		NoReplay: "not a job: there is nothing to send"},
	{Reason: Expired,
		Why:      "Its time to expire passed before it was sent.",
		Next:     "Discard it, or enqueue it again with another id.",
		NoReplay: "its time to expire has passed"},
	{Reason: Cancelled,
		Why:  "Its batch was cancelled, or a person parked it.",
		Next: "Replay or discard it."},
	{Reason: AwaitsApproval, Section: "a-batch-awaits-an-approval",
		Why:      "Its batch is above the sum that goes without an approval.",
		Next:     "Somebody who did not bring the batch in approves it, or rejects it, on the batch's page.",
		Needs:    "their batches wait until a second person has approved them",
		Do:       "dispatcher batch list -g %s; then, by somebody who did not bring it in, dispatcher batch approve or batch reject, with --server",
		NoReplay: `its batch awaits an approval: "dispatcher batch approve" takes it in again, by somebody who did not bring it in`},
	{Reason: Paused,
		Why:      "Its batch is paused.",
		Next:     "It goes in again when its batch is resumed, in the order of the file.",
		NoReplay: `its batch is paused: "dispatcher batch resume" takes it in again`},
	{Reason: Rejected,
		Why:  "Admission had no room for it.",
		Next: "Replay it when there is room."},
}

// About returns the explanation of the reason. For a reason unknown to this version, such as one of a later
// version, it has only the name.
func (r Reason) About() About {
	for i := range reasons {
		if reasons[i].Reason == r {
			return reasons[i]
		}
	}
	return About{Reason: r, Why: "It is parked as " + string(r) + ", a reason that this version does not know.", Next: "Look at it with the version that parked it."}
}

// Reasons returns every reason, in display order: those that need an operator first, those that resolve
// themselves last.
func Reasons() []Reason {
	all := make([]Reason, len(reasons))
	for i, a := range reasons {
		all[i] = a.Reason
	}
	return all
}

// DeadReasons returns the reasons of dead letters: all but Rejected, whose jobs only wait.
func DeadReasons() []Reason {
	return slices.DeleteFunc(Reasons(), func(r Reason) bool { return r == Rejected })
}

// ForRoom is what people are told that a job parked as Rejected does. It was not refused by anyone.
const ForRoom = "waiting for room"

// Words returns the reason for people: its name, which is also the value of --reason, except for Rejected.
// Programs see the name of every reason, in JSON, flags, metrics and Redis.
func (r Reason) Words() string {
	if r == Rejected {
		return ForRoom
	}
	return string(r)
}

// StateWords returns a job's state for people.
func StateWords(s State, r Reason) string {
	if s == Parked && r == Rejected {
		return ForRoom
	}
	return string(s)
}

// As returns a phrase for a parked job: "waiting for room", or "parked as refused".
func (r Reason) As() string {
	if r == Rejected {
		return ForRoom
	}
	return "parked as " + r.Words()
}

// The errors of jobs parked as rejected; accept.lua and park.lua write the same.
const (
	NoRoom      = "no room at admission"
	WasPaused   = "its batch was paused"
	WasApproved = "its batch was approved"
)

// Errors returns all errors that a job parked for this reason can have. Nil means any error.
func (r Reason) Errors() []string {
	if r == Rejected {
		return []string{NoRoom, WasPaused, WasApproved}
	}
	return nil
}
