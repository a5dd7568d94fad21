package desk

import (
	"context"
	"errors"
	"slices"
	"strings"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/pan"
)

// Action is what an operator does to parked jobs. There are Replay, Ask, Done, NotDone and Discard.
type Action struct {
	Name string // as forms and programs have it
	Verb string // "replay", as in "replay 12 jobs?"
	Past string // "replayed"
	// NeedsWhy says that nobody may do it without a reason.
	NeedsWhy bool
	// InDoubt says that it is for jobs that may have been charged. Without ids and reasons all of these are meant.
	InDoubt bool
	// Final says that nothing brings the jobs back.
	Final bool
	// Heeds says that it takes jobs in again, and so stops while the gateway is held or paused, and may be told to go slowly.
	Heeds bool

	trail   string // as it stands in the trail
	readmit bool   // it takes jobs in again
	asks    bool   // only gateways that can be asked what became of a call are for it
	waiting bool   // jobs that are named may also wait for their call
	decide  func(deadletter.Rules, job.Record) (change job.KeyChange, why string)
	run     func(context.Context, deadletter.Clearing, *Bulk) (deadletter.Cleared, error)
}

// The actions.
var (
	// Replay takes jobs in again through admission.
	Replay = Action{Name: "replay", Verb: "replay", Past: "replayed", Heeds: true, trail: "replay", readmit: true, decide: deadletter.Rules.Key,
		run: func(ctx context.Context, c deadletter.Clearing, b *Bulk) (deadletter.Cleared, error) {
			return c.Replay(ctx, b.admit, b.rules)
		}}
	// Ask has the gateway asked now what became of jobs in doubt: they are pending until it can tell.
	Ask = Action{Name: "ask", Verb: "ask about", Past: "asked about", InDoubt: true, trail: "resolve --ask", asks: true, decide: deadletter.Rules.Ask,
		run: func(ctx context.Context, c deadletter.Clearing, b *Bulk) (deadletter.Cleared, error) {
			return c.Ask(ctx, b.rules, b.books.AskAgain)
		}}
	// Done settles jobs in doubt as charged.
	Done = Action{Name: "done", Verb: "resolve as done", Past: "resolved", NeedsWhy: true, InDoubt: true, Final: true, trail: "resolve --done", decide: deadletter.Rules.Done,
		run: func(ctx context.Context, c deadletter.Clearing, b *Bulk) (deadletter.Cleared, error) {
			return c.Done(ctx, b.rules, b.Dedupe, b.Reference)
		}}
	// NotDone settles jobs in doubt as not charged, and takes them in again.
	NotDone = Action{Name: "not-done", Verb: "resolve as not done", Past: "resolved", NeedsWhy: true, InDoubt: true, trail: "resolve --not-done", readmit: true, decide: deadletter.Rules.NotDone,
		run: func(ctx context.Context, c deadletter.Clearing, b *Bulk) (deadletter.Cleared, error) {
			return c.NotDone(ctx, b.admit, b.rules)
		}}
	// Discard takes jobs out for good. Jobs that are named may also wait for their call.
	Discard = Action{Name: "discard", Verb: "discard", Past: "discarded", NeedsWhy: true, Final: true, trail: "discard", waiting: true, decide: deadletter.Rules.Discard,
		run: func(ctx context.Context, c deadletter.Clearing, b *Bulk) (deadletter.Cleared, error) {
			return c.Discard(ctx, b.rules, b.Dedupe)
		}}
)

// ActionOf returns the action of a name.
func ActionOf(name string) (a Action, known bool) {
	for _, a := range []Action{Replay, Ask, Done, NotDone, Discard} {
		if a.Name == name {
			return a, true
		}
	}
	return a, false
}

// Noun is the command that does it.
func (a Action) Noun() string {
	if a.InDoubt {
		return "resolve"
	}
	return a.Verb
}

// MostWhy bounds a reason, in bytes.
const MostWhy = 500

// NeedWhy returns an error with the code usage unless there is a reason for an act.
func NeedWhy(why, act string) error {
	if strings.TrimSpace(why) == "" {
		return usage(`say it with --why "confirmed by support, ticket 4711"`, "a %s needs a reason", act)
	}
	return ShortWhy(why)
}

// ShortWhy returns an error with the code usage if a reason is too long.
func ShortWhy(why string) error {
	if len(why) > MostWhy {
		return usage("name a ticket that says the rest", "--why has more than %d bytes", MostWhy)
	}
	if pan.ContainsString(why) {
		return usage("leave the number out: the reason is kept and shown", "--why has what looks like a card number in it")
	}
	return nil
}

// Halted says that an action stopped by itself.
func Halted(err error) bool {
	_, halted := errors.AsType[*deadletter.Halt](err)
	return halted
}

// CanaryFailed says that it did because of a job that was sent ahead.
func CanaryFailed(err error) bool {
	halt, halted := errors.AsType[*deadletter.Halt](err)
	return halted && halt.Canary != nil
}

// means completes a filter with what the action is for.
func (a Action) means(f deadletter.Filter) deadletter.Filter {
	f.InDoubt = a.InDoubt && len(f.IDs)+len(f.Reasons) == 0
	f.Waiting = a.waiting && len(f.IDs) > 0
	return f
}

// CanAsk says that a gateway can be asked what became of a call.
func (g *Gateway) CanAsk() bool { return g.Asked() }

// offered returns an error with the code usage if none of the gateways is for the action.
func (a Action) offered(d *Desk) error {
	if !a.asks || slices.ContainsFunc(d.Gateways, (*Gateway).CanAsk) {
		return nil
	}
	return usage("look the jobs up there, then say --done or --not-done; or give the gateway a lookup in the file", "no look-up is configured for %s: nobody can ask there", d.Names())
}

// Options is what an operator says of an action beside its jobs. The zero value says nothing.
type Options struct {
	Pace
	// ExpiredKeys lets jobs be replayed whose idempotency key the gateway has forgotten: they may be charged twice.
	ExpiredKeys bool
	// MayBeCharged lets jobs be discarded that may have been charged.
	MayBeCharged bool
	// Reference is the gateway's own name for the payment of the one job that is done; empty: nobody knows it.
	Reference string
	// Priority is the class that replayed jobs have from now on; empty: each keeps its own.
	Priority string
}

// MostReference is how many characters a reference may have, as that of an answer.
const MostReference = 100

// GoodReference says that a text can be the gateway's own name for a payment: one that looks like a card number can't.
func GoodReference(text string) bool {
	return text != "" && len(text) <= MostReference && !pan.ContainsString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// text is the options as flags of the command line, for the trail.
func (o Options) text() string {
	text := o.Pace.text()
	if o.MayBeCharged {
		text += " --may-be-charged"
	}
	if o.Priority != "" {
		text += " --priority " + o.Priority
	}
	return text
}
