package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func dlqStatsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [flags]", Short: "Count parked jobs and their money by gateway and reason",
		Long: `Stats counts the parked jobs by gateway and reason, with the oldest of each and the sums of money by
currency, if the gateway has "amount" configured; and each gateway's total. Reasons that need a person come
first. Jobs that wait for room are admitted automatically: they come last, and are not in the total of the
text output.

Without --id, --match and --limit it answers from counters, however many jobs there are. The money is that
of the payloads when the jobs were accepted; an amount of more than 18 digits counts as none. Only money
between two times requires reading each job.`,
		Example: "  dispatcher dlq stats\n  dispatcher dlq stats -g stripe --batch 2026-11 -o json",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqStats(cmd.Context(), f) }
	return cmd
}

func (p *program) dlqStats(ctx context.Context, f *dlqFilter) error {
	filter, err := p.understand(f)
	if err != nil {
		return err
	}
	d, err := p.atAll(ctx, f.allBut(filter))
	if err != nil {
		return err
	}
	defer d.Close()
	v, err := remote.Stats.Ask(ctx, d, remote.FilterOf(f.gateways, filter))
	if err != nil {
		return err
	}
	if err := p.writeTallies(v.Gateways); err != nil {
		return err
	}
	p.remarkLeftOut(v.LeftOut)
	return nil
}

func (p *program) writeTallies(all []*desk.Tally) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"gateways": all})
	}
	if !slices.ContainsFunc(all, func(of *desk.Tally) bool { return of.Jobs > 0 }) {
		p.nothingMeant("parked job")
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "REASON", "JOBS", "OLDEST", "MONEY")
	for _, of := range all {
		for _, r := range job.DeadReasons() {
			tallyRow(t, of.Gateway, r.Words(), of.ByReason[r])
		}
		tallyRow(t, of.Gateway, "total", of.Dead())
		tallyRow(t, of.Gateway, job.ForRoom, of.ByReason[job.Rejected])
	}
	return t.Flush()
}

// tallyRow adds a row for some parked jobs, if there are any.
func tallyRow(t *cli.Table, gateway, what string, of *desk.ReasonTally) {
	if of != nil {
		t.Row(gateway, what, of.Jobs, of.Oldest, t.Money(of.Totals))
	}
}
