package bucket

import "time"

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
	// Since is when it was paused, or else when the trouble began that the hold comes of; zero if nobody knows.
	Since time.Time
	// BrakedUntil is when there is room at the latest for the money of the job that is next, and until then nobody calls; zero if no brake keeps it back. BrakeWhy names the brake, and
	// Braked is since when.
	BrakedUntil, Braked time.Time
	BrakeWhy            string
	// Barred means that Paused stands for something that no operator did and Resume does not end, which PauseWhy names. Look never sets it.
	Barred bool
	// NoToken means that Reason says why there is no access token for calls, and HeldUntil when it is tried again. Look never sets it.
	NoToken bool
	// Stale means that nobody who goes by the version of the limits that Redis knows has been given a slot for 2 s: the pacer has seen a
	// newer one, which Redis has lost.
	Stale bool
}
