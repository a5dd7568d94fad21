package desk

import (
	"context"
	"fmt"
	"math"
	"time"

	"spillway/internal/audit"
	"spillway/internal/deadletter"
)

// Audit is the result of auditing a gateway's records and totals: "audit -o json".
type Audit struct {
	Gateway   string           `json:"gateway"`
	OK        bool             `json:"ok"`
	Accepted  int64            `json:"accepted"`
	Scheduled int64            `json:"scheduled"`
	Queued    int64            `json:"queued"`
	InFlight  int64            `json:"in_flight"`
	Retrying  int64            `json:"retrying"`
	Pending   int64            `json:"pending"`
	Done      int64            `json:"done"`
	Parked    map[string]int64 `json:"parked"`
	Discarded int64            `json:"discarded"`
	Records   int64            `json:"records"`
	Seconds   float64          `json:"seconds"`
	Faults    int64            `json:"faults"`
	Findings  []Finding        `json:"findings"`
	NotesAll  int64            `json:"notes_total"`
	Notes     []Finding        `json:"notes"`
}

// Finding is something wrong or remarkable in a record or in the totals.
type Finding struct {
	ID   string      `json:"id"`
	What audit.Wrong `json:"what"`
	Text string      `json:"text"`
	Hint string      `json:"hint,omitempty"`
}

// AuditOptions configure an audit.
type AuditOptions struct {
	// Most is the most faults, and the most notes, that are listed. All are counted.
	Most int
	// Repair corrects the totals of batches that differ from their jobs' records, and what brakes count.
	Repair bool
	// Progress is called with the number of jobs examined so far. It may be nil.
	Progress func(looked int64)
}

// Audit checks that every job is in exactly one place, that the totals agree, and that the audit trail matches
// its chain.
func (g *Gateway) Audit(ctx context.Context, o AuditOptions) (Audit, error) {
	began := time.Now()
	a, err := audit.New(g.redis, g.Name, g.Books).Audit(ctx, audit.Params{Most: o.Most, Repair: o.Repair, Progress: o.Progress})
	if err != nil {
		return Audit{}, err
	}
	trail, err := g.VerifyTrail(ctx)
	if err != nil {
		return Audit{}, err
	}
	a.Faults.Total += trail.Faults
	for _, text := range trail.Findings[:min(len(trail.Findings), max(o.Most-len(a.Faults.List), 0))] {
		a.Faults.List = append(a.Faults.List, audit.Finding{What: audit.Trail, Text: text})
	}
	v := Audit{Gateway: g.Name, OK: a.Faults.Total == 0, Accepted: a.Accepted, Scheduled: a.Scheduled, Queued: a.Queued, InFlight: a.InFlight,
		Retrying: a.Retrying, Pending: a.Pending, Done: a.Done, Parked: map[string]int64{}, Discarded: a.Discarded, Records: a.Records,
		Seconds: math.Round(time.Since(began).Seconds()*1000) / 1000, Faults: a.Faults.Total, Findings: findings(a.Faults.List), NotesAll: a.Notes.Total, Notes: findings(a.Notes.List)}
	for r, n := range a.Parked {
		v.Parked[string(r)] = n
	}
	return v, nil
}

// VerifyTrail verifies the audit trail by its chain.
func (g *Gateway) VerifyTrail(ctx context.Context) (deadletter.Verified, error) {
	return g.Store.Verify(ctx, deadletter.Head{})
}

func findings(list []audit.Finding) []Finding {
	all := make([]Finding, len(list))
	for i, f := range list {
		all[i] = Finding{ID: f.ID, What: f.What, Text: f.Describe(), Hint: f.Hint()}
	}
	return all
}

// Order says in words whether everything is in order.
func (a Audit) Order() string {
	switch a.Faults {
	case 0:
		return "in order"
	case 1:
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", a.Faults)
}
