package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/job"
)

func dlqStatsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [flags]", Short: "Count parked jobs and their money by gateway and reason",
		Long: `Stats counts the parked jobs by gateway and reason, with the oldest of each and the sums of money by
currency, in minor units, where the gateway's amount says where a payload has them; and each gateway's total.`,
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

func newHeap(g config.Gateway) *gatewayHeap {
	return &gatewayHeap{Gateway: g.Name, cfg: g, all: newPile(), ByReason: map[job.Reason]*reasonHeap{}}
}

func (h *gatewayHeap) add(r job.Record) {
	of := h.ByReason[r.Reason]
	if of == nil {
		of = &reasonHeap{Oldest: r.ParkedAt, pile: newPile()}
		h.ByReason[r.Reason] = of
	}
	of.pile.add(r.Job.Payload, h.cfg.Amount)
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
	byName := map[string]*gatewayHeap{}
	for i, g := range s.gateways {
		heaps[i] = newHeap(g)
		byName[g.Name] = heaps[i]
	}
	s.filter.NoPayload = !anyAmount(s.gateways)
	missing, err := s.each(ctx, func(g config.Gateway, r job.Record) error {
		byName[g.Name].add(r)
		return nil
	})
	if err != nil {
		return err
	}
	for _, h := range heaps {
		h.close()
	}
	if err := p.writeHeaps(heaps); err != nil {
		return err
	}
	return p.remarkMissing(ctx, s, missing)
}

func (p *program) writeHeaps(heaps []*gatewayHeap) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"gateways": heaps})
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "REASON", "JOBS", "OLDEST", "MONEY")
	for _, h := range heaps {
		for _, r := range job.Reasons() {
			if of := h.ByReason[r]; of != nil {
				t.Row(h.Gateway, r, of.Jobs, of.Oldest, of.pile.moneyText())
			}
		}
		if h.Oldest != nil {
			t.Row(h.Gateway, "total", h.Total, *h.Oldest, h.all.moneyText())
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
