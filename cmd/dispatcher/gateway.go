package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func gatewayCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "List, rename or forget the gateways that Redis knows",
		Long: `Gateway manages the gateways that Redis knows, whether or not they are in the file. A gateway's jobs, ids
and totals belong to its name: if the name in the file changes, jobs under the old name are not called, and
their ids are unknown to the new one.`,
		Example: "  dispatcher gateway list\n  dispatcher gateway rename up stripe-eu --why 'one name for all of the EU'",
		Args:    noArgs,
	}
	cmd.AddCommand(gatewayListCommand(p), gatewayRenameCommand(p), gatewayForgetCommand(p))
	return cmd
}

func gatewayListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all gateways that the file has or that ever had jobs",
		Long: `List shows each gateway in the file, and each that ever had a job: how many jobs wait and are parked, their
money, how many are done, and the last sign of life of a dispatcher that serves it. The money of waiting
jobs is known only if they have a batch.`,
		Example: "  dispatcher gateway list\n  dispatcher gateway list -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.gatewayList(cmd.Context()) },
	}
}

func (p *program) gatewayList(ctx context.Context) error {
	v, err := ask(ctx, p, remote.Gateways, remote.None{})
	if err != nil {
		return err
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	all := v.Gateways
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "IN FILE", "WAITING", "PARKED", "DONE", "MONEY", "LAST SERVED", "REMARK")
	for _, k := range all {
		var last time.Time
		if k.LastServed != nil {
			last = *k.LastServed
		}
		t.Row(cli.Uncut(k.Gateway), map[bool]string{true: "yes", false: "no"}[k.InFile], k.Waiting, cli.Uncut(p.parkedText(k.Parked)), k.Done, t.Money(k.Totals), last, cli.Uncut(k.Remark()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, k := range all {
		if !k.InFile && k.Jobs > 0 {
			p.remarkUnlisted("", []desk.Unlisted{k.Unlisted})
		}
	}
	return nil
}

// moveFlags are the flags of "gateway rename" and "gateway forget".
type moveFlags struct {
	old, to string // empty to: forget it
	why     string
	consent cli.Consent
}

func (f *moveFlags) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail; required")
	consentFlags(cmd, &f.consent)
}

func gatewayRenameCommand(p *program) *cobra.Command {
	f := &moveFlags{}
	cmd := &cobra.Command{
		Use: "rename OLD NEW --why TEXT", Short: "Move a gateway's data in Redis to its new name in the file",
		Long: `Rename moves all data of OLD in Redis to the name NEW: its jobs with their ids, its batches, totals, live
limits, and its trail. NEW must be in the file and have had no job yet; OLD must not be in the file. Ids
stay known, and idempotency keys stay the same: they consist of the job's id after request.key.prefix. If
NEW has another URL, method or prefix, it says how many jobs were called with the old ones: these are parked
as unknown_outcome, and not called.

No dispatcher may serve either gateway meanwhile: stop each run that does, and wait 15 s. No call may be in
flight. Until it has finished, neither name accepts jobs. If it is killed, run it again to continue. It is
not possible in a Redis Cluster, or with encrypted payloads: then keep both names in the file until the jobs
of the old one are done.

It asks on a terminal; elsewhere it is a dry run, unless --yes. The entry is in "dlq history" of NEW.`,
		Example: "  dispatcher gateway rename up stripe-eu --why 'one name for all of the EU' --yes",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.old, f.to = args[0], args[1]
			return p.move(cmd.Context(), f)
		},
	}
	f.declare(cmd)
	return cmd
}

func gatewayForgetCommand(p *program) *cobra.Command {
	f := &moveFlags{}
	cmd := &cobra.Command{
		Use: "forget NAME --why TEXT", Short: "Delete all data of a gateway in Redis",
		Long: `Forget deletes all data of NAME in Redis: its waiting and parked jobs, their ids, batches, totals and trail.
It shows how many jobs there are and their money. NAME must not be in the file, and no dispatcher may serve
it. It refuses while jobs may have been charged: settle those first (dlq resolve). The deletion can't be
undone.

It asks on a terminal; elsewhere it is a dry run, unless --yes. "dlq history" keeps who did it, when, why,
and what was deleted. If it is killed, run it again to continue.`,
		Example: "  dispatcher gateway forget sandbox --why 'trial is over' --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.old = args[0]
			return p.move(cmd.Context(), f)
		},
	}
	f.declare(cmd)
	return cmd
}

func (f *moveFlags) verb() string {
	if f.to == "" {
		return "forget"
	}
	return "rename"
}

// move finds out what it would do, asks for confirmation, and does it.
func (p *program) move(ctx context.Context, f *moveFlags) error {
	by, to, err := p.forAct(ctx, f.why, f.verb())
	if err != nil {
		return err
	}
	defer to.Close()
	op := remote.Rename
	if f.to == "" {
		op = remote.Forget
	}
	q := remote.MoveOf{GatewayAct: remote.GatewayAct{Gateway: f.old, Actor: by}, To: f.to, DryRun: true}
	d, err := op.Ask(ctx, to, q)
	if err != nil {
		return err
	}
	if d.Otherwise > 0 {
		p.remark("%s went out with another URL, method, encoding or request.key.prefix than %s has: they will be parked as unknown_outcome, and not called. Give %[2]s those of %[3]s, "+
			"and they are called again", job.JobsText(d.Otherwise), f.to, f.old)
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, capital(d.Text))
	if err != nil {
		return err
	}
	if decision == cli.Go {
		q.DryRun = false
		if d, err = inSteps(ctx, p, to, op, q, cli.ProgressParams{What: d.What + ", keys"}, func(s remote.MoveStep) int64 { return s.Keys }); err != nil {
			return err
		}
	}
	return p.writeMove(d, decision)
}

func (p *program) writeMove(d remote.Moved, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d.Departure)
	}
	line := map[cli.Decision]string{cli.Go: "done: ", cli.DryRun: "would "}[decision] + d.Text
	return p.tellDone(line, decision)
}
