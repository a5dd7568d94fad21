package bucket

import "time"

// Slot is the moment at which one call may start, and what was taken for it.
type Slot struct {
	// At is the moment in µs on Redis's clock. Zero means no slot.
	At int64
	// Cost is the units that were taken from every limit for it.
	Cost int64
	// Lease is the slot's place among the calls under way; empty when their number has no cap.
	Lease string

	asked int64 // when the slot was handed out, in local µs; lets Ready measure
	probe bool  // it goes first after a hold
}

// Zero reports that this is no slot at all.
func (s Slot) Zero() bool { return s.At == 0 }

// HoldRequest says for how long nobody may call the gateway, and why.
type HoldRequest struct {
	// For is how long from now, on Redis's clock. Zero means the growing back-off: 1 s, doubling to 60 s with
	// each hold that follows within 30 s of the last one's end.
	For time.Duration
	// Reason is shown to the operator. It must hold no payload and no secret.
	Reason string
}

// Standing is what keeps a gateway's calls back, for people to look at.
type Standing struct {
	// HeldUntil is when the hold ends; zero means that there is none.
	HeldUntil time.Time
	// Reason is why it is held. It stays while Probing.
	Reason string
	// Probing means that the hold is over and one call goes first; the rest follow when it succeeds.
	Probing bool
	// Circuit means that the hold is, or began with, an open circuit. The first call that succeeds closes it.
	Circuit bool
	// Paused means that an operator stopped the gateway; PauseWhy is what he gave as the reason.
	Paused   bool
	PauseWhy string
}
