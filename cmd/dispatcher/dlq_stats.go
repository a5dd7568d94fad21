package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

func dlqStatsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [flags]", Short: "Count parked jobs and their money by gateway and reason",
		Long: `Stats counts the parked jobs by gateway and reason, with the oldest of each and the sums of money by
currency, where the gateway's amount says where a payload has them; and each gateway's total.

Without --id, --match and --limit it answers from counters, however many jobs there are; the money is what
the payloads said when the jobs came in, and one of more than 18 digits counts as no amount. Only money
between two times asks for a look at each job.`,
		Example: "  dispatcher dlq stats\n  dispatcher dlq stats -g stripe --batch 2026-11 -o json",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqStats(cmd.Context(), f) }
	return cmd
}

// gatewayHeap is one gateway of "dlq stats -o json".
type gatewayHeap struct {
	Gateway  string                     `json:"gateway"`
	Total    int                        `json:"total"`
	Oldest   *time.Time                 `json:"oldest"`
	Amount   purse                      `json:"amount"`
	Bare     int                        `json:"without_amount"`
	ByReason map[job.Reason]*reasonHeap `json:"by_reason"`

	cfg config.Gateway
	all *pile
}

type reasonHeap struct {
	Jobs   int       `json:"jobs"`
	Oldest time.Time `json:"oldest"`
	Amount purse     `json:"amount"`
	Bare   int       `json:"without_amount"`

	pile *pile
}

// places are the reasons in the order in which they are shown, and behind them the states of jobs that wait for their call, which stand for a
// reason where such jobs are meant.
func places() []job.Reason {
	return append(job.Reasons(), job.Reason(job.Queued), job.Reason(job.Scheduled), job.Reason(job.Retrying))
}

func newHeap(g config.Gateway) *gatewayHeap {
	return &gatewayHeap{Gateway: g.Name, cfg: g, all: newPile(), ByReason: map[job.Reason]*reasonHeap{}}
}

func (h *gatewayHeap) add(r job.Record) {
	reason := r.Reason
	if r.Waits() {
		reason = job.Reason(r.State)
	}
	of := h.ByReason[reason]
	if of == nil {
		of = &reasonHeap{Oldest: r.ParkedAt, pile: newPile()}
		h.ByReason[reason] = of
	}
	of.pile.add(r, h.cfg.Amount)
}

// close fills in the sums.
func (h *gatewayHeap) close() {
	for _, of := range h.ByReason {
		of.Jobs, of.Amount, of.Bare = of.pile.jobs, of.pile.money, of.pile.bare
		h.all.addAll(of.pile)
		if h.Oldest == nil || of.Oldest.Before(*h.Oldest) {
			h.Oldest = &of.Oldest
		}
	}
	h.Total, h.Amount, h.Bare = h.all.jobs, h.all.money, h.all.bare
}

func (p *program) dlqStats(ctx context.Context, f *dlqFilter) error {
	s, err := p.choose(ctx, f)
	if err != nil {
		return err
	}
	defer s.close()
	heaps := make([]*gatewayHeap, len(s.gateways))
	read := map[string]*gatewayHeap{} // those whose jobs have to be looked at
	for i, g := range s.gateways {
		var counted bool
		if heaps[i], counted, err = s.count(ctx, g); err != nil {
			return err
		}
		if !counted {
			heaps[i] = newHeap(g)
			read[g.Name] = heaps[i]
		}
	}
	missing, err := s.look(ctx, read)
	if err != nil {
		return err
	}
	if err := p.writeHeaps(heaps); err != nil {
		return err
	}
	return p.remarkMissing(ctx, s, missing)
}

// look counts by reading the jobs.
func (s *selection) look(ctx context.Context, heaps map[string]*gatewayHeap) ([]string, error) {
	if len(heaps) == 0 {
		return nil, nil
	}
	some := *s
	some.gateways = slices.DeleteFunc(slices.Clone(s.gateways), func(g config.Gateway) bool { return heaps[g.Name] == nil })
	some.filter.ToCount(anyAmount(some.gateways))
	missing, err := some.each(ctx, func(g config.Gateway, r job.Record) error {
		heaps[g.Name].add(r)
		return nil
	})
	for _, h := range heaps {
		h.close()
	}
	return missing, err
}

// count answers from counters, at the same price however many jobs are parked. It does not where the filter, or money between
// two times, asks for a look at the jobs.
func (s *selection) count(ctx context.Context, g config.Gateway) (h *gatewayHeap, counted bool, err error) {
	f := s.filter
	if !f.Countable() || (g.Amount.Field != "" && !(f.Since.IsZero() && f.Until.IsZero())) {
		return nil, false, nil
	}
	heaps, err := deadletter.New(s.db.Client, g.Name).Count(ctx, f)
	if err != nil {
		return nil, false, dispatch.Coded(err)
	}
	sums, err := s.sums(ctx, g)
	if err != nil {
		return nil, false, dispatch.Coded(err)
	}
	h = newHeap(g)
	for r, heap := range heaps {
		of := &reasonHeap{Oldest: heap.Oldest, pile: newPile()}
		of.pile.jobs, of.pile.bare = int(heap.Jobs), int(sums[r].Unread)
		of.pile.money.addAll(sums[r].Money)
		h.ByReason[r] = of
	}
	h.close()
	return h, true, nil
}

// sums is the money that is parked, by reason: all of it, or one batch's.
func (s *selection) sums(ctx context.Context, g config.Gateway) (map[job.Reason]ledger.Sums, error) {
	books := dispatch.Books(s.db.Client, g)
	if g.Amount.Field == "" {
		return nil, nil
	}
	if s.filter.Batch == "" {
		return books.ParkedMoney(ctx)
	}
	batch, _, err := books.Batch(ctx, s.filter.Batch)
	sums := map[job.Reason]ledger.Sums{}
	for place, sum := range batch.Places {
		if place.State == job.Parked {
			sums[place.Reason] = sum
		}
	}
	return sums, err
}

func (p *program) writeHeaps(heaps []*gatewayHeap) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"gateways": heaps})
	}
	if !slices.ContainsFunc(heaps, func(h *gatewayHeap) bool { return h.Total > 0 }) {
		p.nothingMeant("parked job")
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "REASON", "JOBS", "OLDEST", "MONEY")
	for _, h := range heaps {
		for _, r := range job.Reasons() {
			if of := h.ByReason[r]; of != nil {
				t.Row(h.Gateway, r, of.Jobs, of.Oldest, t.Money(of.Amount, of.Bare))
			}
		}
		if h.Oldest != nil {
			t.Row(h.Gateway, "total", h.Total, *h.Oldest, t.Money(h.Amount, h.Bare))
		}
	}
	return t.Flush()
}

// anyAmount says that some gateway's payloads have money.
func anyAmount(all []config.Gateway) bool {
	for _, g := range all {
		if g.Amount.Field != "" {
			return true
		}
	}
	return false
}
