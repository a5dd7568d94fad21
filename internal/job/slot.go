package job

// Slot is the time at which one call may start, and what was taken from the limits for it. The fields after
// Lease are for the pacer that granted it.
type Slot struct {
	// At is the time in µs on Redis's clock. Zero means no slot.
	At int64
	// Cost is the number of units taken from every limit.
	Cost int64
	// Lease identifies the slot among the calls in flight; empty if their number has no cap.
	Lease string

	// Era is the period between two steps of Redis's clock in which At lies.
	Era int64
	// Number distinguishes the slots of one process.
	Number int64
	// Seen is how far Redis's clock was seen to run ahead, and may run ahead until At, when the slot was
	// requested, in µs.
	Seen int64
	// Counted is the time at which Redis counts the call, unless it is told another one, in µs.
	Counted int64
	// Books is the epoch of the pacer state that the slot was taken from. It changes whenever that state is
	// recreated.
	Books int64
	// Asked is when the slot was granted for a job still to be pulled, in µs on the pacer's own clock. Zero
	// means that the job was already pulled.
	Asked int64
	// Flow is the flow that the slot was taken for; the slot has the permits of its route and lane, too. It is
	// the zero Flow if the gateway has neither lanes nor route limits.
	Flow Flow
	// Task is the task to be called at the slot, and Message is asynq's message for it, until the queue has
	// taken the job over. Both are empty if the queue is to pull a task.
	Task, Message string
	// Probe marks the slot of the single call that is sent ahead after a hold.
	Probe bool
}

// Flow is the jobs of one class, one route and one lane, which are called in order.
type Flow struct {
	// Class and Route are names; empty means the default.
	Class, Route string
	// Lane is empty for jobs without a lane.
	Lane string
	// Line is the flow's line that the job waited in, as scripts number it.
	Line int64
	// Kept says that the gateway has lanes, or routes with limits.
	Kept bool
	// Marks say whether the call is the probe after a hold of its route or lane, and whether it counts among
	// their calls in flight, encoded as in scripts.
	Marks int64
}

// Zero reports whether this is no slot.
func (s Slot) Zero() bool { return s.At == 0 }

// Delivery is one task pulled from the queue, with the slot for its call.
type Delivery struct {
	TaskID     string
	JobID      string
	Generation int64
	// Slot is the zero Slot if the job was pulled without one: take a slot before calling.
	Slot Slot
	// Foreign means that another program put the task into the queue: JobID and Generation are empty, and
	// Payload is the task's content.
	Foreign bool
	Payload []byte
}
