package console

import "spillway/internal/desk"

// deed is an action in its form.
type deed struct {
	desk.Action
	Label string // on its button
	Past  string // "resolved as done"
	Means string // what it does, in a sentence or two
}

// deeds are the actions on dead letters, in display order.
var deeds = []deed{
	{desk.Replay, "Replay", "replayed",
		"The jobs go in again through admission, oldest first, with a new count of attempts. The idempotency key stays, unless the gateway has said a definite no."},
	{desk.Ask, "Ask the gateway", "asked about",
		"The gateway is asked now what became of these jobs. They are pending until it can tell, and settle themselves then. After the last look-up of its schedule they are parked again."},
	{desk.Done, "Resolve as done", "resolved as done",
		"You have looked these jobs up at the gateway, and every one of them was charged. They count as done and are never sent again."},
	{desk.NotDone, "Resolve as not done", "resolved as not done",
		"You have looked these jobs up at the gateway, and none of them was charged. They go in again through admission with a new idempotency key; one whose time has passed stays, as expired. " +
			"If one was charged after all, it is charged twice."},
	{desk.Discard, "Discard", "discarded",
		"The jobs are taken out for good and never sent. Their records stay for the gateway's dedupe time, so that their ids are not accepted again. " +
			"Jobs that may have been charged are held back."},
}
