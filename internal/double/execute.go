package double

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// execution is the work on one call. It ends at its time, whether its caller waits or not: the next call finds it done.
type execution struct {
	call    *call
	fate    *armedFate // nil: none
	outcome string     // the name of its answer
	charges bool
	saves   string // overrides the table's, unless ""
	target  *payment
	rec     *record // of its key; nil: it has none
	ends    instant
	reply   reply
}

// record is what is known about one key.
type record struct {
	born    instant
	life    span
	print   string
	fate    *armedFate
	work    *execution // under way; nil: done
	first   reply
	mode    string // answer, state, or the name of an answer
	payment *payment
}

// execute begins the work.
func (d *Double) execute(c *call, f *armedFate, target *payment) reply {
	now := d.now()
	e := &execution{call: c, fate: f, target: target, ends: now + d.scaled(d.service)}
	e.outcome = d.table.Normal
	if target != nil {
		e.outcome = cmp.Or(c.endpoint.Leaves, "paid")
	}
	if f != nil {
		c.log.Fate = f.Name
		e.outcome, e.saves = f.first(d, e.outcome), f.saves(d)
		if f.plan.Delay {
			e.ends = now + f.delay()
		}
	}
	e.charges = e.outcome == "paid" || e.outcome == "pending" || d.table.Answers[e.outcome].Charges
	if f != nil {
		e.charges = f.charges(d, e.charges)
	}
	if c.rule != nil {
		e.rec = &record{born: c.at, life: d.life(c.rule), print: c.print, fate: f, work: e}
		if f != nil {
			e.rec.life = f.life(c.rule, e.rec.life)
		}
		d.keys[c.identity] = e.rec
	}
	cut := f != nil && f.plan.Cut == "after"
	if e.ends > now {
		d.working = append(d.working, e)
		if cut && f.plan.Delay {
			return reply{name: e.outcome, cut: true} // at once, while the work continues
		}
		return reply{name: e.outcome, wait: e, cut: cut}
	}
	d.finish(e)
	rep := e.reply
	rep.cut = cut
	return rep
}

// settle finishes the executions that have ended by now, in order.
func (d *Double) settle() {
	for now := d.now(); len(d.working) > 0; {
		slices.SortStableFunc(d.working, func(a, b *execution) int { return cmp.Compare(a.ends, b.ends) })
		first := d.working[0]
		if first.ends > now {
			return
		}
		d.working = d.working[1:]
		d.finish(first)
	}
}

// finish carries out the result of the work: the payment, the entry, the answer, and what is saved.
func (d *Double) finish(e *execution) {
	c, p := e.call, e.target
	_, isState := d.table.Words[e.outcome]
	switch {
	case p != nil && e.charges:
		p.become(e.ends, d.stateOf(e, isState), d.table)
	case p == nil && (isState || e.charges):
		p = d.newPayment(c, e.ends, d.stateOf(e, isState))
	}
	if p != nil && e.fate != nil {
		e.fate.shape(p, e.ends)
	}
	if e.charges {
		d.book(e, p)
	} else if f := e.fate; f != nil && f.Final == "paid" && p == nil { // rolled forward later, unlike what the answer says
		d.working = append(d.working, &execution{call: c, fate: &armedFate{Fate: Fate{Name: f.Name}}, outcome: "paid", charges: true, ends: e.ends + f.later()})
	}
	name := e.outcome
	if e.target != nil && c.endpoint.Answer != "" && name == cmp.Or(c.endpoint.Leaves, "paid") {
		name = c.endpoint.Answer
	}
	e.reply = d.sayWith(name, p, d.words(c, p, e.ends))
	if e.rec != nil {
		d.save(e, p)
	}
}

// stateOf returns the state in which the work leaves the payment.
func (d *Double) stateOf(e *execution, isState bool) string {
	if isState {
		return e.outcome
	}
	return "paid" // although the answer does not say so
}

// save saves under the key what the table says.
func (d *Double) save(e *execution, p *payment) {
	rec, mode := e.rec, e.saves
	if mode == "" {
		mode = d.table.Answers[e.outcome].Saves
	}
	if mode == "" {
		class, modes := d.table.Saved.of(e.reply.status)
		mode = d.turn(class, modes)
	}
	mode, otherwise, both := strings.Cut(mode, "|")
	switch {
	case p != nil:
	case both:
		mode = otherwise
	case mode == "state":
		mode = "nothing"
	}
	rec.work, rec.first, rec.mode, rec.payment = nil, e.reply, mode, p
	if mode == "nothing" && d.keys[e.call.identity] == rec {
		delete(d.keys, e.call.identity)
	}
}

// known returns the record of a call's key; nil from the end of the key's life on.
func (d *Double) known(c *call) *record {
	rec := d.keys[c.identity]
	if c.rule == nil || rec == nil {
		return nil
	}
	if c.at-rec.born >= instant(rec.life) && rec.work == nil {
		delete(d.keys, c.identity)
		return nil
	}
	return rec
}

// repeat answers a call whose key is known.
func (d *Double) repeat(c *call, rec *record) reply {
	c.log.Repeat = true
	if rec.fate != nil {
		c.log.Fate = rec.fate.Name
		if rec.fate.plan.Outage {
			return d.say(c, "unavailable", nil) // as long as the key is known
		}
	}
	s := d.table.Saved
	if s.Mismatch != "" && rec.print != c.print {
		return d.say(c, s.Mismatch, rec.payment)
	}
	if rec.work != nil {
		return d.whileRunning(c, rec)
	}
	if name := rec.fate.repeat(d); name != "" {
		return d.say(c, name, rec.payment)
	}
	switch rec.mode {
	case "answer":
		rep := rec.first
		for name, value := range s.Mark {
			rep.headers = with(rep.headers, name, value)
		}
		return rep
	case "state":
		return d.show(c, rec.payment)
	case "nothing": // it waited for a call that left nothing
		return d.execute(c, nil, nil)
	}
	return d.say(c, rec.mode, rec.payment)
}

// whileRunning returns what a repeat gets before the first call is done.
func (d *Double) whileRunning(c *call, rec *record) reply {
	name := rec.fate.running(d)
	if name == "" {
		name = d.turn("running", d.table.Running)
	}
	if name == "wait" {
		return reply{wait: rec.work, repeats: rec}
	}
	return d.say(c, name, nil)
}

// foreign makes a key known as if another caller had used it before, for another payment.
func (d *Double) foreign(c *call, f *armedFate) *record {
	theirs := *c
	theirs.reference, theirs.job, theirs.amount = "of-somebody-else", "of-somebody-else", anotherAmount(c.amount)
	now := d.now()
	p := d.newPayment(&theirs, now, d.table.Normal)
	rec := &record{born: now, life: d.life(c.rule), print: "of somebody else", fate: f, payment: p, first: d.say(&theirs, d.table.Normal, p)}
	_, modes := d.table.Saved.of(http.StatusOK)
	rec.mode = d.turn("2xx", modes)
	d.keys[c.identity] = rec
	return rec
}
