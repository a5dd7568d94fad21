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

	era   int64 // of Redis's clock that At is on; see clockBounds
	nth   int64 // tells it from others of this process
	edge  int64 // Redis counts its call at this moment, unless it is told of another one; µs
	books int64 // number of the books that it was taken from: another one whenever they were made anew
	seen  int64 // how much the clock was seen to have gained, and may gain until At, when the slot was asked for
	asked int64 // when the slot was handed out, in local µs; lets Ready measure
	probe bool  // it goes first after a hold
}

// Zero reports that this is no slot at all.
func (s Slot) Zero() bool { return s.At == 0 }

// Ahead reports that the slot is for the one call that is sent ahead after a hold.
func (s Slot) Ahead() bool { return s.probe }

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
	// Endless means that nobody knows when the hold ends: the gateway failed, or did not let calls in. HeldUntil is when it is tried again.
	Endless bool
	// Denied means that the gateway does not let calls in: it answered 401 or 403. It is Endless too, and as a rule a person has to end it.
	Denied bool
	// Paused means that an operator stopped the gateway; PauseWhy is what he gave as the reason.
	Paused   bool
	PauseWhy string
	// Barred means that Paused stands for something that no operator did and Resume does not end, which PauseWhy names. Look never sets it.
	Barred bool
	// Stale means that nobody who goes by the version of the limits that Redis knows has been given a slot for 2 s: the pacer has seen a
	// newer one, which Redis has lost.
	Stale bool
}
