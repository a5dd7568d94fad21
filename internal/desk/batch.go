package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/record"
)

// Batch is the state of a batch: "batch -o json".
type Batch struct {
	Batch string `json:"batch"`
	job.Totals
	States     []BatchPlace `json:"states"`
	ETASeconds *float64     `json:"eta_seconds"`
	By         *time.Time   `json:"by,omitempty"`
	MakesIt    *bool        `json:"makes_it,omitempty"`
	// Late is by how many seconds it is late; 0 if it is not, or if that is unknown.
	Late     float64        `json:"late_seconds,omitempty"`
	Gateways []BatchGateway `json:"gateways"`
	// Unlisted is the parts of the batch at gateways that are not configured.
	Unlisted []BatchElsewhere `json:"unlisted,omitempty"`

	// fromNow is when the last job will have been called if dispatchers start now at gateways that were never
	// served; negative if unknown.
	fromNow time.Duration
	parts   []batchPart
}

// BatchGateway is the part of a batch at one gateway.
type BatchGateway struct {
	Gateway    string       `json:"gateway"`
	Jobs       int64        `json:"jobs"`
	States     []BatchPlace `json:"states"`
	ETASeconds *float64     `json:"eta_seconds"`
	ETAWhy     string       `json:"eta_why,omitempty"`
	PausedAt   *time.Time   `json:"paused_at"`
	PauseWhy   string       `json:"pause_why,omitempty"`
	PausedBy   string       `json:"paused_by,omitempty"`
	Cancelled  *time.Time   `json:"cancelled_at"`
	CancelWhy  string       `json:"cancel_why,omitempty"`
	CancelBy   string       `json:"cancelled_by,omitempty"`
	// StoppedItself says that the batch paused itself (batch_brake, enqueue --canary).
	StoppedItself bool         `json:"stopped_itself,omitempty"`
	Canary        *BatchCanary `json:"canary,omitempty"`
	// Pending is the jobs whose outcome is being looked up; nil if none.
	Pending *BatchPending `json:"pending,omitempty"`
	// Approval is the state of approvals; nil if none was needed.
	Approval *BatchAwaits `json:"approval,omitempty"`
	// GoOn says, for a person, how to continue it, if it is paused or waits for its first jobs.
	GoOn string `json:"go_on,omitempty"`
}

// BatchPending is the jobs of a batch whose outcome is being looked up.
type BatchPending struct {
	Jobs int64 `json:"jobs"`
	// Next is when the first of the next look-ups is due; nil if unknown.
	Next *time.Time `json:"next_lookup_at"`
}

// Text returns "the gateway is asked what became of 3 jobs, next at TIME".
func (p BatchPending) Text() string {
	text := "the gateway is asked what became of " + job.JobsText(p.Jobs)
	if p.Next != nil {
		text += ", next at " + job.Moment(*p.Next)
	}
	return text
}

// BatchCanary is the first jobs of a batch, which are sent before the rest.
type BatchCanary struct {
	First int64 `json:"first"`
	Done  int64 `json:"done"`
	// Waits says that the rest is not admitted yet.
	Waits bool `json:"waits"`
}

// BatchPlace is the jobs of a batch in one state.
type BatchPlace struct {
	State  job.State  `json:"state"`
	Reason job.Reason `json:"reason,omitempty"`
	job.Totals
}

// waitsForRoom reports whether these jobs are parked but only wait for room.
func (p BatchPlace) waitsForRoom() bool { return p.State == job.Parked && p.Reason == job.Rejected }

// StateWords returns the state for people.
func (p BatchPlace) StateWords() string { return job.StateWords(p.State, p.Reason) }

// ReasonWords returns the reason for people; empty if the state says everything.
func (p BatchPlace) ReasonWords() string {
	if p.waitsForRoom() {
		return ""
	}
	return p.Reason.Words()
}

// ForPeople returns the places in the order for people: jobs waiting for room precede those that are done.
func ForPeople(places []BatchPlace) []BatchPlace {
	sorted := slices.Clone(places)
	slices.SortStableFunc(sorted, func(a, b BatchPlace) int { return cmp.Compare(a.rank(), b.rank()) })
	return sorted
}

// rank orders waiting jobs before done ones, and those before parked and finished ones.
func (p BatchPlace) rank() int {
	switch {
	case p.State == job.Done:
		return 1
	case p.State == job.Parked && !p.waitsForRoom(), p.State == job.Discarded:
		return 2
	}
	return 0
}

// batchPart is the part of a batch at one gateway, as read.
type batchPart struct {
	*Gateway
	dispatch.BatchGlance
}

// Batch returns the state of a batch at the gateways that know it. An error with code not_found says that none
// does.
func (d *Desk) Batch(ctx context.Context, name string) (*Batch, error) {
	b := &Batch{Batch: name}
	found, errs := abreast(ctx, d, func(ctx context.Context, g *Gateway) (*dispatch.BatchGlance, error) {
		v, ok, err := dispatch.LookBatch(ctx, g.redis, g.Gateway, name)
		if err != nil || !ok {
			return nil, err
		}
		return &v, nil
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	for i, v := range found {
		if v != nil {
			b.parts = append(b.parts, batchPart{d.Gateways[i], *v})
		}
	}
	if len(b.parts) == 0 {
		return nil, d.NoBatch(ctx, name)
	}
	b.view()
	var err error
	b.Unlisted, err = d.elsewhere(ctx, name)
	return b, err
}

func (b *Batch) view() {
	all, eta := map[record.Place]job.Totals{}, time.Duration(0)
	for _, part := range b.parts {
		states, sum := placesOf(part.Places)
		g := BatchGateway{Gateway: part.Name, Jobs: sum.Jobs, States: states, ETASeconds: seconds(part.ETA), ETAWhy: part.Stopped}
		g.stopped(part.BatchGlance.Batch)
		g.Approval = awaitsOf(part.Awaits)
		if part.BatchGlance.Batch.Canary.Waits || g.PausedAt != nil || g.Approval.Waits() && g.Cancelled == nil {
			g.GoOn = dispatch.GoOn(b.Batch, part.BatchGlance.Batch)
		}
		if n := part.Places[record.Place{State: job.Pending}].Jobs; n > 0 {
			g.Pending = &BatchPending{n, when(part.NextLook)}
		}
		b.Gateways = append(b.Gateways, g)
		for place, one := range part.Places {
			s := all[place]
			s.Add(one)
			all[place] = s
		}
		eta, b.fromNow = later(eta, part.ETA), later(b.fromNow, part.FromNow)
	}
	b.States, b.Totals = placesOf(all)
	b.ETASeconds = seconds(eta)
}

// later returns the later of two times, or a negative one if either is unknown.
func later(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

// stopped sets whether the batch is paused or cancelled, since when, why and by whom.
func (v *BatchGateway) stopped(b record.Batch) {
	v.StoppedItself = b.Braked
	if c := b.Canary; c.Jobs > 0 {
		v.Canary = &BatchCanary{First: c.Jobs, Done: c.Done, Waits: c.Waits}
	}
	switch {
	case !b.Paused.IsZero():
		v.PausedAt, v.PauseWhy, v.PausedBy = when(b.Paused), b.Why, b.Who
	case !b.Cancelled.IsZero():
		v.Cancelled, v.CancelWhy, v.CancelBy = when(b.Cancelled), b.Why, b.Who
	}
}

// placesOf returns the places in life-cycle order, and the sum of all.
func placesOf(in map[record.Place]job.Totals) (list []BatchPlace, sum job.Totals) {
	order := []record.Place{{State: job.Scheduled}, {State: job.Queued}, {State: job.InFlight}, {State: job.Retrying}, {State: job.Pending}, {State: job.Done}}
	for _, r := range job.Reasons() {
		order = append(order, record.Place{State: job.Parked, Reason: r})
	}
	list = []BatchPlace{}
	for _, place := range append(order, record.Place{State: job.Discarded}) {
		if s := in[place]; s.Jobs != 0 {
			list = append(list, BatchPlace{place.State, place.Reason, s})
			sum.Add(s)
		}
	}
	return list, sum
}

// Judge sets whether the batch will be finished by a time. It returns by how much it is late; known is false if
// that can't be said.
func (b *Batch) Judge(by time.Time) (late time.Duration, known bool) {
	late = max(b.parts[0].Now.Add(b.fromNow).Sub(by), 0)
	makes, utc := b.fromNow >= 0 && late == 0, by.UTC()
	b.By, b.MakesIt, b.Late = &utc, &makes, late.Seconds()
	return late, b.fromNow >= 0
}

// Condition returns what has to be done for Judge's result to hold; empty if nothing.
func (b *Batch) Condition() string {
	if b.ETASeconds == nil {
		return ", if dispatchers begin now"
	}
	return ""
}

// WhyNoETA says at which gateways the batch's ETA is unknown, and why. Of the gateways with the same reason it
// names three.
func (b *Batch) WhyNoETA() string {
	var reasons []string
	at := map[string][]string{}
	for _, g := range b.Gateways {
		if g.ETAWhy == "" {
			continue
		}
		if at[g.ETAWhy] == nil {
			reasons = append(reasons, g.ETAWhy)
		}
		at[g.ETAWhy] = append(at[g.ETAWhy], g.Gateway)
	}
	for i, why := range reasons {
		reasons[i] = firstNames(at[why]) + ": " + why
	}
	return strings.Join(reasons, "; ")
}
