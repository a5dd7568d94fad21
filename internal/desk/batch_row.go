package desk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// BatchState is the state of a batch as a whole.
type BatchState string

// The states of a batch.
const (
	BatchActive    BatchState = "active"            // some jobs are left
	BatchPaused    BatchState = "paused"            // at one or more gateways
	BatchAwaiting  BatchState = "awaiting_approval" // at one or more gateways; neither paused nor cancelled
	BatchCancelled BatchState = "cancelled"         // at one or more gateways; paused at none
	BatchOver      BatchState = "over"              // all jobs are done or discarded
)

// BatchRow summarizes one batch: a line of "batch list -o json". Each job is counted in one of Done, Waiting,
// NeedsPerson and Other.
type BatchRow struct {
	Batch      string     `json:"batch"`
	State      BatchState `json:"state"`
	FirstJobAt time.Time  `json:"first_job_at"`
	Gateways   []string   `json:"gateways"`
	job.Totals
	Done        job.Totals   `json:"done"`
	Waiting     job.Totals   `json:"waiting"`
	NeedsPerson job.Totals   `json:"needs_person"`
	Other       job.Totals   `json:"other"`
	States      []BatchPlace `json:"states"`
	ETASeconds  *float64     `json:"eta_seconds"`
	ETAWhy      string       `json:"eta_why,omitempty"`
	// StoppedAt is the gateways at which it is paused or cancelled.
	StoppedAt []string   `json:"stopped_at,omitempty"`
	PausedAt  *time.Time `json:"paused_at"`
	PauseWhy  string     `json:"pause_why,omitempty"`
	PausedBy  string     `json:"paused_by,omitempty"`
	Cancelled *time.Time `json:"cancelled_at"`
	CancelWhy string     `json:"cancel_why,omitempty"`
	CancelBy  string     `json:"cancelled_by,omitempty"`
	Cursor    string     `json:"cursor"`
}

// Row returns the batch as shown in lists, without its position there.
func (b *Batch) Row() BatchRow { return b.row(listedBatch{name: b.Batch}) }

// row returns the batch as shown in lists.
func (b *Batch) row(l listedBatch) BatchRow {
	r := BatchRow{Batch: b.Batch, State: BatchActive, FirstJobAt: l.first, Totals: b.Totals, States: b.States, ETASeconds: b.ETASeconds, ETAWhy: b.WhyNoETA(), Cursor: l.cursor()}
	for _, g := range b.Gateways {
		r.Gateways = append(r.Gateways, g.Gateway)
	}
	for _, place := range b.States {
		r.sumOf(place).Add(place.Totals)
	}
	b.stopped(&r)
	switch {
	case r.PausedAt != nil:
		r.State = BatchPaused
	case r.Cancelled != nil:
		r.State = BatchCancelled
	case slices.ContainsFunc(b.Gateways, func(g BatchGateway) bool { return g.Approval.Waits() }):
		r.State = BatchAwaiting
	case r.left() == 0:
		r.State = BatchOver
	}
	return r
}

// stopped sets where the batch is paused, or else cancelled, and for the first of these gateways, since when,
// why and by whom.
func (b *Batch) stopped(r *BatchRow) {
	paused := slices.ContainsFunc(b.Gateways, func(g BatchGateway) bool { return g.PausedAt != nil })
	for _, g := range b.Gateways {
		if g.PausedAt == nil && (paused || g.Cancelled == nil) {
			continue
		}
		if r.StoppedAt = append(r.StoppedAt, g.Gateway); len(r.StoppedAt) == 1 {
			r.PausedAt, r.PauseWhy, r.PausedBy = g.PausedAt, g.PauseWhy, g.PausedBy
			r.Cancelled, r.CancelWhy, r.CancelBy = g.Cancelled, g.CancelWhy, g.CancelBy
		}
	}
}

// sumOf returns the sum to which a place belongs.
func (r *BatchRow) sumOf(p BatchPlace) *job.Totals {
	switch p.State {
	case job.Done:
		return &r.Done
	case job.Scheduled, job.Queued, job.InFlight, job.Retrying, job.Pending:
		return &r.Waiting
	}
	switch {
	case p.State == job.Parked && p.Reason == job.Rejected:
		return &r.Waiting
	case p.NeedsPerson():
		return &r.NeedsPerson
	}
	return &r.Other
}

// NeedsPerson reports whether the jobs stay there until an operator decides.
func (p BatchPlace) NeedsPerson() bool {
	switch p.Reason {
	case job.UnknownOutcome, job.Refused, job.Exhausted:
		return p.State == job.Parked
	}
	return false
}

// Word returns a short name of the place: a job parked as rejected waits for room.
func (p BatchPlace) Word() string {
	switch {
	case p.State != job.Parked:
		return strings.ReplaceAll(string(p.State), "_", " ")
	case p.Reason == job.Rejected:
		return "waiting for room"
	}
	return strings.ReplaceAll(string(p.Reason), "_", " ")
}

// left returns how many jobs are neither over nor parked because their batch was cancelled.
func (r BatchRow) left() (jobs int64) {
	for _, p := range r.States {
		cancelled := p.State == job.Parked && p.Reason == job.Cancelled && r.Cancelled != nil
		if p.State != job.Done && p.State != job.Discarded && !cancelled {
			jobs += p.Jobs
		}
	}
	return jobs
}

// Where says where the unfinished jobs are, those that need an operator first: "2 refused, 20 queued".
func (r BatchRow) Where() string {
	var first, rest []string
	for _, p := range r.States {
		text := job.CountText(p.Jobs) + " " + p.Word()
		switch {
		case p.State == job.Done:
		case p.NeedsPerson():
			first = append(first, text)
		default:
			rest = append(rest, text)
		}
	}
	return strings.Join(append(first, rest...), ", ")
}

// mostGateways is the most gateways that a text names.
const mostGateways = 3

// GatewaysText names the batch's gateways, or counts them.
func (r BatchRow) GatewaysText() string { return gatewaysText(r.Gateways) }

func gatewaysText(names []string) string {
	if len(names) > mostGateways {
		return job.CountText(int64(len(names))) + " gateways"
	}
	return strings.Join(names, ", ")
}

// Stopped says by whom and why the batch is paused or cancelled, and where, unless at all of its gateways;
// empty if it is not.
func (r BatchRow) Stopped() string {
	if len(r.StoppedAt) == 0 {
		return ""
	}
	who, why := r.PausedBy, r.PauseWhy
	if r.PausedAt == nil {
		who, why = r.CancelBy, r.CancelWhy
	}
	text := fmt.Sprintf("by %s: %s", who, why)
	if len(r.StoppedAt) < len(r.Gateways) {
		text = "at " + gatewaysText(r.StoppedAt) + " " + text
	}
	return text
}
