package desk

import (
	"errors"
	"strconv"
	"strings"

	"spillway/internal/deadletter"
	"spillway/internal/job"
	"spillway/internal/pan"
)

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
