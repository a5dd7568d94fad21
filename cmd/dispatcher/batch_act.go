package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func batchPauseCommand(p *program) *cobra.Command {
	return p.batchActCommand(desk.PauseBatch, remote.PauseBatch, "Stop calling the jobs of a batch until it is resumed",
		`Pause parks the waiting jobs of a batch as paused, in file order, so that other batches go first. Calls in
flight finish. Jobs of the batch that arrive later, or return for a retry, are parked then.`)
}

func batchResumeCommand(p *program) *cobra.Command {
	return p.batchActCommand(desk.ResumeBatch, remote.ResumeBatch, "Call the jobs of a paused batch again",
		`Resume ends a pause: the parked jobs wait for room, in file order, and are admitted automatically. With
"replay: manual", use "dlq replay --reason rejected --batch NAME". Jobs parked by batch cancel stay parked;
but jobs that arrive from now on are called again.`)
}

func batchCancelCommand(p *program) *cobra.Command {
	return p.batchActCommand(desk.CancelBatch, remote.CancelBatch, "Park every unsent job of a batch, such as a file enqueued by mistake",
		`Cancel parks the unsent jobs of a batch as cancelled: queued, scheduled, in back-off, waiting for room, or
parked by a pause. Calls in flight finish; it waits for them, and parks jobs that return. Jobs of the batch
that arrive later are parked too, because enqueue may still be reading the wrong file: use another batch for
the right file, or run "batch resume" first. Nothing is lost: "dlq replay --reason cancelled --batch NAME"
enqueues the jobs again.

If an earlier call of a job may have charged, the job is parked as unknown_outcome instead, and counted:
look it up at the gateway, then "dlq resolve". If the gateway has a lookup, such jobs are pending until it
can tell.`)
}

func (p *program) batchActCommand(a desk.BatchAction, op *remote.BatchAct, short, long string) *cobra.Command {
	f := &actFlags{}
	cmd := &cobra.Command{
		Use: a.Verb + " NAME --why TEXT [-g GATEWAY]...", Short: short,
		Long: long + `

It shows the number of jobs and asks on a terminal; elsewhere it is a dry run, unless --yes. If interrupted,
it can be run again. "dlq history" shows who did it, when and why.`,
		Example: "  dispatcher batch " + a.Verb + ` 2026-11 --why "wrong file, ticket 4711" --yes`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.batchAct(cmd.Context(), args[0], f, a, op) },
	}
	f.declare(cmd, "only its jobs at this `GATEWAY`; repeatable (default: all of the file)", "the `REASON`, for the trail")
	return cmd
}

func (p *program) batchAct(ctx context.Context, name string, f *actFlags, a desk.BatchAction, op *remote.BatchAct) error {
	by, to, err := p.forAct(ctx, f.why, "batch "+a.Verb)
	if err != nil {
		return err
	}
	defer to.Close()
	q := remote.BatchActOf{Name: name, At: remote.At{Gateways: f.gateways}, Actor: by, DryRun: true}
	d, err := op.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	var all job.Totals
	for _, g := range d.Gateways {
		all.Add(g.Totals)
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, fmt.Sprintf("%s batch %q, %s that wait", a.Verb, name, all))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = inSteps(ctx, p, to, op, q, cli.ProgressParams{What: a.Verb + " " + name, Total: all.Jobs}, jobsOf); err != nil {
			return err
		}
	}
	problem := d.Problem.Err()
	d.Problem = nil
	return cmp.Or(problem, p.writeDeed(d, a, decision))
}

func (p *program) writeDeed(d remote.BatchDone, a desk.BatchAction, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	for _, g := range d.Gateways {
		did := a.Past
		if !d.Done {
			did = "would " + a.Verb
		}
		fmt.Fprintf(p.Tell(), "%s: %s %s of batch %q\n", g.Gateway, did, g.Totals, d.Batch)
		if g.Doubt != nil {
			fmt.Fprintf(p.Tell(), "%s: of these, %s may have been charged, and wait as %s: look them up, then \"dispatcher dlq resolve\"\n", g.Gateway, *g.Doubt, job.UnknownOutcome)
		}
		if g.InAll != nil {
			fmt.Fprintf(p.Tell(), "%s: %s of batch %q %s %s in all: dispatchers or an earlier command had parked the others\n", g.Gateway, *g.InAll, d.Batch, areText(g.InAll.Jobs), a.Past)
		}
		if g.Pending != nil {
			fmt.Fprintf(p.Tell(), "%s: %s of batch %q may have been charged, and %s pending: its gateway is asked, and can tell\n", g.Gateway, *g.Pending, d.Batch, areText(g.Pending.Jobs))
		}
	}
	p.remarkDryRun(decision)
	return nil
}

// areText returns the verb for so many jobs.
func areText(jobs int64) string {
	if jobs == 1 {
		return "is"
	}
	return "are"
}

func batchApproveCommand(p *program) *cobra.Command {
	f := &actFlags{}
	cmd := &cobra.Command{
		Use: "approve NAME --why TEXT --server URL [-g GATEWAY]...", Short: "Release a batch that awaits an approval",
		Long: `Approve releases a batch whose sum is above approval.batch_over: its jobs then wait for room, in file order.
It shows the batch's sum, its largest jobs, who enqueued it, and how much of it was also in an earlier
batch, and asks. Only what was shown is approved: jobs added later wait again.

You can't approve a batch that you enqueued. So this goes through a dispatcher (--server), with a named
token and the role approver: with Redis's password alone, anybody could type any name. "batch reject"
rejects the batch.`,
		Example: `  dispatcher batch approve 2026-11 --why "compared with the ledger" --server https://dispatcher.example:8080`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.batchApprove(cmd.Context(), args[0], f) },
	}
	f.declare(cmd, "only its jobs at this `GATEWAY`; repeatable (default: all of the file)", "the `REASON`, for the trail")
	return cmd
}

func batchRejectCommand(p *program) *cobra.Command {
	return p.batchActCommand(desk.RejectBatch, remote.RejectBatch, "Reject a batch that awaits an approval",
		`Reject parks the jobs of a batch that awaits an approval as cancelled, like batch cancel: no further job is
called. A batch that awaits no approval is not changed. It is for approvers, who may not cancel other
batches.`)
}

func (p *program) batchApprove(ctx context.Context, name string, f *actFlags) error {
	by, to, err := p.forAct(ctx, f.why, "batch approve")
	if err != nil {
		return err
	}
	defer to.Close()
	q := remote.ApproveOf{Name: name, At: remote.At{Gateways: f.gateways}, Actor: by, DryRun: true}
	d, err := remote.ApproveBatch.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	var text strings.Builder
	var all job.Totals
	for _, a := range d.Gateways {
		approvalText(&text, a)
		all.Add(a.Waiting)
	}
	if f.consent.Yes && !p.JSON() {
		p.remark("%s", strings.TrimSuffix(text.String(), "\n"))
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, fmt.Sprintf("%sApprove batch %q, %s that wait", text.String(), name, all))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun, q.Token = false, d.Token
		if d, err = remote.ApproveBatch.Do(ctx, to, q, remote.Out[remote.BatchStep]{}); err != nil {
			return err
		}
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	for _, a := range d.Gateways {
		if d.Done {
			fmt.Fprintf(p.Tell(), "%s: approved batch %q: %s go in again\n", a.Gateway, d.Batch, a.Released)
		}
	}
	p.remarkDryRun(decision)
	return nil
}

// approvalText describes a batch at one gateway for an approver.
func approvalText(to *strings.Builder, a desk.BatchApproval) {
	fmt.Fprintf(to, "%s: %s, of which %s wait: %s\n", a.Gateway, a.Totals, job.JobsText(a.Waiting.Jobs), a.Why)
	if a.Called.Jobs > 0 {
		fmt.Fprintf(to, "%s: %s called or over already\n", a.Gateway, a.Called)
	}
	if who := a.BroughtText(); who != "" {
		fmt.Fprintf(to, "%s: brought in by %s\n", a.Gateway, who)
	}
	for _, j := range a.Largest {
		fmt.Fprintf(to, "%s: job %s is %s\n", a.Gateway, j.ID, j.Money())
	}
	if a.Repeats != nil {
		fmt.Fprintf(to, "%s: %s\n", a.Gateway, a.Repeats.Text())
	}
}
