package console

import (
	"context"

	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/job"
)

// deed is what can be done to dead letters, and what the four differ in.
type deed struct {
	label string // on its button
	verb  string // "replay", as in "Replay 12 jobs"
	past  string // "replayed"
	what  string // as it stands in the trail
	means string // what it does, in a sentence or two
	doubt bool   // it is for jobs that may have been charged
	why   bool   // it needs a reason
	heeds bool   // it stops while the gateway is held or paused
	paced bool   // it may be told to go slowly, and some jobs first
	final bool   // nothing brings the jobs back
	// decide says what becomes of a job's key, or why it would not be taken.
	decide func(deadletter.Rules, job.Record) (change job.KeyChange, why string)
	run    func(context.Context, deadletter.Clearing, unit) (deadletter.Cleared, error)
}

// unit is one gateway with what its dead letters need to go.
type unit struct {
	g     config.Gateway
	admit deadletter.Admitter
	rules deadletter.Rules
	pace  pace
}

// deeds are the names of what can be done, in the order in which they are offered.
var deeds = []string{"replay", "done", "not-done", "discard"}

var deedsByName = map[string]deed{
	"replay": {label: "Replay", verb: "replay", past: "replayed", what: "replay", heeds: true, paced: true,
		means:  "The jobs go in again through admission, oldest first, with attempts counted anew. The idempotency key stays, unless the gateway has said a definite no.",
		decide: deadletter.Rules.Key,
		run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
			return c.Replay(ctx, u.admit, u.rules)
		}},
	"done": {label: "Resolve as done", verb: "resolve as done", past: "resolved as done", what: "resolve --done", why: true, final: true, doubt: true,
		means:  "You have looked these jobs up at the gateway, and every one of them was charged. They count as done and are never sent again.",
		decide: deadletter.Rules.Done,
		run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
			return c.Done(ctx, u.rules, u.g.Dedupe, "")
		}},
	"not-done": {label: "Resolve as not done", verb: "resolve as not done", past: "resolved as not done", what: "resolve --not-done", why: true, doubt: true,
		means: "You have looked these jobs up at the gateway, and none of them was charged. They go in again through admission with a new idempotency key; one whose time has passed stays, as expired. " +
			"If one was charged after all, it is charged twice.",
		decide: deadletter.Rules.NotDone,
		run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
			return c.NotDone(ctx, u.admit, u.rules)
		}},
	"discard": {label: "Discard", verb: "discard", past: "discarded", what: "discard", why: true, final: true,
		means: "The jobs are taken out for good and never sent. Their records stay for the gateway's dedupe time, so that their ids are not accepted again. " +
			"Jobs that may have been charged are held back.",
		decide: deadletter.Rules.Discard,
		run: func(ctx context.Context, c deadletter.Clearing, u unit) (deadletter.Cleared, error) {
			return c.Discard(ctx, u.rules, u.g.Dedupe)
		}},
}
