package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/remote"
)

// batchListFlags are the flags of "batch list".
type batchListFlags struct {
	gateways []string
	desk.BatchQuery
}

func batchListCommand(p *program) *cobra.Command {
	f := &batchListFlags{}
	cmd := &cobra.Command{
		Use: "list [-g GATEWAY]...", Short: "List the batches, newest first, with their jobs and money",
		Long: `List shows a row for each batch, summed over all gateways of the file, or over those named with -g, newest
first by the time of the first accepted job. It reads only the totals of the batches, so it is equally fast
for a thousand jobs and for ten million.

WAITING counts the jobs that will be called automatically, including those that wait for room. PERSON counts
those that a person has to decide about: unknown outcomes, refused and exhausted. WHERE has all jobs that
are not done, by what they wait for. A batch is over when each of its jobs is done or discarded. An hour
after all its records have expired ("dedupe" in the configuration), it is no longer listed.`,
		Example: "  dispatcher batch list\n  dispatcher batch list --active -g stripe\n  dispatcher batch list --limit 100 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.batchList(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only jobs at this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most `N` batches (default: all)")
	cmd.Flags().StringVar(&f.After, "after", "", "only batches after this `CURSOR` from -o json or the end of a list: the next page")
	cmd.Flags().BoolVar(&f.Active, "active", false, "only batches with jobs left: not done, discarded, or parked by a cancel of the batch")
	return cmd
}

func (p *program) batchList(cmd *cobra.Command, f *batchListFlags) error {
	switch flags := cmd.Flags(); {
	case f.Limit < 0 || f.Limit == 0 && flags.Changed("limit"):
		return cli.Usage("give at least 1, or leave it out for all", "--limit %d is too few", f.Limit)
	case f.After == "" && flags.Changed("after"):
		return emptyFlag("after")
	}
	d, err := p.atAll(cmd.Context(), f.gateways)
	if err != nil {
		return err
	}
	defer d.Close()
	return p.writeBatches(cmd.Context(), d, f)
}

func (p *program) writeBatches(ctx context.Context, d remote.Desk, f *batchListFlags) error {
	out := p.newPaged("BATCH", "STATE", "JOBS", "DONE", "WAITING", "PERSON", "DONE MONEY", "MONEY", "ETA", "FIRST JOB", "GATEWAYS", "WHERE", "STOPPED")
	last := ""
	q := remote.BatchesOf{At: remote.At{Gateways: f.gateways}, After: f.After, Active: f.Active}
	for more := true; more; {
		q.Limit = remote.MostShown
		if f.Limit > 0 {
			q.Limit = min(q.Limit, f.Limit-out.rows)
		}
		page, err := remote.Batches.Ask(ctx, d, q)
		if err != nil {
			return err
		}
		for _, row := range page.Batches {
			if err := p.writeBatchRow(out, row); err != nil {
				return err
			}
			last = row.Cursor
		}
		if more = page.Next != nil && (f.Limit == 0 || out.rows < f.Limit); more {
			q.After = *page.Next
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	switch {
	case p.JSON():
	case out.rows == 0:
		p.nothingMeant("batch")
	case out.rows == f.Limit:
		p.remark("there may be more: add --after %q", last)
	}
	return nil
}

func (p *program) writeBatchRow(out *paged, r desk.BatchRow) error {
	if p.JSON() {
		out.rows++
		return cli.WriteJSON(out.out, r)
	}
	gateways := r.GatewaysText()
	if !p.OutTerminal {
		gateways = strings.Join(r.Gateways, ",")
	}
	return out.row(cli.Uncut(r.Batch), r.State, r.Jobs, r.Done.Jobs, r.Waiting.Jobs, r.NeedsPerson.Jobs, out.table.Money(r.Done), out.table.Money(r.Totals),
		etaText(r.ETASeconds), r.FirstJobAt, cli.Uncut(gateways), cli.Uncut(r.Where()), cli.Uncut(r.Stopped()))
}
