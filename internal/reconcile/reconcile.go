// Package reconcile compares a gateway's settlement report with the records of its jobs. It changes nothing;
// the desk settles jobs by its result.
//
// Both sides are divided by a hash of the job's id into temporary files, and compared part by part, in bounded
// memory.
package reconcile

import (
	"context"
	"iter"
	"time"

	"spillway/internal/job"
)

// Kind is the result of comparing one job. Each job has exactly one.
type Kind string

// The kinds.
const (
	Agree          Kind = "agree"            // charged and done, with the same money; or refused, and not done
	ChargedTwice   Kind = "charged_twice"    // two charges of one job, or a charge with another reference than the record's
	ChargedNotDone Kind = "charged_not_done" // charged in the report, but not done in the record
	DoneNotCharged Kind = "done_not_charged" // done in the record and expected in the report, but not charged there
	OtherAmount    Kind = "other_amount"
	OtherCurrency  Kind = "other_currency"
	RefusedInDoubt Kind = "refused_in_doubt" // refused in the report, while it may have been charged by the record
	NotOurs        Kind = "not_ours"         // no record: not our job, or over longer ago than dedupe
)

// Differences returns the kinds other than Agree, most serious first.
func Differences() []Kind {
	return []Kind{ChargedTwice, ChargedNotDone, DoneNotCharged, OtherAmount, OtherCurrency, RefusedInDoubt, NotOurs}
}

// The kinds of ids in a report.
const (
	IDIsJob       = "job"       // the job's id
	IDIsReference = "reference" // the gateway's own name for the payment
	IDIsKey       = "key"       // the idempotency key that was sent
)

// IDs returns the kinds of ids; the first is the default.
func IDs() []string { return []string{IDIsJob, IDIsReference, IDIsKey} }

// Record is what the comparison needs of a job's record.
type Record struct {
	ID        string
	Batch     string
	State     job.State
	Reason    job.Reason // of a parked job
	Money     string     // as job.MoneyField returns it; empty if unknown
	Reference string     // the gateway's own; empty if it gave none
	// InDoubt says that it is unknown whether a call charged.
	InDoubt bool
	// GoesOn says that the job will be called without an operator: it waits, is in flight, or is parked and
	// will be replayed automatically.
	GoesOn bool
	// Expected says that the job is done and should be in the report.
	Expected bool
	ParkedAt time.Time // zero if it is not parked
	// Keys is the idempotency keys that were sent for it, the current one last. Needed if ids are keys.
	Keys []string
	// FirstKey says that the job never had another key than the current one: a statement about an earlier call
	// then applies to the current one.
	FirstKey bool
	// Calls is how many of its calls may have reached the gateway since it was accepted.
	Calls int
}

// where returns the state, or the reason of a parked job.
func (r Record) where() string {
	if r.State == job.Parked {
		return string(r.Reason)
	}
	return string(r.State)
}

// Amount is money in a report or record: Minor of Currency, in whole minor units.
type Amount struct {
	Minor    Minor  `json:"amount"`
	Currency string `json:"currency,omitempty"`
}

// Difference is one job for which the report and the records differ.
type Difference struct {
	Kind  Kind   `json:"kind"`
	ID    string `json:"id"`
	Batch string `json:"batch,omitempty"`
	// State is the record's; empty if there is none. Reason is why it is parked.
	State  job.State  `json:"state,omitempty"`
	Reason job.Reason `json:"reason,omitempty"`
	// Lines is the numbers of its first lines in the report.
	Lines []int `json:"lines,omitempty"`
	// Reported is the money of its first charge in the report, Recorded that in its record; nil if unreadable.
	Reported *Amount `json:"reported,omitempty"`
	Recorded *Amount `json:"recorded,omitempty"`
	// Reference is that of its first line, RecordReference that in its record.
	Reference       string `json:"reference,omitempty"`
	RecordReference string `json:"record_reference,omitempty"`
	// GoesOn says that the job was charged, and will be called again unless someone prevents it.
	GoesOn bool `json:"may_be_charged_again,omitempty"`
}

// Clear is a parked job in doubt that the report settles.
type Clear struct {
	ID       string
	ParkedAt time.Time // with the id, it identifies this parking
	Done     bool      // charged, or refused
	Line     int       // of the report
	// Reference is the gateway's own name for the charged payment; empty: unknown.
	Reference string
}

// Sum is a number of jobs with their money in the report and in the records.
type Sum struct {
	Jobs     int64       `json:"jobs"`
	Reported job.Amounts `json:"reported"`
	Recorded job.Amounts `json:"recorded"`
}

// Result is the result of a comparison.
type Result struct {
	Lines   int64 `json:"lines"`     // of the report, without blank ones
	Bad     int64 `json:"bad_lines"` // of these, the unusable ones
	Records int64 `json:"records"`   // that were compared
	// PassedOver is how many lines had a status that is neither a charge nor a refusal, by status. Beyond 20
	// statuses, the others count as "others".
	PassedOver map[string]int64 `json:"passed_over"`
	// Refunds is how many lines had a negative amount. They are neither charges nor refusals.
	Refunds int64 `json:"refunds"`
	Agree   Sum   `json:"agree"`
	// Uncompared is how many matching charges have an amount in the report but none in the record: whether it
	// is the same is unknown.
	Uncompared int64 `json:"amounts_not_compared"`
	// Differences has an entry for each kind, even without jobs.
	Differences map[Kind]*Sum `json:"differences"`
	// ByState is the jobs charged but not done, by state or, if parked, by reason.
	ByState map[string]*Sum `json:"charged_not_done_by_state"`
	// GoesOn is the jobs that were charged, and will be called again unless someone prevents it.
	GoesOn Sum `json:"may_be_charged_again"`
	// GoOn is the ids of the first of these.
	GoOn []string `json:"may_be_charged_again_ids,omitempty"`

	// Nameless says that an unusable line has no readable id. It may belong to any job, so no refusal is
	// certain.
	Nameless bool `json:"-"`
	// Clear is what the report settles.
	Clear []Clear `json:"-"`
}

// Differ returns how many jobs differ.
func (r *Result) Differ() (n int64) {
	for _, sum := range r.Differences {
		n += sum.Jobs
	}
	return n
}

// Params configure a comparison.
type Params struct {
	Report *Report
	// Records yields the records of all the gateway's jobs, each once, in any order.
	Records iter.Seq2[Record, error]
	// Dir is the directory for temporary files; empty: the system's.
	Dir string
	// Bad is called for each unusable line. Nil: not called.
	Bad func(line int, why error)
	// Found is called for each difference; its error ends the comparison. Nil: not called.
	Found func(Difference) error
}

// Run compares. An error says that the report or the records could not be read completely, and carries its
// code.
func Run(ctx context.Context, p Params) (*Result, error) {
	c := &comparison{p: p, Result: &Result{PassedOver: map[string]int64{}, Differences: map[Kind]*Sum{}, ByState: map[string]*Sum{}}}
	for _, k := range Differences() {
		c.Differences[k] = &Sum{}
	}
	defer c.close()
	for _, step := range []func(context.Context) error{c.open, c.readReport, c.readRecords, c.translate, c.compare} {
		if err := step(ctx); err != nil {
			return c.Result, err
		}
	}
	return c.Result, nil
}
