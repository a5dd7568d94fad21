package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/remote"
)

func pauseCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "pause -g GATEWAY", Short: "Stop calling a gateway until it is resumed",
		Long:    "Pause stops all processes from starting calls to the gateway; calls in flight finish, and jobs are still accepted.",
		Example: `  dispatcher pause -g stripe --why "maintenance window"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.steer(cmd.Context(), names, why, remote.Pause)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to pause; repeatable")
	cmd.Flags().StringVar(&why, "why", "by an operator", "the `REASON`, shown by status and recorded in the trail")
	return cmd
}

func resumeCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "resume -g GATEWAY", Short: "Call a paused gateway again",
		Example: "  dispatcher resume -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.steer(cmd.Context(), names, why, remote.Resume)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to resume; repeatable")
	cmd.Flags().StringVar(&why, "why", "", "the `REASON`, recorded in the trail")
	return cmd
}

func (p *program) steer(ctx context.Context, names []string, why string, op *remote.Steering) error {
	return eachNamed(ctx, p, names, op, func(name string) remote.SteerOf { return remote.SteerOf{GatewayAct: steering(name, why)} }, p.steered)
}

func (p *program) steered(v remote.Steered) error {
	var err error
	if p.JSON() {
		err = cli.WriteJSON(p.Out, map[string]string{"gateway": v.Gateway, "done": v.Done})
	} else if _, err = fmt.Fprintf(p.Out, "%s %s\n", v.Gateway, v.Done); err != nil {
		err = fmt.Errorf("writing the result: %w", err)
	}
	if err == nil && v.Remark != "" {
		p.remark("%s", v.Remark)
	}
	return err
}
