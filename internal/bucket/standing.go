package bucket

import "time"

// Standing is what holds back a gateway's calls, for people to read.
type Standing struct {
	// HeldUntil is when the hold ends; zero means no hold.
	HeldUntil time.Time
	// Reason is why it is held. It stays set while Probing.
	Reason string
	// Probing means that the hold is over and one call goes first; the rest follow when it succeeds.
	Probing bool
	// Circuit means that the hold is an open circuit, or began with one. The first call that succeeds closes
	// it.
	Circuit bool
	// Endless means that the end of the hold is not known: the gateway failed, or refused access. HeldUntil is
	// when it is tried again.
	Endless bool
	// Denied means that the gateway refuses access: it answered 401 or 403. Endless is set too, and usually a
	// person has to end it.
	Denied bool
	// Paused means that an operator stopped the gateway; PauseWhy is the reason given.
	Paused   bool
	PauseWhy string
	// Since is when it was paused, or else when the trouble behind the hold began; zero if that is not known.
	Since time.Time
	// BrakedUntil is when there is room at the latest for the money of the next job; until then nothing is
	// called. Zero means that no brake holds the calls back. BrakeWhy names the brake, and Braked is when it
	// began.
	BrakedUntil, Braked time.Time
	BrakeWhy            string
	// Barred means that Paused stands for something that was not done by an operator and that Resume does not
	// end; PauseWhy names it. Look never sets it.
	Barred bool
	// NoToken means that Reason says why there is no access token for calls, and HeldUntil when it is tried
	// again. Look never sets it.
	NoToken bool
	// Stale means that for 2 s no process with the version of the limits that Redis knows has been given a
	// slot: the pacer has seen a newer version, which Redis has lost.
	Stale bool
}
