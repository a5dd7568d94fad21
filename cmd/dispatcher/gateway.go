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
		Long: `Gateway is about the gateways that Redis knows, whether or not the file has them. A gateway's jobs, ids and books belong to
its name: with another name in the file nobody calls what waits under the old one, and nobody knows its ids.`,
		Example: "  dispatcher gateway list\n  dispatcher gateway rename up stripe-eu --why 'one name for all of the EU'",
		Args:    noArgs,
	}
	cmd.AddCommand(gatewayListCommand(p), gatewayRenameCommand(p), gatewayForgetCommand(p))
	return cmd
}

func gatewayListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all gateways that the file has or that ever had jobs",
		Long: `List shows each gateway that the file has, and each that ever had a job: how many jobs wait and are parked, what is known of their
money, how many are done, and when a dispatcher that serves it last gave a sign of life. The money of jobs that wait is known
where they have a batch.`,
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
