// Package reconcile compares a gateway's settlement report with the records of its jobs. It stands beside the walk: it changes nothing, and what is to be
// settled after it is for the desk.
//
// Both sides are cut into parts by a hash of the job's id, in temporary files, and compared part by part, in memory that does not grow with either of them.
package reconcile

import (
	"context"
	"iter"
	"time"

	"spillway/internal/job"
)

// Kind is what the comparison of one job came to. Each job has one.
type Kind string

// The kinds.
const (
	Agree          Kind = "agree"            // charged and done, with the same money; or refused, and not done
	ChargedTwice   Kind = "charged_twice"    // two charges of one job, or a charge under another reference than the record's
	ChargedNotDone Kind = "charged_not_done" // the report has a charge, and the record is not done
	DoneNotCharged Kind = "done_not_charged" // the record is done, is expected in the report, and has no charge there
	OtherAmount    Kind = "other_amount"
	OtherCurrency  Kind = "other_currency"
	RefusedInDoubt Kind = "refused_in_doubt" // the report says that it was refused, and the record that it may have been charged
	NotOurs        Kind = "not_ours"         // no record: no job of ours, or one that was over longer ago than dedupe
)

// Differences lists the kinds but Agree, what hurts most first.
func Differences() []Kind {
	return []Kind{ChargedTwice, ChargedNotDone, DoneNotCharged, OtherAmount, OtherCurrency, RefusedInDoubt, NotOurs}
}

// What the ids of a report are.
const (
	IDIsJob       = "job"       // the job's id
	IDIsReference = "reference" // the gateway's own name for the payment
	IDIsKey       = "key"       // the idempotency key that was sent
)

// IDs lists what the ids of a report may be; the first is the default.
func IDs() []string { return []string{IDIsJob, IDIsReference, IDIsKey} }

// Record is what the comparison needs of a job's record.
type Record struct {
	ID        string
	Batch     string
	State     job.State
	Reason    job.Reason // of a parked job
	Money     string     // as job.MoneyField writes it; empty where the books have none
	Reference string     // the gateway's own; empty if it gave none
	// InDoubt says that a call may have charged, and nobody knows.
	InDoubt bool
	// GoesOn says that the job will be called without a person: it waits, is called, or is parked and goes in by itself.
	GoesOn bool
	// Expected says that the job is done and that the report should have it.
	Expected bool
	ParkedAt time.Time // zero if it is not parked
	// Keys is the idempotency keys that were sent for it, the present one last. Needed where ids are keys.
	Keys []string
	// FirstKey says that the job had no other key than the present one: what is said of an earlier call is said of this one.
	FirstKey bool
	// Calls is how many calls of it may have reached the gateway since it was accepted.
	Calls int
}

// where is the state for people and programs: the reason of what is parked.
func (r Record) where() string {
	if r.State == job.Parked {
		return string(r.Reason)
	}
	return string(r.State)
}

// Amount is money of a report or a record: Minor of Currency. Minor is a whole number of minor units.
type Amount struct {
	Minor    Minor  `json:"amount"`
	Currency string `json:"currency,omitempty"`
}

// Difference is one job in which the report and the records differ.
type Difference struct {
	Kind  Kind   `json:"kind"`
	ID    string `json:"id"`
	Batch string `json:"batch,omitempty"`
	// State is the record's; empty if there is no record. Reason is why it is parked.
	State  job.State  `json:"state,omitempty"`
	Reason job.Reason `json:"reason,omitempty"`
	// Lines is where in the report it stands: the numbers of its first lines.
	Lines []int `json:"lines,omitempty"`
	// Reported is the money of its first charge in the report, Recorded that of its record; nil where there is none to be read.
	Reported *Amount `json:"reported,omitempty"`
	Recorded *Amount `json:"recorded,omitempty"`
	// Reference is that of its first line, RecordReference that of its record.
	Reference       string `json:"reference,omitempty"`
	RecordReference string `json:"record_reference,omitempty"`
	// GoesOn says that the job was charged, and will be called again unless somebody keeps it from that.
	GoesOn bool `json:"may_be_charged_again,omitempty"`
}

// Clear is a parked job in doubt that the report settles.
type Clear struct {
	ID       string
	ParkedAt time.Time // with the id, this very parking and no other
	Done     bool      // it was charged; else it was refused
	Line     int       // of the report
	// Reference is the gateway's own name for the payment that was charged; empty: nobody knows it.
	Reference string
}

// Sum is jobs counted together, with the money that the report and the records have for them.
type Sum struct {
	Jobs     int64       `json:"jobs"`
	Reported job.Amounts `json:"reported"`
	Recorded job.Amounts `json:"recorded"`
}

// Result is what a comparison came to.
type Result struct {
	Lines   int64 `json:"lines"`     // of the report, without blank ones
	Bad     int64 `json:"bad_lines"` // of these, those that can't be used
	Records int64 `json:"records"`   // that were compared
	// PassedOver is how many lines had a status that is neither a charge nor a refusal, by status. Beyond 20 of them, the others count as "others".
	PassedOver map[string]int64 `json:"passed_over"`
	// Refunds is how many lines had a negative amount. They are neither charges nor refusals.
	Refunds int64 `json:"refunds"`
	Agree   Sum   `json:"agree"`
	// Uncompared is how many of the charges that agree have an amount in the report and none in the record: nobody knows whether it is the same.
	Uncompared int64 `json:"amounts_not_compared"`
	// Differences has each kind, also where no job is of it.
	Differences map[Kind]*Sum `json:"differences"`
	// ByState is the jobs that were charged and are not done, by their state; where they are parked, by the reason.
	ByState map[string]*Sum `json:"charged_not_done_by_state"`
	// GoesOn is the jobs that were charged, and will be called again unless somebody keeps them from that.
	GoesOn Sum `json:"may_be_charged_again"`
	// GoOn is the first of these.
	GoOn []string `json:"may_be_charged_again_ids,omitempty"`

	// Nameless says that some line can't be used and has no id that can be read. It may be any job's, so that none is clearly refused.
	Nameless bool `json:"-"`
	// Clear is what the report settles.
	Clear []Clear `json:"-"`
}

// Differ is how many jobs differ.
func (r *Result) Differ() (n int64) {
	for _, sum := range r.Differences {
		n += sum.Jobs
	}
	return n
}

// Params says what is compared, and who is told.
type Params struct {
	Report *Report
	// Records yields the records of all the gateway's jobs, each once, in any order.
	Records iter.Seq2[Record, error]
	// Dir is where the temporary files go; empty: the system's folder.
	Dir string
	// Bad is told of each line that can't be used. Nil: nobody is.
	Bad func(line int, why error)
	// Found is told of each difference; an error ends the comparison. Nil: nobody is.
	Found func(Difference) error
}

// Run compares. An error says that the report or the records could not be read to their end, and carries its code.
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
