package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func batchApproveCommand(p *program) *cobra.Command {
	f := &batchActFlags{}
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
	gatewaysFlag(cmd, &f.gateways, "only its jobs at this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, for the trail")
	consentFlags(cmd, &f.consent)
	return cmd
}

func batchRejectCommand(p *program) *cobra.Command {
	return p.batchActCommand(desk.RejectBatch, remote.RejectBatch, "Reject a batch that awaits an approval",
		`Reject parks the jobs of a batch that awaits an approval as cancelled, like batch cancel: no further job is
called. A batch that awaits no approval is not changed. It is for approvers, who may not cancel other
batches.`)
}

func (p *program) batchApprove(ctx context.Context, name string, f *batchActFlags) error {
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
	if decision == cli.DryRun {
		p.remark("nothing was done: add --yes to do it")
	}
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
