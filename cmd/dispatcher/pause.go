package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/bucket"
	"spillway/internal/cli"
	"spillway/internal/config"
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
			return p.eachPacer(cmd.Context(), names, turn{"pause", "paused", why}, func(ctx context.Context, b *bucket.Pacer) error { return b.Pause(ctx, why) })
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to pause; repeatable")
	cmd.Flags().StringVar(&why, "why", "by an operator", "the `REASON`, shown by status and written down")
	return cmd
}

// turn is what is done to a gateway: as it stands in the trail, when it is done, and why.
type turn struct{ what, done, why string }

func resumeCommand(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "resume -g GATEWAY", Short: "Call a paused gateway again",
		Example: "  dispatcher resume -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.eachPacer(cmd.Context(), names, turn{"resume", "resumed", why}, func(ctx context.Context, b *bucket.Pacer) error { return b.Resume(ctx) })
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to resume; repeatable")
	cmd.Flags().StringVar(&why, "why", "", "the `REASON`, written down")
	return cmd
}

func (p *program) eachPacer(ctx context.Context, names []string, to turn, act func(context.Context, *bucket.Pacer) error) error {
	if len(names) == 0 {
		return cli.Usage("name it with -g GATEWAY", "no gateway is named")
	}
	s, chosen, err := p.openAt(ctx, names)
	if err != nil {
		return err
	}
	defer s.close()
	for _, g := range chosen {
		pacer, err := dispatch.Pacer(s.db.Client, g, bucket.NewMetrics(nil))
		if err != nil {
			return err
		}
		err = steer(ctx, s.db.Client, g.Name, to.what, to.why, func(ctx context.Context) error { return act(ctx, pacer) })
		pacer.Close(ctx)
		if err != nil {
			return err
		}
		if err := p.steered(ctx, s, g, to); err != nil {
			return err
		}
	}
	return nil
}

// steered says what was done, and of a gateway that was resumed what else keeps its calls back.
func (p *program) steered(ctx context.Context, s *session, g config.Gateway, to turn) error {
	var err error
	if p.JSON() {
		err = cli.WriteJSON(p.Out, map[string]string{"gateway": g.Name, "done": to.done})
	} else if _, err = fmt.Fprintf(p.Out, "%s %s\n", g.Name, to.done); err != nil {
		err = fmt.Errorf("writing the result: %w", err)
	}
	if err != nil || to.what != "resume" {
		return err
	}
	v, err := dispatch.Look(ctx, s.db.Client, g)
	switch h := v.Hold; {
	case err != nil: // it is resumed all the same
	case h.Paused:
		p.remark("%s is not called all the same: %s", g.Name, h.PauseWhy)
	case h.HeldUntil.After(v.Now):
		p.remark("%s is held until %s: %s; a hold ends by itself", g.Name, h.HeldUntil.UTC().Format(time.RFC3339), h.Reason)
	}
	return nil
}
