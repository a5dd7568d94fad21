// Package verify holds what a payment gateway saw against the books that were exported: every rolling window of every limit, jobs that are lost, charged
// twice or called out of order, and the money. It reads files alone.
//
// It is a second opinion, so it imports nothing of ours: it shares no code with the limits, the records or the books that it judges. Files are sorted on the
// disk, and memory does not grow with them, but for the calls of the fullest window and the acts of the trail.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Kind is what is wrong.
type Kind string

// The kinds.
const (
	Window         Kind = "window"            // more calls in a rolling window than its limit allows
	ChargedTwice   Kind = "charged_twice"     // two charges of one job
	Lost           Kind = "lost"              // done in the books, and the provider saw no call of it
	InNeither      Kind = "in_neither"        // in the list of jobs, not in the books, and never called
	NotInBooks     Kind = "not_in_books"      // called, and the books have no such job
	DoneNotCharged Kind = "done_not_charged"  // done in the books, called, and not charged
	ChargedNotDone Kind = "charged_not_done"  // charged, and the books say that it was not
	CalledNotSaid  Kind = "called_not_booked" // called, and the books say that it never was
	TwoPlaces      Kind = "two_places"        // one job twice in the books
	OtherAnswer    Kind = "other_answer"      // the books have an answer that the provider did not give
	OtherReference Kind = "other_reference"
	OtherAmount    Kind = "other_amount"
	OtherCurrency  Kind = "other_currency"
	MoneySum       Kind = "money"      // the sum of what is done is not the sum of what was charged
	Order          Kind = "order"      // called long after a job that stands behind it
	Trail          Kind = "trail"      // the trail is not as it was written
	Unwritten      Kind = "unwritten"  // settled or discarded, and the trail has no act that did it
	Unreadable     Kind = "unreadable" // a line that can't be used: it may hide something, and is no violation by itself
)

// Kinds lists the kinds, in the order in which they are shown.
func Kinds() []Kind {
	return []Kind{Window, ChargedTwice, Lost, InNeither, NotInBooks, DoneNotCharged, ChargedNotDone, CalledNotSaid, TwoPlaces, OtherAnswer,
		OtherReference, OtherAmount, OtherCurrency, MoneySum, Order, Trail, Unwritten, Unreadable}
}

// Input is one file.
type Input struct {
	Name string // as findings call it
	// Gateway is whose it is where its lines do not say so. Empty: the only one that the books have.
	Gateway string
	io.Reader
}

// Params are what is compared.
type Params struct {
	Logs  []Input // what the provider saw; at least one
	Books []Input // exports of the books; at least one
	Trail *Input  // an export of the trail; nil: it is not looked at
	Jobs  *Input  // the billing file, or any list of ids; nil: nobody knows which jobs there should be
	// IDField is the field or column of Jobs that is the id. Empty: id.
	IDField string
	Limits  []Limit // none: no window is judged
	// Gateways are the only ones that are looked at. None: all.
	Gateways []string
	// KeyPrefix stands before the job's id in the keys of the log.
	KeyPrefix string
	// Ordered says that the lines of the books are in the order of the file. Otherwise a job stands behind those that were accepted before it.
	Ordered bool
	// Slack is how much later than a job behind it a job may be called. Below 0: order is not judged.
	Slack time.Duration
	// Most is how many findings of a kind are listed. 0: none; all are counted.
	Most int
	// Dir is where temporary files go. Empty: where the system keeps them.
	Dir string
	// Memory is how many bytes each of up to three sorts keeps in memory. 0: 32 MiB.
	Memory int
}

const defaultMemory = 32 << 20

// Place is a line of a file, counted from 1.
type Place struct {
	File string `json:"file"`
	Line int64  `json:"line"`
}

// String is FILE:LINE.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Finding is one thing that is wrong.
type Finding struct {
	Kind    Kind    `json:"kind"`
	Gateway string  `json:"gateway,omitempty"`
	ID      string  `json:"id,omitempty"` // of the job; empty where no single job is meant
	Text    string  `json:"text"`         // for a person
	Where   []Place `json:"where"`        // the first lines that show it
}

// Side is what the two sides have of a gateway.
type Side struct {
	Gateway string `json:"gateway"`
	Jobs    int64  `json:"jobs"`  // in the books
	Done    int64  `json:"done"`  // of these
	Calls   int64  `json:"calls"` // that the provider saw, look-ups apart
	Lookups int64  `json:"lookups"`
	TooMany int64  `json:"too_many"` // answers 429, to look-ups too
	Charges int64  `json:"charges"`
	// InDoubt is how many jobs were charged and are open in the books, which say themselves that nobody knows.
	InDoubt int64 `json:"in_doubt"`
}

// Result is the verdict.
type Result struct {
	OK       bool           `json:"ok"`
	Counts   map[Kind]int64 `json:"violations"` // by kind; only kinds that there are
	Gateways []*Side        `json:"gateways"`
	Limits   []*Fullest     `json:"limits"`
	Money    []*Sums        `json:"money"`
	// Uncompared is how many jobs have a charge or a record without an amount.
	Uncompared int64     `json:"money_not_compared"`
	Ordered    int64     `json:"order_judged"` // jobs whose order was judged
	Findings   []Finding `json:"findings"`
	Notes      []string  `json:"notes"`
}

// Violations is how many there are, of all kinds but Unreadable.
func (r *Result) Violations() (n int64) {
	for kind, count := range r.Counts {
		if kind != Unreadable {
			n += count
		}
	}
	return n
}

// A WrongUse is an error of whoever asked.
type WrongUse struct{ Message, Hint string }

// Error is the message.
func (w *WrongUse) Error() string { return w.Message }

// checker is one check under way.
type checker struct {
	Params
	result  *Result
	files   []string // the names of the files, by their number
	named   map[string]bool
	covered map[string]bool // gateways of which there is a log
	sides   map[string]*Side
	money   map[sumKey]*Sums
	windows []*windows
	settled map[settledBy]*settledJobs
	changed int64 // limits, as the trail has it

	jobs, stamps, queue *sorter
}

// Run compares, and returns the verdict. An error says that there is none.
func Run(ctx context.Context, p Params) (*Result, error) {
	c := &checker{Params: p, result: &Result{Counts: map[Kind]int64{}, Findings: []Finding{}, Notes: []string{}}, named: map[string]bool{}, covered: map[string]bool{},
		sides: map[string]*Side{}, money: map[sumKey]*Sums{}, settled: map[settledBy]*settledJobs{}}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	for _, s := range []**sorter{&c.jobs, &c.stamps, &c.queue} {
		*s = newSorter(c.Dir, c.Memory)
		defer (*s).close()
	}
	c.windows = windowsOf(p.Limits)
	for _, step := range []func(context.Context) error{c.read, c.judgeWindows, c.judgeJobs, c.judgeOrder, c.judgeMoney, c.judgeTrail} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	c.end()
	return c.result, nil
}

// found counts a finding, and lists it if there is room.
func (c *checker) found(f Finding) {
	c.result.Counts[f.Kind]++
	if c.result.Counts[f.Kind] <= int64(c.Most) {
		c.result.Findings = append(c.result.Findings, f)
	}
}

// means says that a gateway is looked at.
func (c *checker) means(gateway string) bool {
	return len(c.Gateways) == 0 || slices.Contains(c.Gateways, gateway)
}

func (c *checker) side(gateway string) *Side {
	if c.sides[gateway] == nil {
		c.sides[gateway] = &Side{Gateway: gateway}
	}
	return c.sides[gateway]
}

// end puts the result in order.
func (c *checker) end() {
	r := c.result
	r.Gateways, r.Limits, r.Money = sidesOf(c.sides), fullestOf(c.windows), sumsOf(c.money)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return slices.Index(Kinds(), a.Kind) - slices.Index(Kinds(), b.Kind) })
	r.OK = len(r.Counts) == 0
	if len(c.Params.Limits) == 0 {
		r.Notes = append(r.Notes, "no limit was given, so no window was judged")
	}
	if c.Trail == nil && len(c.settled) > 0 {
		r.Notes = append(r.Notes, "people have settled or discarded jobs, and no trail was given to hold that against")
	}
	if c.changed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("the trail has %d changes of limits; windows were judged by the limits that were given, all the time", c.changed))
	}
}

func sidesOf(all map[string]*Side) []*Side {
	sides := make([]*Side, 0, len(all))
	for _, s := range all {
		sides = append(sides, s)
	}
	slices.SortFunc(sides, func(a, b *Side) int { return strings.Compare(a.Gateway, b.Gateway) })
	return sides
}

// moment is a time in microseconds since 1970, for people.
func moment(micros int64) string {
	text, err := time.UnixMicro(micros).UTC().MarshalText()
	if err != nil {
		return fmt.Sprint(micros)
	}
	return string(text)
}

// errLine says of one line that it can't be used. Anything else ends the reading.
type errLine struct{ error }

func badLine(format string, args ...any) error { return errLine{fmt.Errorf(format, args...)} }

// unreadable counts a line that can't be used, and returns errors that are of no single line.
func (c *checker) unreadable(at Place, err error) error {
	var bad errLine
	if !errors.As(err, &bad) {
		return err
	}
	c.found(Finding{Kind: Unreadable, Text: bad.Error(), Where: []Place{at}})
	return nil
}
