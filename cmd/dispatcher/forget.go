package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// forgetFlags are the flags of forget.
type forgetFlags struct {
	actFlags
	ids              []string
	batch, olderThan string
}

func forgetCommand(p *program) *cobra.Command {
	f := &forgetFlags{}
	cmd := &cobra.Command{
		Use: "forget --id ID|--batch NAME|--older-than TIME --why TEXT [-g GATEWAY]...", Short: "Erase payload, error and reference of finished jobs",
		Long: `Forget erases personal data from jobs that are done or discarded: payload, error, reference and the digest
of the payload in their records, and the reference in the stored outcomes. The id stays known, so that the
job can't be enqueued again; amounts, sums, counts, times and the trail are kept. It can't be undone.

A job that is not finished is never forgotten, because its payload is still needed. Discard parked jobs
first. It shows how many jobs it affects and asks on a terminal; elsewhere it is a dry run, unless --yes. If
interrupted, it can be run again. Redis keeps erased data in its append-only file until that is rewritten,
and backups keep it: see docs/security.md, Forgetting.`,
		Example: "  dispatcher forget --id inv-1042 --why \"erasure request, ticket 4711\" --yes\n  dispatcher forget --older-than 30d --why \"monthly erasure\" --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.forget(cmd.Context(), f) },
	}
	f.declare(cmd, "only jobs of this `GATEWAY`; repeatable (default: all of the file)", "the `REASON`, recorded in the trail; required")
	fs := cmd.Flags()
	fs.StringArrayVar(&f.ids, "id", nil, "the job with this `ID`; repeatable")
	fs.StringVar(&f.batch, "batch", "", "jobs of the batch `NAME`")
	fs.StringVar(&f.olderThan, "older-than", "", "jobs that finished at least this long ago: `TIME` is 30d, or 24h")
	return cmd
}

func (p *program) forget(ctx context.Context, f *forgetFlags) error {
	if err := desk.NeedWhy(f.why, "forget"); err != nil {
		return err
	}
	by, err := acts(f.why)
	if err != nil {
		return err
	}
	q := remote.ForgetOf{At: remote.At{Gateways: f.gateways}, IDs: f.ids, Batch: f.batch, OlderThan: f.olderThan, Actor: by, DryRun: true}
	if _, err := q.Forgetting(); err != nil {
		return err
	}
	to, err := p.at(ctx)
	if err != nil {
		return err
	}
	defer to.Close()
	d, err := remote.ForgetJobs.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	var all job.Totals
	for _, g := range d.Gateways {
		all.Add(g.Totals)
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, fmt.Sprintf("Erase payload, error and reference of %s for ever", all))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = inSteps(ctx, p, to, remote.ForgetJobs, q, cli.ProgressParams{What: "forget", Total: all.Jobs}, jobsOf); err != nil {
			return err
		}
	}
	problem := d.Problem.Err()
	d.Problem = nil
	return cmp.Or(problem, p.writeForgot(d, decision))
}

func (p *program) writeForgot(d remote.ForgotJobs, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	for _, g := range d.Gateways {
		if g.Jobs+g.Already+g.NotOver > 0 {
			fmt.Fprintf(p.Tell(), "%s: %s\n", g.Gateway, g.Text(d.Done))
		}
	}
	p.remarkDryRun(decision)
	return nil
}
