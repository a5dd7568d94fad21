package double

import (
	"slices"
	"time"
)

// stage is the point of a call at which a fate comes.
type stage int

const (
	fillStage stage = iota // before the limits are checked
	gateStage              // before the key is read
	workStage              // when the call is executed
	lookStage              // in a look-up
)

func (f *armedFate) stage() stage {
	switch {
	case kinds[f.Name].looks:
		return lookStage
	case f.plan.Fill:
		return fillStage
	case len(f.plan.Gate) > 0:
		return gateStage
	}
	return workStage
}

// due returns the fate that a call meets at a stage, and counts the call for it: the first one that fits and is not used up. It returns nil if that
// one is of another stage, or there is none. Look-ups and payments have different fates.
func (d *Double) due(c *call, at stage) *armedFate {
	for _, f := range d.armed {
		if (f.stage() == lookStage) != (at == lookStage) || !f.fits(c) || f.plan.WithKey && c.rule == nil {
			continue
		}
		if f.plan.Look == "nothing" && f.Delay > 0 && c.endpoint.Kind != "list" && !d.young(c.job, f.Delay) {
			continue
		}
		if n := f.met[c.job]; f.Calls >= 0 && n >= max(f.Calls, 1) {
			continue
		}
		if f.stage() != at {
			return nil
		}
		f.met[c.job]++
		c.log.Fate = f.Name
		return f
	}
	return nil
}

// young reports whether no payment of a job is older than a time.
func (d *Double) young(job string, age instant) bool {
	return !slices.ContainsFunc(d.byJob[job], func(b *booking) bool { return d.now() >= b.payment.made+age })
}

// hide removes what a look-up does not show: everything, or what is younger than the fate's delay.
func (f *armedFate) hide(d *Double, found finding) finding {
	found.shown = slices.DeleteFunc(found.shown, func(p *payment) bool { return f.Delay == 0 || d.now() < p.made+f.Delay })
	if len(found.shown) == 0 {
		found.rec = nil
	}
	return found
}

// choose returns the answer of a list that the fate's reason names, or the next one.
func (f *armedFate) choose(d *Double, of names) string {
	if name := find(of, f.Reason); name != "" && f.Reason != "" {
		return name
	}
	return d.turn("fate "+f.Name, of)
}

// first returns the result of the execution.
func (f *armedFate) first(d *Double, normal string) string {
	if len(f.plan.First) == 0 {
		return normal
	}
	return f.choose(d, f.plan.First)
}

// saves returns what the key keeps; "" means what the table says.
func (f *armedFate) saves(d *Double) string {
	if f.Save != "" {
		return f.Save
	}
	return d.turn("save "+f.Name, f.plan.Save)
}

// charges says whether money moves, where it would otherwise or not.
func (f *armedFate) charges(d *Double, otherwise bool) bool {
	if f.Charge != nil {
		return *f.Charge
	}
	switch f.plan.Charge {
	case "yes":
		return true
	case "no":
		return false
	case "turn":
		return d.turn("charge "+f.Name, names{"yes", "no"}) == "yes"
	}
	return otherwise
}

func (f *armedFate) delay() instant {
	if f.Delay > 0 {
		return f.Delay
	}
	return 30 * time.Second
}

// later returns how long the payment takes to reach its final state.
func (f *armedFate) later() instant {
	if f.Delay > 0 && !f.plan.Delay {
		return f.Delay
	}
	return 72 * time.Hour
}

// life returns how long a key lives without a fate.
func (d *Double) life(k *Key) span {
	if d.keyLife > 0 {
		return span(d.keyLife)
	}
	return k.Life
}

// life returns how long a key lives that would otherwise live for the given time.
func (f *armedFate) life(k *Key, otherwise span) span {
	switch {
	case f.Life > 0:
		return span(f.Life)
	case f.plan.Short:
		return k.Short
	}
	return otherwise
}

// running returns what repeats get while the first call runs; "" means what the table says. f may be nil.
func (f *armedFate) running(d *Double) string {
	switch {
	case f == nil:
		return ""
	case f.Running != "":
		return f.Running
	}
	return d.turn("running "+f.Name, f.plan.Running)
}

// repeat returns what repeats get after the first call; "" means what is saved. f may be nil.
func (f *armedFate) repeat(d *Double) string {
	if f == nil {
		return ""
	}
	return d.turn("repeat "+f.Name, f.plan.Repeat)
}

// shape changes a payment as the fate says.
func (f *armedFate) shape(p *payment, at instant) {
	if f.plan.To != "" {
		p.moves = []move{{at: at, to: f.plan.To}}
	}
	if f.plan.Lag {
		lag := worstLag
		if f.Delay > 0 {
			lag = f.Delay
		}
		p.lag = &lag
	}
	if f.plan.Step {
		p.fate = f
	}
	if f.Final == "" {
		return
	}
	when := at + f.later()
	if n := len(p.moves); n > 0 && f.Delay == 0 {
		when = p.moves[n-1].at
		p.moves = p.moves[:n-1]
	} else {
		p.moves = nil
	}
	p.moves = append(p.moves, move{at: when, to: f.Final})
}
