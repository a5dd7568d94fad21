package desk

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"spillway/internal/job"
)

// hasAmounts reports whether the jobs of some gateway have money.
func (d *Desk) hasAmounts() bool {
	for _, g := range d.Gateways {
		if g.Amount.Field != "" {
			return true
		}
	}
	return false
}

// Tally counts parked jobs by reason. Make one with newTally.
type Tally struct {
	Gateway string
	job.Totals
	Oldest   *time.Time // when the first job was parked; nil without jobs
	ByReason map[job.Reason]*ReasonTally

	field, currency string // where payloads have their money
}

// ReasonTally counts the jobs parked for one reason.
type ReasonTally struct {
	job.Totals
	Oldest time.Time `json:"oldest"` // when the first of them was parked
}

// MarshalJSON implements json.Marshaler.
func (t ReasonTally) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Jobs     int64       `json:"jobs"`
		Oldest   time.Time   `json:"oldest"`
		Amount   job.Amounts `json:"amount"`
		NoAmount int64       `json:"without_amount"`
	}{t.Jobs, t.Oldest, t.Amount, t.NoAmount})
}

// Dead returns the dead letters: all but those that wait for room. Nil if there are none.
func (t *Tally) Dead() *ReasonTally {
	var all *ReasonTally
	for _, r := range job.DeadReasons() {
		of := t.ByReason[r]
		if of == nil {
			continue
		}
		if all == nil {
			all = &ReasonTally{Oldest: of.Oldest}
		}
		all.add(*of)
	}
	return all
}

func (t *ReasonTally) add(of ReasonTally) {
	t.Totals.Add(of.Totals)
	if of.Oldest.Before(t.Oldest) {
		t.Oldest = of.Oldest
	}
}

func (g *Gateway) newTally() *Tally {
	return &Tally{Gateway: g.Name, ByReason: map[job.Reason]*ReasonTally{}, field: g.Amount.Field, currency: g.Amount.Currency}
}

// Places returns the reasons in display order, followed by the states of jobs that wait for their call. A
// waiting job has no reason: its state is used instead.
func Places() []job.Reason {
	return append(job.Reasons(), job.Reason(job.Queued), job.Reason(job.Scheduled), job.Reason(job.Retrying))
}

func (t *Tally) add(r job.Record) {
	reason := r.Reason
	if r.Waits() {
		reason = job.Reason(r.State)
	}
	t.of(reason, r.ParkedAt).AddRecord(r, t.field, t.currency)
	t.AddRecord(r, t.field, t.currency)
}

func (t *Tally) addAll(reason job.Reason, of ReasonTally) {
	t.of(reason, of.Oldest).Totals.Add(of.Totals)
	t.Totals.Add(of.Totals)
}

// of returns the tally of a reason, to which jobs are added of which the oldest was parked then.
func (t *Tally) of(reason job.Reason, oldest time.Time) *ReasonTally {
	sum := t.ByReason[reason]
	if sum == nil {
		sum = &ReasonTally{Oldest: oldest}
		t.ByReason[reason] = sum
	}
	if oldest.Before(sum.Oldest) {
		sum.Oldest = oldest
	}
	if t.Oldest == nil || oldest.Before(*t.Oldest) {
		first := oldest
		t.Oldest = &first
	}
	return sum
}

// TallyShown is a Tally's JSON form: one gateway of "dlq stats -o json".
type TallyShown struct {
	Gateway  string                      `json:"gateway"`
	Total    int64                       `json:"total"`
	Oldest   *time.Time                  `json:"oldest"`
	Amount   job.Amounts                 `json:"amount"`
	NoAmount int64                       `json:"without_amount"`
	ByReason map[job.Reason]*ReasonTally `json:"by_reason"`
}

// Shown returns the JSON form.
func (t *Tally) Shown() TallyShown {
	return TallyShown{t.Gateway, t.Jobs, t.Oldest, t.Amount, t.NoAmount, t.ByReason}
}

// Tally returns the tally of a JSON form.
func (s TallyShown) Tally() *Tally {
	return &Tally{Gateway: s.Gateway, Totals: job.Totals{Jobs: s.Total, Amount: s.Amount, NoAmount: s.NoAmount}, Oldest: s.Oldest, ByReason: s.ByReason}
}

// MarshalJSON implements json.Marshaler.
func (t *Tally) MarshalJSON() ([]byte, error) { return json.Marshal(t.Shown()) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tally) UnmarshalJSON(text []byte) error {
	var s TallyShown
	err := json.Unmarshal(text, &s)
	*t = *s.Tally()
	return err
}

// Count counts the selection by gateway and reason. It uses counters, in constant time. It reads the jobs only
// if the filter requires it, or for money between two times. missing is as in Each.
func (s *Selection) Count(ctx context.Context) (all []*Tally, missing []string, err error) {
	read := map[*Gateway]*Tally{} // those whose jobs have to be read
	for _, g := range s.Gateways {
		t := g.newTally()
		counted, err := s.count(ctx, g, t)
		if err != nil {
			return nil, nil, err
		}
		if all = append(all, t); !counted {
			read[g] = t
		}
	}
	if len(read) == 0 {
		return all, nil, nil
	}
	some := Selection{Desk: &Desk{Gateways: slices.DeleteFunc(slices.Clone(s.Gateways), func(g *Gateway) bool { return read[g] == nil })}, Filter: s.Filter}
	some.Filter.ToCount(some.hasAmounts())
	missing, err = some.Each(ctx, func(g *Gateway, r job.Record) error {
		read[g].add(r)
		return nil
	})
	return all, missing, err
}

// count uses counters, if possible.
func (s *Selection) count(ctx context.Context, g *Gateway, t *Tally) (counted bool, err error) {
	f := s.Filter
	if !f.Countable() || (g.Amount.Field != "" && !(f.Since.IsZero() && f.Until.IsZero())) {
		return false, nil
	}
	heaps, err := g.Store.Count(ctx, f)
	if err != nil {
		return false, err
	}
	money, err := g.parkedMoney(ctx, f.Batch)
	for r, heap := range heaps {
		sum := money[r]
		sum.Jobs = heap.Jobs
		t.addAll(r, ReasonTally{sum, heap.Oldest})
	}
	return true, err
}

// parkedMoney returns the money of parked jobs by reason, of all or of one batch.
func (g *Gateway) parkedMoney(ctx context.Context, batch string) (map[job.Reason]job.Totals, error) {
	if g.Amount.Field == "" {
		return nil, nil
	}
	if batch == "" {
		return g.Books.ParkedMoney(ctx)
	}
	of, _, err := g.Books.Batch(ctx, batch)
	sums := map[job.Reason]job.Totals{}
	for place, sum := range of.Places {
		if place.State == job.Parked {
			sums[place.Reason] = sum
		}
	}
	return sums, err
}
