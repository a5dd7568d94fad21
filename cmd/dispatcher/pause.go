package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
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
			return p.steer(cmd.Context(), names, why, "paused", func(g *desk.Gateway, ctx context.Context, by desk.By) error { return g.Pause(ctx, by, why) })
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to pause; repeatable")
	cmd.Flags().StringVar(&why, "why", "by an operator", "the `REASON`, shown by status and written down")
	return cmd
}

const resumed = "resumed"

func resumeCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "resume -g GATEWAY", Short: "Call a paused gateway again",
		Example: "  dispatcher resume -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.steer(cmd.Context(), names, why, resumed, (*desk.Gateway).Resume)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to resume; repeatable")
	cmd.Flags().StringVar(&why, "why", "", "the `REASON`, written down")
	return cmd
}

// steer does something to each of the gateways, and says what was done.
func (p *program) steer(ctx context.Context, names []string, why, done string, act func(*desk.Gateway, context.Context, desk.By) error) error {
	if len(names) == 0 {
		return cli.Usage("name it with -g GATEWAY", "no gateway is named")
	}
	s, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	for _, g := range s.desk.Gateways {
		if err := act(g, ctx, desk.By{Who: steersman(), Why: why}); err != nil {
			return err
		}
		if err := p.steered(ctx, g, done); err != nil {
			return err
		}
	}
	return nil
}

// steered says what was done, and of a gateway that was resumed what else keeps its calls back.
func (p *program) steered(ctx context.Context, g *desk.Gateway, done string) error {
	var err error
	if p.JSON() {
		err = cli.WriteJSON(p.Out, map[string]string{"gateway": g.Name, "done": done})
	} else if _, err = fmt.Fprintf(p.Out, "%s %s\n", g.Name, done); err != nil {
		err = fmt.Errorf("writing the result: %w", err)
	}
	if err != nil || done != resumed {
		return err
	}
	v, err := g.Status(ctx)
	switch h := v.Glance.Hold; {
	case err != nil: // it is resumed all the same
	case h.Paused:
		p.remark("%s is not called all the same: %s", g.Name, h.PauseWhy)
	case v.HeldUntil != nil:
		p.remark("%s is held until %s: %s; a hold ends by itself", g.Name, job.Moment(*v.HeldUntil), h.Reason)
	}
	return nil
}
