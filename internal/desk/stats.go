package desk

import (
	"context"
	"slices"

	"spillway/internal/job"
)

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
