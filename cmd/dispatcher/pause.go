package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/dispatch"
)

func pauseCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "pause -g GATEWAY", Short: "Call a gateway no more until it is resumed",
		Long:    "Pause lets no process start a call to the gateway; calls under way finish, and jobs keep coming in.",
		Example: `  dispatcher pause -g stripe --why "maintenance window"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.eachPacer(cmd.Context(), names, "paused", func(ctx context.Context, b *bucket.Pacer) error { return b.Pause(ctx, why) })
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to pause; repeatable")
	cmd.Flags().StringVar(&why, "why", "by an operator", "the `REASON`, shown by status")
	return cmd
}

func resumeCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "resume -g GATEWAY", Short: "Call a paused gateway again",
		Example: "  dispatcher resume -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.eachPacer(cmd.Context(), names, "resumed", func(ctx context.Context, b *bucket.Pacer) error { return b.Resume(ctx) })
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to resume; repeatable")
	return cmd
}

func (p *program) eachPacer(ctx context.Context, names []string, done string, act func(context.Context, *bucket.Pacer) error) error {
	if len(names) == 0 {
		return cli.Usage("name it with -g GATEWAY", "no gateway is named")
	}
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	chosen, err := gateways(s.cfg, names)
	if err != nil {
		return err
	}
	for _, g := range chosen {
		pacer, err := dispatch.Pacer(s.db.Client, g, bucket.NewMetrics(nil))
		if err != nil {
			return err
		}
		err = act(ctx, pacer)
		pacer.Close(ctx)
		if err != nil {
			return dispatch.Coded(err)
		}
		if p.JSON() {
			if err := cli.WriteJSON(p.Out, map[string]string{"gateway": g.Name, "done": done}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(p.Out, "%s %s\n", g.Name, done)
	}
	return nil
}
