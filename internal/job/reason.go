package job

import "slices"

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
	AwaitsApproval Reason = "awaiting_approval" // its batch waits until a second person has approved it
	Rejected       Reason = "rejected"          // no room at admission
)

// About is what people are told of a reason, and what follows from it.
type About struct {
	Reason Reason
	// Why explains it on the page of a job that is parked, and Next says what comes next.
	Why, Next string
	// Needs says what a person is needed for, and Do what to type, where %s is the gateway. Empty: nobody is needed.
	Needs, Do string
	// Section is its section of docs/runbook.md. Empty: "Why a job is parked".
	Section string
	// NoReplay says why a replay holds such jobs back. Empty: it does not.
	NoReplay string
}

// reasons is the one table of them, in the order in which they are shown: what needs a person first, what goes on by itself last.
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

// About returns what people are told of the reason. What this version does not know, such as a later version's, has no more than its name.
func (r Reason) About() About {
	for i := range reasons {
		if reasons[i].Reason == r {
			return reasons[i]
		}
	}
	return About{Reason: r, Why: "It is parked as " + string(r) + ", a reason that this version does not know.", Next: "Look at it with the version that parked it."}
}

// Reasons returns every reason, in the order in which they are shown: what needs a person first, what goes on by itself last.
func Reasons() []Reason {
	all := make([]Reason, len(reasons))
	for i, a := range reasons {
		all[i] = a.Reason
	}
	return all
}

// DeadReasons returns the reasons of dead letters: every one but Rejected, of which jobs only wait.
func DeadReasons() []Reason {
	return slices.DeleteFunc(Reasons(), func(r Reason) bool { return r == Rejected })
}

// ForRoom is what people are told that a job does which is parked as Rejected. Nobody has rejected it.
const ForRoom = "waiting for room"

// Words is the reason for people: its name, which they type after --reason, but for Rejected. Programs have the name of each, in JSON, flags, metrics and
// Redis.
func (r Reason) Words() string {
	if r == Rejected {
		return ForRoom
	}
	return string(r)
}

// StateWords is a job's state for people.
func StateWords(s State, r Reason) string {
	if s == Parked && r == Rejected {
		return ForRoom
	}
	return string(s)
}

// As says of a job that it is parked: "waiting for room", or "parked as refused".
func (r Reason) As() string {
	if r == Rejected {
		return ForRoom
	}
	return "parked as " + r.Words()
}

// The errors of jobs parked as rejected; accept.lua and park.lua write them too.
const (
	NoRoom      = "no room at admission"
	WasPaused   = "its batch was paused"
	WasApproved = "its batch was approved"
)

// Errors returns all the errors that a job parked for this reason can have. Nil means that it may have any.
func (r Reason) Errors() []string {
	if r == Rejected {
		return []string{NoRoom, WasPaused, WasApproved}
	}
	return nil
}
