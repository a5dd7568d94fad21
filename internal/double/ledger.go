package double

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Entry is one execution that charged.
type Entry struct {
	// N counts the entries from 1.
	N int `json:"n"`
	// Job is the caller's own id: the payment's reference or, without one, the key without its generation.
	Job string `json:"job"`
	Key string `json:"key,omitempty"`
	// ID is the payment's at the gateway.
	ID        string `json:"id"`
	Reference string `json:"reference,omitempty"`
	// Amount and Currency are as the request wrote them; "" if it had none.
	Amount   string `json:"amount"`
	Currency string `json:"currency,omitempty"`
	// State is the present state of the payment: paid, pending, failed or another of the table's words.
	State string    `json:"state"`
	At    time.Time `json:"at"` // by the double's calendar
	Path  string    `json:"path"`
	// Fate is what the call met.
	Fate string `json:"fate,omitempty"`
}

// booking is an entry and the payment whose state it shows.
type booking struct {
	entry   Entry
	payment *payment
}

// payment is one payment at the gateway, charged or not.
type payment struct {
	n         int
	id        string
	reference string
	amount    string
	currency  string
	key       string
	made      instant
	state     string
	moves     []move
	paid      bool
	lag       *instant          // how long it is not found; nil: as long as any other
	parts     map[string]string // of the path to which it was paid
	fate      *armedFate        // of its second call
}

// move is a state that a payment goes into.
type move struct {
	at instant
	to string
}

func (d *Double) newPayment(c *call, at instant, state string) *payment {
	p := &payment{n: len(d.payments) + 1, reference: c.reference, amount: c.amount, currency: c.currency, key: c.key, made: at, parts: c.parts}
	p.id = strings.ReplaceAll(d.table.ID, "{n}", fmt.Sprintf("%08d", p.n))
	p.become(at, state, d.table)
	d.payments = append(d.payments, p)
	d.byID[p.id] = p
	return p
}

// become puts the payment into a state, and schedules the later states that follow from it.
func (p *payment) become(at instant, state string, t *Table) {
	p.state, p.moves = state, nil
	for _, m := range t.Moves[state] {
		p.moves = append(p.moves, move{at: at + instant(m.After), to: m.To})
	}
}

func (p *payment) stateAt(now instant) string {
	state := p.state
	for _, m := range p.moves {
		if m.at <= now {
			state = m.to
		}
	}
	return state
}

// book writes an entry.
func (d *Double) book(e *execution, p *payment) {
	p.paid = true
	entry := Entry{N: len(d.ledger) + 1, Job: e.call.job, Key: e.call.key, ID: p.id, Reference: p.reference, Amount: p.amount, Currency: p.currency,
		At: d.date(e.ends), Path: e.call.path}
	if e.target != nil && p.reference != "" {
		entry.Job = p.reference // a further call need not say whose payment it is about
	}
	if e.fate != nil {
		entry.Fate = e.fate.Name
	}
	b := &booking{entry: entry, payment: p}
	d.ledger, d.byJob[entry.Job] = append(d.ledger, b), append(d.byJob[entry.Job], b)
	if dup := d.table.Duplicates; dup != nil {
		d.sums[dup.content(e.call)] = e.ends
	}
}

// content returns the fields that two payments have in common if the gateway takes them for one.
func (dup *Duplicates) content(c *call) string {
	var parts []string
	for _, field := range dup.Same {
		parts = append(parts, map[string]string{"amount": c.amount, "currency": c.currency, "reference": c.reference}[field])
	}
	return strings.Join(parts, "\x00")
}

// guessesDouble reports whether the gateway takes the call for a duplicate of another one.
func (d *Double) guessesDouble(c *call) bool {
	dup := d.table.Duplicates
	if dup == nil || dup.WithoutKey && c.rule != nil {
		return false
	}
	last, charged := d.sums[dup.content(c)]
	return charged && (dup.Within == 0 || c.at-last < instant(dup.Within))
}

// Ledger returns a copy of the entries, oldest first, with the payments' states as they are now.
func (d *Double) Ledger() []Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle()
	now := d.now()
	all := make([]Entry, 0, len(d.ledger))
	for _, b := range d.ledger {
		b.entry.State = b.payment.stateAt(now)
		all = append(all, b.entry)
	}
	return all
}

// maxCalls is how many calls the log holds before its older half is dropped.
const maxCalls = 1_000_000

// note writes a call into the log.
func (d *Double) note(c *Call) {
	if len(d.calls) >= maxCalls {
		d.calls = slices.Clone(d.calls[maxCalls/2:])
	}
	d.calls = append(d.calls, c)
}

// Calls returns a copy of the log, in order of arrival: the latest 500,000 to 1,000,000 calls.
func (d *Double) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Call, 0, len(d.calls))
	for _, c := range d.calls {
		all = append(all, *c)
	}
	return all
}

// anotherAmount returns a different amount of the same form.
func anotherAmount(amount string) string {
	switch {
	case amount == "":
		return ""
	case amount[0] == '9':
		return "1" + amount[1:]
	}
	return string(amount[0]+1) + amount[1:]
}

// Stats is what a double has seen.
type Stats struct {
	Gateway string `json:"gateway"`
	// Calls are all calls, Repeats those with a known key, and Cut those that got no answer.
	Calls   int `json:"calls"`
	Repeats int `json:"repeats"`
	Cut     int `json:"cut"`
	// Lookups are the calls that only ask.
	Lookups int `json:"lookups"`
	// Charged are the ledger's entries, and ChargedTwice the jobs with more than one that has not failed.
	Charged      int `json:"charged"`
	ChargedTwice int `json:"charged_twice"`
	// States are the entries by their states.
	States map[string]int `json:"states"`
	Tokens TokenStats     `json:"tokens"`
}

// Stats sums the log and the ledger up.
func (d *Double) Stats() Stats {
	s := Stats{Gateway: d.table.Gateway, States: map[string]int{}, Tokens: d.Tokens()}
	charges := map[string]int{}
	for _, e := range d.Ledger() {
		s.Charged++
		s.States[e.State]++
		if e.State != "failed" && e.State != "canceled" {
			if charges[e.Job]++; charges[e.Job] == 2 {
				s.ChargedTwice++
			}
		}
	}
	for _, c := range d.Calls() {
		s.Calls++
		if c.Repeat {
			s.Repeats++
		}
		if c.Status == 0 {
			s.Cut++
		}
		if c.Look != "" {
			s.Lookups++
		}
	}
	return s
}
