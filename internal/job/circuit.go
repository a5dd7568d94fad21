package job

import "time"

// Circuit configures the circuit breaker: when a failing gateway (5xx, no answer, no connection) is no longer
// called, counted over all processes. The zero Circuit never opens.
type Circuit struct {
	// Failures is how many calls of different jobs must fail in a row, over all processes; at least 2. Zero
	// means that it never opens.
	Failures int64
	// Ratio is the share of calls that must fail, in percent, 1 to 100.
	Ratio int64
	// Calls is the fewest calls for which the ratio counts; at least 2.
	Calls int64
	// Window is the time over which the ratio is taken, in steps of 5 s; 5 s to 2 min.
	Window time.Duration
	// Max is the longest time between two probe calls, at least 100 ms. It starts at 1 s and doubles each time
	// the probes fail.
	Max time.Duration
}

// Failure describes a call whose trouble may be the gateway's.
type Failure struct {
	// Kind is the kind of trouble; empty means Fail.
	Kind Trouble
	// For is how long the gateway asked to be left alone. Zero means that it did not say. Then Wait gets a
	// back-off of 1 s that doubles, up to 60 s, with each hold that begins within 30 s of the end of the
	// previous one; Deny gets one that grows to Circuit.Max.
	For time.Duration
	// Job is the id of the call's job.
	Job string
	// Outages is how many outages the job has already been through.
	Outages int
	// Spent is how many attempts the job had spent before this call.
	Spent int
	// Since is when the first of them failed, on Redis's clock. Zero means none.
	Since time.Time
	// Slot is the call's slot, on Redis's clock in µs.
	Slot int64
	// Took is the call's duration.
	Took time.Duration
	// Written says that some bytes reached the wire. A call that was not written says nothing about its job.
	Written bool
	// Scope is what the trouble affects; empty means the gateway.
	Scope Scope
	// Flow is the flow of the call's slot, with its route and lane.
	Flow Flow
	// Why is shown to the operator. It must contain no payload and no secret.
	Why string
}

// Scope is what a hold applies to, after an answer that asks to wait.
type Scope string

// The scopes. The empty one is ScopeGateway.
const (
	ScopeGateway Scope = "gateway" // all calls of the gateway
	ScopeRoute   Scope = "route"   // the calls of its route
	ScopeLane    Scope = "lane"    // the calls of its lane
)

// Scopes returns every scope.
func Scopes() []Scope { return []Scope{ScopeGateway, ScopeRoute, ScopeLane} }

// Fallout is the effect of a failure.
type Fallout struct {
	// At is when it was counted, on Redis's clock. Zero: not counted, the circuit is off.
	At time.Time
	// Outage is the start of the outage that the failure belongs to; such a failure spends no attempt. Zero: it
	// belongs to none so far.
	Outage time.Time
	// Held is how long the gateway is held from At; zero if it is not.
	Held time.Duration
	// Opened says that this failure opened the circuit: nothing is called until a probe succeeds.
	Opened bool
	// Own says that the trouble is the job's own: it has been through two outages, and others succeeded since.
	// Its attempt counts.
	Own bool
}
