package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
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
