package desk

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"spillway/internal/bucket"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/pan"
)

// Action is an operator's action on parked jobs: Replay, Ask, Done, NotDone or Discard.
type Action struct {
	Name string // in forms and for programs
	Verb string // "replay", as in "replay 12 jobs?"
	Past string // "replayed"
	// NeedsWhy says that a reason is required.
	NeedsWhy bool
	// InDoubt says that it is for jobs that may have been charged. Without ids and reasons it applies to all of
	// these.
	InDoubt bool
	// Final says that it can't be undone.
	Final bool
	// Heeds says that it admits jobs again. Such an action stops while the gateway is held or paused, and can
	// be slowed down.
	Heeds bool

	trail   string // in the audit trail
	readmit bool   // it admits jobs again
	asks    bool   // only for gateways with look-ups
	waiting bool   // jobs selected by id may also be waiting for their call
	decide  func(deadletter.Rules, job.Record) (change job.KeyChange, why string)
	run     func(context.Context, deadletter.BulkRun, *Bulk) (deadletter.BulkResult, error)
}

// The actions.
var (
	// Replay admits jobs again.
	Replay = Action{Name: "replay", Verb: "replay", Past: "replayed", Heeds: true, trail: "replay", readmit: true, decide: deadletter.Rules.Key,
		run: func(ctx context.Context, c deadletter.BulkRun, b *Bulk) (deadletter.BulkResult, error) {
			return c.Replay(ctx, b.books, b.rules)
		}}
	// Ask makes look-ups for jobs in doubt now: they are pending until the outcome is known.
	Ask = Action{Name: "ask", Verb: "ask about", Past: "asked about", InDoubt: true, trail: "resolve --ask", asks: true, decide: deadletter.Rules.Ask,
		run: func(ctx context.Context, c deadletter.BulkRun, b *Bulk) (deadletter.BulkResult, error) {
			return c.Ask(ctx, b.rules, b.books.AskAgain)
		}}
	// Done settles jobs in doubt as charged.
	Done = Action{Name: "done", Verb: "resolve as done", Past: "resolved", NeedsWhy: true, InDoubt: true, Final: true, trail: "resolve --done", decide: deadletter.Rules.Done,
		run: func(ctx context.Context, c deadletter.BulkRun, b *Bulk) (deadletter.BulkResult, error) {
			return c.Done(ctx, b.rules, b.Dedupe, b.Reference)
		}}
	// NotDone settles jobs in doubt as not charged, and admits them again.
	NotDone = Action{Name: "not-done", Verb: "resolve as not done", Past: "resolved", NeedsWhy: true, InDoubt: true, trail: "resolve --not-done", readmit: true, decide: deadletter.Rules.NotDone,
		run: func(ctx context.Context, c deadletter.BulkRun, b *Bulk) (deadletter.BulkResult, error) {
			return c.NotDone(ctx, b.books, b.rules)
		}}
	// Discard removes jobs for good. Jobs selected by id may also be waiting for their call.
	Discard = Action{Name: "discard", Verb: "discard", Past: "discarded", NeedsWhy: true, Final: true, trail: "discard", waiting: true, decide: deadletter.Rules.Discard,
		run: func(ctx context.Context, c deadletter.BulkRun, b *Bulk) (deadletter.BulkResult, error) {
			return c.Discard(ctx, b.rules, b.Dedupe)
		}}
)

// ActionOf returns the action with a name.
func ActionOf(name string) (a Action, known bool) {
	for _, a := range []Action{Replay, Ask, Done, NotDone, Discard} {
		if a.Name == name {
			return a, true
		}
	}
	return a, false
}

// Noun returns the command that does it.
func (a Action) Noun() string {
	if a.InDoubt {
		return "resolve"
	}
	return a.Verb
}

// MostWhy bounds the length of a reason, in bytes.
const MostWhy = 500

// NeedWhy returns an error with code usage if the reason for an act is missing.
func NeedWhy(why, act string) error {
	if strings.TrimSpace(why) == "" {
		return usage(`say it with --why "confirmed by support, ticket 4711"`, "a %s needs a reason", act)
	}
	return ShortWhy(why)
}

// ShortWhy returns an error with code usage if a reason is too long.
func ShortWhy(why string) error {
	if len(why) > MostWhy {
		return usage("name a ticket that says the rest", "--why has more than %d bytes", MostWhy)
	}
	if pan.ContainsString(why) {
		return usage("leave the number out: the reason is kept and shown", "--why has what looks like a card number in it")
	}
	return nil
}

// Halted reports whether err means that an action stopped itself.
func Halted(err error) bool {
	_, halted := errors.AsType[*deadletter.Halt](err)
	return halted
}

// CanaryFailed reports whether it stopped because of a job sent ahead.
func CanaryFailed(err error) bool {
	halt, halted := errors.AsType[*deadletter.Halt](err)
	return halted && halt.Canary != nil
}

// means adds to a filter what the action implies.
func (a Action) means(f deadletter.Filter) deadletter.Filter {
	f.InDoubt = a.InDoubt && len(f.IDs)+len(f.Reasons) == 0
	f.Waiting = a.waiting && len(f.IDs) > 0
	return f
}

// CanAsk reports whether the gateway has look-ups.
func (g *Gateway) CanAsk() bool { return g.Asked() }

// offered returns an error with code usage if none of the gateways supports the action.
func (a Action) offered(d *Desk) error {
	if !a.asks || slices.ContainsFunc(d.Gateways, (*Gateway).CanAsk) {
		return nil
	}
	return usage("look the jobs up there, then say --done or --not-done; or give the gateway a lookup in the file", "no look-up is configured for %s", d.Names())
}

// Options are an operator's options for an action, besides its jobs.
type Options struct {
	Pace
	// ExpiredKeys permits replaying jobs whose idempotency key the gateway has forgotten: they may be charged
	// twice.
	ExpiredKeys bool
	// MayBeCharged permits discarding jobs that may have been charged.
	MayBeCharged bool
	// Reference is the gateway's own name for the payment, if a single job is resolved as done; empty: unknown.
	Reference string
	// Priority is the new class of replayed jobs; empty: each keeps its own.
	Priority string
}

// MostReference is the longest reference, in characters, like that of an answer.
const MostReference = 100

// GoodReference reports whether a text is a valid reference. A text that looks like a card number is not.
func GoodReference(text string) bool {
	return text != "" && len(text) <= MostReference && !pan.ContainsString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// text returns the options as command-line flags, for the audit trail.
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

// Pace limits the speed of a replay. The zero Pace replays as fast as there is room.
type Pace struct {
	// Rate is the highest rate, in units of cost a second, spread evenly. Zero means no bound.
	Rate float64
	// Share limits the rate to a part of the gateway's current limits, 0 to 1. Zero means no bound.
	Share float64
	// Canary is how many jobs go first; the rest follows when each of them is done. Zero means that all go at
	// once.
	Canary int

	rate, share string // as typed
}

// SetRate parses a rate such as 50/s or 300/10s. name is its name in errors.
func (p *Pace) SetRate(text, name string) error {
	l, err := job.ParseLimit(text)
	if err != nil {
		return usage("write it like 50/s, 3000/m or 300/10s, or leave it out for no bound", "%s %v", name, err)
	}
	p.Rate, p.rate = l.PerSecond(), text
	return nil
}

// SetShare parses a share such as 20%. name is its name in errors.
func (p *Pace) SetShare(text, name string) error {
	const hint = "write it like 20%, more than 0% and at most 100%"
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !percent || strings.ContainsAny(number, "xXpP_nN"):
		return usage(hint, "%s %q is not a percentage", name, text)
	case !(n > 0 && n <= 100):
		return usage(hint, "%s %s is not a part of the gateway's limits", name, text)
	}
	p.Share, p.share = n/100, text
	return nil
}

// text returns the pace as command-line flags.
func (p Pace) text() (text string) {
	if p.rate != "" {
		text += " --rate " + p.rate
	}
	if p.share != "" {
		text += " --share " + p.share
	}
	if p.Canary > 0 {
		text += " --canary " + strconv.Itoa(p.Canary)
	}
	return text
}

// leave returns what the gateway permits a replay now. It reads the hold and the limits each time.
func (g *Gateway) leave(ctx context.Context, p Pace) (deadletter.Leave, error) {
	leave := deadletter.Leave{Rate: p.Rate}
	hold, err := dispatch.Hold(ctx, g.redis, g.Gateway)
	if err != nil {
		return leave, err
	}
	if leave.Stop = stoppedBy(g.Name, hold); leave.Stop == "" && hold.Circuit {
		leave.Stop, err = g.openCircuit(ctx, hold)
	}
	if err != nil || p.Share == 0 || leave.Stop != "" {
		return leave, err
	}
	now, err := dispatch.CurrentLimits(ctx, g.redis, g.Gateway)
	leave.Rate = p.Share * job.PerSecond(now.Limits)
	return leave, err
}

// stoppedBy says what holds a gateway's calls back; empty if nothing does. A pending probe is no reason to
// stop, because the replay may supply it.
func stoppedBy(gateway string, s bucket.Standing) string {
	switch {
	case s.Paused:
		return because(gateway+" is paused", s.PauseWhy)
	case !s.HeldUntil.IsZero():
		return because(gateway+" is held until "+job.Moment(s.HeldUntil), s.Reason)
	}
	return ""
}

// openCircuit says that a gateway's circuit is still open after its hold, and that other jobs wait for the
// probe. If no other job waits, the replay itself has to supply the probe. If that fails, the next call of
// leave finds the hold.
func (g *Gateway) openCircuit(ctx context.Context, hold bucket.Standing) (string, error) {
	now, err := g.Books.Look(ctx)
	if err != nil {
		return "", err
	}
	if now.Queued+now.InFlight+now.Retrying+now.Pending == 0 {
		return "", nil
	}
	return because("the circuit of "+g.Name+" is open", hold.Reason), nil
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}

// checkPriority returns why jobs of the gateway can't be given a class, or nil.
func (g *Gateway) checkPriority(a Action, class string) error {
	if class == "" {
		return nil
	}
	if a.Name != Replay.Name {
		return usage("leave it out, or replay the jobs", "only a replay gives jobs another class")
	}
	var names []string
	for _, c := range g.Priority.List() {
		if c.Name == class {
			return nil
		}
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return usage("leave it out, or choose other gateways with -g", "the gateway %s has no classes, and so not %q", g.Name, class)
	}
	return usage("its classes are "+strings.Join(names, ", "), "the gateway %s has no class %q%s", g.Name, class, job.DidYouMean(class, "", names))
}

// classChange returns the change of the jobs' class. The default class has no name in records.
func (b *Bulk) classChange() job.ClassChange {
	for _, c := range b.Gateway.Priority.List() {
		if c.Name == b.Options.Priority && c.Usual {
			return job.ToClass("")
		}
	}
	return job.ToClass(b.Options.Priority)
}
