// Package verify compares what a payment gateway saw with the exported records: every rolling window of every
// limit, jobs that are lost, charged twice or called out of order, and the money. It reads only files.
//
// It is an independent check, so it imports no other package of this module and shares no code with the limits
// and records that it checks. It sorts on disk and uses bounded memory, except for the calls of the fullest
// window and the acts of the audit trail.
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

// Kind is a kind of violation.
type Kind string

// The kinds.
const (
	Window         Kind = "window"            // more calls in a rolling window than its limit allows
	ChargedTwice   Kind = "charged_twice"     // two charges of one job
	Lost           Kind = "lost"              // done, but the provider saw no call
	InNeither      Kind = "in_neither"        // in the list of jobs, but not exported and never called
	NotInBooks     Kind = "not_in_books"      // called, but there is no such job
	DoneNotCharged Kind = "done_not_charged"  // done and called, but not charged
	ChargedNotDone Kind = "charged_not_done"  // charged, but recorded as not charged
	CalledNotSaid  Kind = "called_not_booked" // called, but recorded as never called
	TwoPlaces      Kind = "two_places"        // one job twice in the export
	OtherAnswer    Kind = "other_answer"      // the recorded answer is not one that the provider gave
	OtherReference Kind = "other_reference"
	OtherAmount    Kind = "other_amount"
	OtherCurrency  Kind = "other_currency"
	MoneySum       Kind = "money"      // the sum of done jobs differs from the sum charged
	Order          Kind = "order"      // called long after a job behind it
	Trail          Kind = "trail"      // the audit trail was changed
	Unwritten      Kind = "unwritten"  // settled or discarded without an entry in the audit trail
	Unreadable     Kind = "unreadable" // an unusable line: it may hide something, but is no violation itself
)

// Kinds returns the kinds, in display order.
func Kinds() []Kind {
	return []Kind{Window, ChargedTwice, Lost, InNeither, NotInBooks, DoneNotCharged, ChargedNotDone, CalledNotSaid, TwoPlaces, OtherAnswer,
		OtherReference, OtherAmount, OtherCurrency, MoneySum, Order, Trail, Unwritten, Unreadable}
}

// Input is one file.
type Input struct {
	Name string // its name in findings
	// Gateway is its gateway, if its lines do not say. Empty: the only one in the export.
	Gateway string
	io.Reader
}

// Params configure a check.
type Params struct {
	Logs  []Input // the provider's logs; at least one
	Books []Input // exports of jobs; at least one
	Trail *Input  // an export of the audit trail; nil: not checked
	Jobs  *Input  // the billing file, or any list of ids; nil: unknown
	// IDField is the field or column of Jobs with the id. Empty: id.
	IDField string
	Limits  []Limit // empty: windows are not checked
	// Gateways are the gateways to check. Empty: all.
	Gateways []string
	// KeyPrefix precedes the job's id in the log's keys.
	KeyPrefix string
	// Ordered says that the exported lines are in file order. Otherwise the order of acceptance counts.
	Ordered bool
	// Slack is how much later than a job behind it a job may be called. Negative: order is not checked.
	Slack time.Duration
	// Most is how many findings of a kind are listed. 0: none; all are counted.
	Most int
	// Dir is the directory for temporary files. Empty: the system's.
	Dir string
	// Memory is how many bytes each of up to three sorts uses. 0: 32 MiB.
	Memory int
}

const defaultMemory = 32 << 20

// Place is a line of a file, counted from 1.
type Place struct {
	File string `json:"file"`
	Line int64  `json:"line"`
}

// String returns FILE:LINE.
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Finding is one violation.
type Finding struct {
	Kind    Kind    `json:"kind"`
	Gateway string  `json:"gateway,omitempty"`
	ID      string  `json:"id,omitempty"` // of the job; empty if it concerns no single job
	Text    string  `json:"text"`         // for a person
	Where   []Place `json:"where"`        // the first lines that show it
}

// Side is the totals of a gateway on both sides.
type Side struct {
	Gateway string `json:"gateway"`
	Jobs    int64  `json:"jobs"`  // exported
	Done    int64  `json:"done"`  // of these
	Calls   int64  `json:"calls"` // seen by the provider, without look-ups
	Lookups int64  `json:"lookups"`
	TooMany int64  `json:"too_many"` // 429 answers, including look-ups
	Charges int64  `json:"charges"`
	// InDoubt is how many charged jobs are recorded with an unknown outcome.
	InDoubt int64 `json:"in_doubt"`
}

// Result is the verdict.
type Result struct {
	OK       bool           `json:"ok"`
	Counts   map[Kind]int64 `json:"violations"` // by kind; only kinds that occur
	Gateways []*Side        `json:"gateways"`
	Limits   []*Fullest     `json:"limits"`
	Money    []*Sums        `json:"money"`
	// Uncompared is how many jobs have a charge or a record without an amount.
	Uncompared int64     `json:"money_not_compared"`
	Ordered    int64     `json:"order_judged"` // jobs whose order was checked
	Findings   []Finding `json:"findings"`
	Notes      []string  `json:"notes"`
}

// Violations returns how many there are, of all kinds but Unreadable.
func (r *Result) Violations() (n int64) {
	for kind, count := range r.Counts {
		if kind != Unreadable {
			n += count
		}
	}
	return n
}

// A WrongUse is a usage error.
type WrongUse struct{ Message, Hint string }

// Error returns the message.
func (w *WrongUse) Error() string { return w.Message }

// checker is a check in progress.
type checker struct {
	Params
	result  *Result
	files   []string // names of the files, by number
	named   map[string]bool
	covered map[string]bool // gateways with a log
	sides   map[string]*Side
	money   map[sumKey]*Sums
	windows []*windows
	settled map[settledBy]*settledJobs
	changed int64 // limits, by the audit trail

	jobs, stamps, queue *sorter
}

// Run checks, and returns the result. An error says that there is none.
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

// means reports whether a gateway is checked.
func (c *checker) means(gateway string) bool {
	return len(c.Gateways) == 0 || slices.Contains(c.Gateways, gateway)
}

func (c *checker) side(gateway string) *Side {
	if c.sides[gateway] == nil {
		c.sides[gateway] = &Side{Gateway: gateway}
	}
	return c.sides[gateway]
}

// end sorts the result.
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

// moment formats a time in microseconds since 1970 for people.
func moment(micros int64) string {
	text, err := time.UnixMicro(micros).UTC().MarshalText()
	if err != nil {
		return fmt.Sprint(micros)
	}
	return string(text)
}

// errLine says that one line is unusable. Any other error ends the reading.
type errLine struct{ error }

func badLine(format string, args ...any) error { return errLine{fmt.Errorf(format, args...)} }

// unreadable counts an unusable line, and returns other errors.
func (c *checker) unreadable(at Place, err error) error {
	var bad errLine
	if !errors.As(err, &bad) {
		return err
	}
	c.found(Finding{Kind: Unreadable, Text: bad.Error(), Where: []Place{at}})
	return nil
}
