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
	"spillway/internal/remote"
)

func approvalCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approval", Short: "Show, approve and reject requests for a second person's approval",
		Long: `The key "approval" of a gateway says which acts need a second person: batches above a sum (batch_over),
replays of many jobs (replay_over), discards, and lifting brakes of money. Such an act becomes a request,
which somebody else approves or rejects within 24 hours. To approve a batch, use "batch approve".`,
		Example: "  dispatcher approval list\n  dispatcher approval approve k3vq7f2x4a --why \"agreed, ticket 4711\" --server https://dispatcher.example:8080",
	}
	cmd.AddCommand(approvalList(p), approvalApprove(p), approvalReject(p))
	return cmd
}

func approvalList(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "list [-g GATEWAY]...", Short: "Show what awaits an approval",
		Long:    "List shows the batches that await an approval, and the requested acts: who requested them, why, and the number of jobs and the money affected.",
		Example: "  dispatcher approval list\n  dispatcher approval list -g stripe -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.approvals(cmd.Context(), names) },
	}
	gatewaysFlag(cmd, &names, "only of this `GATEWAY`; repeatable (default: all of the file)")
	return cmd
}

func (p *program) approvals(ctx context.Context, names []string) error {
	v, err := ask(ctx, p, remote.Approvals, remote.At{Gateways: names})
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	if len(v.Batches)+len(v.Requests) == 0 {
		p.remark("nothing awaits an approval")
		return nil
	}
	list := p.newPaged("ID", "GATEWAY", "WHAT", "JOBS", "MONEY", "ASKED BY", "SINCE", "UNTIL", "FILTER", "WHY")
	for _, b := range v.Batches {
		if err := list.row("-", cli.Uncut(b.Gateway), cli.Uncut("batch "+b.Batch), b.Jobs, list.table.Money(b.Totals), "-", b.Since, time.Time{}, "", cli.Uncut(b.Why)); err != nil {
			return err
		}
	}
	for _, r := range v.Requests {
		what := r.What
		if !r.Open() {
			what += " (" + r.State + " by " + r.DecidedBy + ")"
		}
		if err := list.row(cli.Uncut(r.ID), cli.Uncut(r.Gateway), cli.Uncut(what), r.Jobs, list.table.Money(r.Totals), cli.Uncut(r.Asker()), r.Asked, r.Until, cli.Uncut(r.Filter), cli.Uncut(r.Why)); err != nil {
			return err
		}
	}
	return list.flush()
}

func decideCommand(use, short, long, example string, run func(context.Context, string, *actFlags) error) *cobra.Command {
	f := &actFlags{}
	cmd := &cobra.Command{Use: use + " ID --why TEXT [-g GATEWAY]...", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0], f) }}
	f.declare(cmd, "only a request of this `GATEWAY`; repeatable (default: all of the file)", "the `REASON`, for the trail")
	return cmd
}

func approvalApprove(p *program) *cobra.Command {
	return decideCommand("approve", "Approve and perform another person's request", `Approve performs a requested act with the same filter, if it still selects the same jobs. It shows the jobs, and asks.

You can't approve your own request. So this goes through a dispatcher (--server), with a named token and the
role approver: with Redis's password alone, anybody could type any name. If it is interrupted, a dispatcher
continues it.`,
		`  dispatcher approval approve k3vq7f2x4a --why "agreed, ticket 4711" --server https://dispatcher.example:8080`, p.approveRequest)
}

func approvalReject(p *program) *cobra.Command {
	return decideCommand("reject", "Reject a request", "Reject ends a request: nothing is done. With the role approver, you can withdraw your own request this way.",
		`  dispatcher approval reject k3vq7f2x4a --why "look them up first" --server https://dispatcher.example:8080`, p.rejectRequest)
}

// decision is a request that was shown, and the desk on which it is decided.
type decision struct {
	remote.DecideOf
	at     remote.Desk
	shown  desk.Request
	answer cli.Decision
}

// decide shows a request and asks for confirmation. The caller closes the desk.
func (p *program) decide(ctx context.Context, id, verb string, f *actFlags) (d decision, err error) {
	by, to, err := p.forAct(ctx, f.why, "approval "+verb)
	if err != nil {
		return d, err
	}
	d = decision{DecideOf: remote.DecideOf{ID: id, At: remote.At{Gateways: f.gateways}, Actor: by}, at: to}
	all, err := remote.Approvals.Ask(ctx, to, d.At)
	if err != nil {
		return d, err
	}
	i := slices.IndexFunc(all.Requests, func(r desk.Request) bool { return r.ID == id })
	if i < 0 { // it is completed or unknown: the other side says which
		d.answer = cli.Go
		return d, nil
	}
	d.shown = all.Requests[i]
	text := requestText(d.shown)
	if f.consent.Yes && !p.JSON() {
		p.remark("%s", strings.TrimSuffix(text, "\n"))
	}
	d.answer, err = cli.Confirm(ctx, p.Streams, f.consent, text+capital(verb)+" "+d.shown.Text())
	if d.answer == cli.DryRun && err == nil && !p.JSON() {
		p.remark("%s", strings.TrimSuffix(text, "\n"))
	}
	return d, err
}

// requestText describes a request for an approver.
func requestText(r desk.Request) string {
	text := fmt.Sprintf("%s: %s asked for it at %s", r.Text(), r.Asker(), job.Moment(r.Asked))
	if r.Why != "" {
		text += ": " + r.Why
	}
	if r.Filter != "" {
		text += "\nthese flags choose the jobs: " + r.Filter
	}
	return text + "\n"
}

func (p *program) approveRequest(ctx context.Context, id string, f *actFlags) error {
	d, err := p.decide(ctx, id, "approve", f)
	if d.at != nil {
		defer d.at.Close()
	}
	if err != nil || d.answer != cli.Go {
		return p.undecided(d, err)
	}
	progress := cli.NewProgress(p.Streams, cli.ProgressParams{What: "approve", Total: d.shown.Jobs, Quiet: p.Quiet})
	v, err := remote.ApproveRequest.Do(ctx, d.at, d.DecideOf, remote.Out[remote.ClearedPart]{Line: func(part remote.ClearedPart) error {
		progress.Set(int64(part.Taken + part.Gone))
		return nil
	}})
	progress.Close()
	if err != nil {
		return err
	}
	fault := v.Problem
	if v.Part != nil {
		fault = v.Part.Problem
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v)
	} else {
		_, err = fmt.Fprintf(p.Tell(), "%s\n", decidedText(v))
	}
	if problem := fault.Err(); problem != nil {
		return problem
	}
	return err
}

// decidedText describes the result of an approval.
func decidedText(v remote.Decided) string {
	text := fmt.Sprintf("approved request %s: %s", v.Request.ID, v.Request.Text())
	if v.Part == nil {
		return text
	}
	text += fmt.Sprintf("; done for %s", v.Part.Took())
	if v.Part.HeldBack > 0 {
		text += fmt.Sprintf(", %d held back", v.Part.HeldBack)
	}
	if v.Part.Gone > 0 {
		text += fmt.Sprintf(", %d no longer parked", v.Part.Gone)
	}
	return text
}

func (p *program) rejectRequest(ctx context.Context, id string, f *actFlags) error {
	d, err := p.decide(ctx, id, "reject", f)
	if d.at != nil {
		defer d.at.Close()
	}
	if err != nil || d.answer != cli.Go {
		return p.undecided(d, err)
	}
	r, err := remote.RejectRequest.Ask(ctx, d.at, d.DecideOf)
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, r)
	}
	_, err = fmt.Fprintf(p.Tell(), "rejected request %s: %s\n", r.ID, r.Text())
	return err
}

// undecided reports that nothing was done.
func (p *program) undecided(d decision, err error) error {
	if err == nil && p.JSON() {
		err = cli.WriteJSON(p.Out, remote.Decided{Request: d.shown})
	}
	if err == nil {
		p.remarkDryRun(d.answer)
	}
	return err
}
