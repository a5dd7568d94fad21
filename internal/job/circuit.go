package job

import "time"

// Circuit says when a gateway that fails (5xx, no answer, no connection) is left alone, over all processes together. The zero Circuit never opens.
type Circuit struct {
	// Failures is how many calls of different jobs must fail in a row, over all processes; at least 2. Zero means that it never opens.
	Failures int64
	// Ratio is the share of calls that must fail, in percent, 1 to 100.
	Ratio int64
	// Calls is how many calls the ratio needs at least; at least 2.
	Calls int64
	// Window is the time within which the ratio is looked at, in parts of 5 s; 5 s to 2 min.
	Window time.Duration
	// Max is the longest time between two calls sent ahead to see whether the gateway is back; at least 100 ms. It begins with 1 s, and doubles with
	// each round of such calls that fails.
	Max time.Duration
}

// Failure is a call that met trouble which may be the gateway's.
type Failure struct {
	// Kind is the kind of trouble; empty means Fail.
	Kind Trouble
	// For is how long the gateway asked to be left alone. Zero means that it did not say: after Wait a growing back-off of 1 s, doubling to 60 s
	// with each hold that follows within 30 s of the last one's end; after Deny one that grows to Circuit.Max.
	For time.Duration
	// Job is the id of the call's job.
	Job string
	// Outages is how many outages the job has met before.
	Outages int
	// Spent is how many attempts the job has used up before this call.
	Spent int
	// Since is when the first of them failed, on Redis's clock. Zero: none did.
	Since time.Time
	// Slot is the call's slot, on Redis's clock in µs.
	Slot int64
	// Took is how long the call was under way.
	Took time.Duration
	// Written says that something of it reached the wire. A call that was not written says nothing of its job.
	Written bool
	// Scope is what the trouble concerns; empty means the gateway.
	Scope Scope
	// Flow is that of the call's slot, which says of which route and lane it was.
	Flow Flow
	// Why is shown to the operator. It must hold no payload and no secret.
	Why string
}

// Scope is what an answer that asks to wait concerns, and so holds.
type Scope string

// The scopes. The empty one is ScopeGateway.
const (
	ScopeGateway Scope = "gateway" // all calls of the gateway
	ScopeRoute   Scope = "route"   // those of the call's route
	ScopeLane    Scope = "lane"    // those of its lane
)

// Scopes returns every scope.
func Scopes() []Scope { return []Scope{ScopeGateway, ScopeRoute, ScopeLane} }

// Fallout is what a failure came to.
type Fallout struct {
	// At is when it was counted, on Redis's clock. Zero: nobody counts, the circuit is off.
	At time.Time
	// Outage is the beginning of the outage that the failure belongs to, so that it spends no attempt. Zero: of none so far.
	Outage time.Time
	// Held is how long the gateway is held from At; zero if it is not.
	Held time.Duration
	// Opened says that this failure began a hold: nobody calls until a call that is sent ahead succeeds.
	Opened bool
	// Own says that the trouble is the job's own: it met two outages before, and others went through. Its attempt counts.
	Own bool
}
