package desk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/job"
)

// BatchState is how a batch stands as a whole.
type BatchState string

// The states of a batch.
const (
	BatchActive    BatchState = "active"            // something is left of it
	BatchPaused    BatchState = "paused"            // at one gateway at least
	BatchAwaiting  BatchState = "awaiting_approval" // at one gateway at least, and neither paused nor cancelled
	BatchCancelled BatchState = "cancelled"         // at one gateway at least, and paused at none
	BatchOver      BatchState = "over"              // each of its jobs is done or discarded
)

// BatchRow is one batch at a glance: a line of "batch list -o json". Each of its jobs is counted in one of Done, Waiting, NeedsPerson and Other.
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

// Row is the batch as lists show it, but for its place in them.
func (b *Batch) Row() BatchRow { return b.row(listedBatch{name: b.Batch}) }

// row is the batch as lists show it.
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

// stopped says where the batch is paused, or else cancelled, and as the first of these gateways has it, since when, why and by whom.
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

// NeedsPerson says that the jobs stay there until a person decides.
func (p BatchPlace) NeedsPerson() bool {
	switch p.Reason {
	case job.UnknownOutcome, job.Refused, job.Exhausted:
		return p.State == job.Parked
	}
	return false
}

// Word names the place in a word or a few: a job that is parked as rejected waits for room.
func (p BatchPlace) Word() string {
	switch {
	case p.State != job.Parked:
		return strings.ReplaceAll(string(p.State), "_", " ")
	case p.Reason == job.Rejected:
		return "waiting for room"
	}
	return strings.ReplaceAll(string(p.Reason), "_", " ")
}

// left is how many jobs are neither over nor parked because their batch was cancelled.
func (r BatchRow) left() (jobs int64) {
	for _, p := range r.States {
		cancelled := p.State == job.Parked && p.Reason == job.Cancelled && r.Cancelled != nil
		if p.State != job.Done && p.State != job.Discarded && !cancelled {
			jobs += p.Jobs
		}
	}
	return jobs
}

// Where says where the jobs are that are not done, what needs a person first: "2 refused, 20 queued".
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

// mostGateways is how many gateways a text names.
const mostGateways = 3

// GatewaysText names the batch's gateways, or says how many they are.
func (r BatchRow) GatewaysText() string { return gatewaysText(r.Gateways) }

func gatewaysText(names []string) string {
	if len(names) > mostGateways {
		return job.CountText(int64(len(names))) + " gateways"
	}
	return strings.Join(names, ", ")
}

// Stopped says by whom and why the batch is paused or cancelled, and where, if not at all of its gateways; empty if it is not.
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
