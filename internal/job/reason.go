package job

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

// Reasons returns every reason, in the order in which they are shown: what needs a person first, what goes on by itself last.
func Reasons() []Reason {
	return append(DeadReasons(), Rejected)
}

// DeadReasons returns the reasons of dead letters: every one but Rejected, of which jobs only wait.
func DeadReasons() []Reason {
	return []Reason{UnknownOutcome, Refused, Exhausted, Unreadable, Expired, Cancelled, AwaitsApproval, Paused}
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
