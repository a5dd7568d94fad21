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

func parkCommand(p *program) *cobra.Command {
	f := &actFlags{}
	cmd := &cobra.Command{
		Use: "park ID --why TEXT [-g GATEWAY]", Short: "Remove one job from the queue, or stop its look-ups, and park it",
		Long: `Park removes a job that waits for its call from the queue: queued, scheduled or in back-off. It is parked as
cancelled, or as unknown_outcome if an earlier call may have charged, until a person replays, discards or
resolves it. A job in flight is not parked: its call can't be undone. A pending job gets no more look-ups,
and is parked as unknown_outcome, so that a person can settle it.

It asks on a terminal; elsewhere it is a dry run, unless --yes is given. "dlq history" shows who did it,
when and why. To remove a job for good at once, use "dlq discard --id ID".`,
		Example: "  dispatcher park inv-1042 --why \"wrong customer, ticket 4711\" --yes",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.park(cmd.Context(), args[0], f) },
	}
	f.declare(cmd, "look in this `GATEWAY` only; repeatable (default: all of the file)", "the `REASON`, recorded in the trail; required")
	return cmd
}

func (p *program) park(ctx context.Context, id string, f *actFlags) error {
	by, to, err := p.forAct(ctx, f.why, "park")
	if err != nil {
		return err
	}
	defer to.Close()
	q := remote.ParkOf{ID: id, At: remote.At{Gateways: f.gateways}, Actor: by, DryRun: true}
	d, err := remote.Park.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, "Park "+parkText(d))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = remote.Park.Ask(ctx, to, q); err != nil {
			return err
		}
	}
	return p.writePark(d, decision)
}

// parkText describes the job and what becomes of it.
func parkText(d desk.ParkDeed) string {
	is, worth := "is", job.MoneyText(d.Amount, d.NoAmount)
	if d.Done {
		is = "was"
	}
	if worth != "" {
		worth = " (" + worth + ")"
	}
	text := fmt.Sprintf("job %q%s at %s, which %s %s", d.ID, worth, d.Gateway, is, d.Was)
	if d.Unsure {
		text += " and may have been charged"
	}
	return text + fmt.Sprintf(", as %s", d.Reason)
}

func (p *program) writePark(d desk.ParkDeed, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	what := map[cli.Decision]string{cli.Go: "parked ", cli.DryRun: "would park "}[decision]
	line := what + parkText(d)
	return p.tellDone(line, decision)
}

// tellDone prints line if the act was done or would be.
func (p *program) tellDone(line string, decision cli.Decision) error {
	if decision == cli.Declined {
		line = "nothing was changed"
	}
	if _, err := fmt.Fprintln(p.Tell(), line); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	p.remarkDryRun(decision)
	return nil
}

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
