package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/remote"
)

// batchFlags are the flags of "batch NAME".
type batchFlags struct {
	gateways []string
	by       string
	export   bool
	out      exportFlags
}

func batchCommand(p *program) *cobra.Command {
	f := &batchFlags{}
	cmd := &cobra.Command{
		Use: "batch NAME [-g GATEWAY]...", Short: "List the batches; show, export, pause, resume or cancel one",
		Long: `Batch shows the jobs of one batch by state, with sums of money if the gateway has "amount" configured, and
when its last job will have been called. The estimate uses the rate of the last minute, or else the limits,
and assumes that all waiting jobs of the gateway go first. It is equally fast for a batch of a million jobs.
Exit code 4 if no gateway knows the batch.

With --by it says whether that is in time: exit code 0 if so, 1 if not or unknown. If no dispatcher has ever
served a gateway, it assumes that one starts now.

With --export it writes a line for each job, gateway by gateway in file order: its result, its amount, the
gateway's reference, and who settled it and why.
` + exportedHelp,
		Example: "  dispatcher batch list\n  dispatcher batch 2026-11\n  dispatcher batch 2026-11 --by \"2026-11-30 18:00\"\n  dispatcher batch 2026-11 --export --format csv > 2026-11.csv",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage(`name one, or see them all: dispatcher batch list`, "no batch is named")
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !f.export && (f.out.format != "" || len(f.out.fields) > 0) {
				return cli.Usage("add --export", "--format and --fields say how --export writes jobs")
			}
			if f.export {
				return p.batchExport(cmd.Context(), args[0], f)
			}
			return p.batch(cmd.Context(), args[0], f)
		},
	}
	gatewaysFlag(cmd, &f.gateways, "ask this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.by, "by", "", "say whether it will finish by `TIME`: +2h, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339")
	cmd.AddCommand(batchListCommand(p), batchPauseCommand(p), batchResumeCommand(p), batchCancelCommand(p), batchApproveCommand(p), batchRejectCommand(p))
	cmd.Flags().BoolVar(&f.export, "export", false, "write a line for each job, in file order: its result, its amount, and the gateway's reference")
	f.out.declare(cmd)
	return cmd
}

func (p *program) batch(ctx context.Context, name string, f *batchFlags) error {
	var by time.Time
	if f.by != "" {
		var err error
		if by, err = producer.ParseTime(f.by, time.Now()); err != nil {
			return err
		}
		p.remarkZone("--by", f.by)
	}
	b, err := ask(ctx, p, remote.Batch, remote.BatchOf{Name: name, At: remote.At{Gateways: f.gateways}, By: desk.Stamp(by)})
	if err != nil {
		return err
	}
	late := judge(b, by)
	if err := p.writeBatch(b, by); err != nil {
		return err
	}
	return late
}

// judge says whether the batch will be done by a time, if one is given, and returns an error if it won't.
func judge(b *desk.Batch, by time.Time) error {
	if by.IsZero() {
		return nil
	}
	switch {
	case *b.MakesIt:
		return nil
	case b.Late == 0:
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("nobody can say whether batch %q makes it by %s: %s", b.Batch, job.Clock(by), b.WhyNoETA()),
			Hint: `see "dispatcher status", and end what keeps it back`}
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("batch %q does not make it by %s: its last job will be called %s later%s", b.Batch, job.Clock(by), cli.Short(time.Duration(b.Late*float64(time.Second))), b.Condition()),
		Hint: "raise the gateway's limits if the provider agrees, or hold other batches back (dispatcher batch pause)"}
}

func (p *program) writeBatch(v *desk.Batch, by time.Time) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "STATE", "REASON", "JOBS", "MONEY", "ETA")
	for _, g := range v.Gateways {
		for _, s := range desk.ForPeople(g.States) {
			t.Row(g.Gateway, s.StateWords(), s.ReasonWords(), s.Jobs, t.Money(s.Totals), "")
		}
		if g.PausedAt != nil {
			t.Row(g.Gateway, "paused", "", "", cli.Uncut(fmt.Sprintf("%s by %s: %s", cli.Relative(*g.PausedAt, time.Now()), g.PausedBy, g.PauseWhy)), "")
		}
		if g.Approval.Waits() {
			t.Row(g.Gateway, "awaits approval", "", "", cli.Uncut(fmt.Sprintf("%s: %s", cli.Relative(*g.Approval.Since, time.Now()), g.Approval.Why)), "")
		}
		if g.Pending != nil {
			t.Row(g.Gateway, "asked about", "", "", cli.Uncut(g.Pending.Text()), "")
		}
		if c := g.Canary; c != nil && c.Waits {
			t.Row(g.Gateway, "waits", "", "", cli.Uncut(fmt.Sprintf("until its first %d jobs are done: %d are", c.First, c.Done)), "")
		}
		if g.Cancelled != nil {
			t.Row(g.Gateway, "cancelled", "", "", cli.Uncut(fmt.Sprintf("%s by %s: %s", cli.Relative(*g.Cancelled, time.Now()), g.CancelBy, g.CancelWhy)), "")
		}
	}
	t.Row("all", "total", "", v.Jobs, t.Money(v.Totals), etaText(v.ETASeconds))
	if err := t.Flush(); err != nil {
		return err
	}
	if v.ETASeconds == nil {
		p.remark("no ETA: %s", v.WhyNoETA())
	}
	p.remarkGoOn(v)
	for _, part := range v.Unlisted {
		p.remark("%s", part.Text())
	}
	if v.MakesIt != nil && *v.MakesIt {
		p.remark("batch %q makes it by %s%s", v.Batch, job.Clock(by), v.Condition())
	}
	return nil
}

// remarkGoOn says how to continue a stopped batch, once if that is the same at several gateways.
func (p *program) remarkGoOn(v *desk.Batch) {
	var said []string
	for _, g := range v.Gateways {
		if g.GoOn == "" || slices.Contains(said, g.GoOn) {
			continue
		}
		said = append(said, g.GoOn)
		word := "paused"
		switch {
		case g.StoppedItself:
			word = "stopped by itself"
		case g.PausedAt == nil && g.Approval.Waits():
			word = "awaits an approval"
		case g.PausedAt == nil:
			word = "waits"
		}
		p.remark("%s: %s", word, g.GoOn)
	}
}

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
