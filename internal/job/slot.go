package job

// Slot is the moment at which one call may start, and what was taken for it. What comes after Lease is for the pacer that gave it out.
type Slot struct {
	// At is the moment in µs on Redis's clock. Zero means no slot.
	At int64
	// Cost is the units that were taken from every limit for it.
	Cost int64
	// Lease is the slot's place among the calls under way; empty when their number has no cap.
	Lease string

	// Era is the stretch of time without a step of Redis's clock that At is in.
	Era int64
	// Number tells the slot from others of its process.
	Number int64
	// Seen is how much Redis's clock was seen to have gained, and may gain until At, when the slot was asked for, in µs.
	Seen int64
	// Counted is the moment at which Redis counts the call, unless it is told of another one, in µs.
	Counted int64
	// Books is the number of the books that the slot was taken from: another one whenever they were made anew.
	Books int64
	// Asked is when the slot was handed out for a job to be pulled, in µs of the pacer's own time. Zero means that its job was in hand already.
	Asked int64
	// Flow is what the slot was taken for, and whose permits it has besides the gateway's; the zero Flow where the gateway has neither lanes nor limits of routes.
	Flow Flow
	// Task is the task that is called at the slot, and Message what asynq has of it, until the queue has taken the job over. Empty where the queue is to pull one.
	Task, Message string
	// Probe means that the slot is for the one call that is sent ahead after a hold.
	Probe bool
}

// Flow is the jobs of one class, on one route and in one lane, which are called in their order.
type Flow struct {
	// Class and Route are their names; empty is the usual one of each.
	Class, Route string
	// Lane is empty for jobs that have none.
	Lane string
	// Line is the line of the flow that the job stood in, as scripts number them.
	Line int64
	// Kept says that the gateway has lanes, or routes with limits.
	Kept bool
	// Marks say whether the call is the one sent ahead after a hold of its route or lane, and whether it has a place among their calls under way, as scripts have them.
	Marks int64
}

// Zero reports that this is no slot at all.
func (s Slot) Zero() bool { return s.At == 0 }

// Delivery is one task pulled from the queue, with the slot for its call.
type Delivery struct {
	TaskID     string
	JobID      string
	Generation int64
	// Slot is the zero Slot if the job came past the gate: take one before calling.
	Slot Slot
	// Foreign means that something else put the task into the queue: JobID and Generation are empty, and Payload is what it holds.
	Foreign bool
	Payload []byte
}
