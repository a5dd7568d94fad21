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

func limitCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit", Short: "Show and change a gateway's limits while it runs",
		Long: `Limit changes the leak rate on every process within a second, and also admission's if the file has no
admission.limits. Live limits are stored in Redis and override the file until they are reset.`,
		Example: "  dispatcher limit show -g stripe\n  dispatcher limit set -g stripe 50/s 2000/m\n  dispatcher limit reset -g stripe",
	}
	cmd.AddCommand(limitShow(p), limitSet(p), limitReset(p), limitForgive(p))
	return cmd
}

func limitShow(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "show [-g GATEWAY]...", Short: "Show the limits in force",
		Example: "  dispatcher limit show\n  dispatcher limit show -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.limits(cmd.Context(), names)
		},
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func limitSet(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "set -g GATEWAY LIMIT...", Short: "Replace a gateway's limits, live",
		Example: "  dispatcher limit set -g stripe 50/s\n  dispatcher limit set -g stripe 100/s 5000/m",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := make([]string, len(args))
			for i, text := range args {
				l, err := job.ParseLimit(text)
				if err != nil {
					return cli.Usage("each limit is an argument of its own: dispatcher limit set -g stripe 100/s 5000/m", "%v", err)
				}
				to[i] = l.String()
			}
			return eachNamed(cmd.Context(), p, names, remote.SetLimits, func(name string) remote.LimitsTo {
				return remote.LimitsTo{GatewayAct: steering(name, why), Limits: to}
			}, p.showLimits)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to change; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func limitReset(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "reset -g GATEWAY", Short: "Return to the file's limits",
		Example: "  dispatcher limit reset -g stripe",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return eachNamed(cmd.Context(), p, names, remote.ResetLimits, func(name string) remote.GatewayAct { return steering(name, why) }, p.showLimits)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to reset; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func limitForgive(p *program) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: "forgive -g GATEWAY --why TEXT", Short: "Lift the charge for a loss of Redis's data",
		Long: `When Redis loses data, the longer limits are charged with every call that may have been made and lost, for
one window. Forgive lifts that charge. Ask the gateway first: if those calls were made, it will see more
than its limit. Calls that Redis still has stay counted.`,
		Example: `  dispatcher limit show -g stripe
  dispatcher limit forgive -g stripe --why "their console counts 40 calls today"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := desk.NeedWhy(why, "limit forgive"); err != nil {
				return err
			}
			return eachNamed(cmd.Context(), p, names, remote.ForgiveLimits, func(name string) remote.GatewayAct { return steering(name, why) }, p.showForgiven)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to forgive; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

// eachNamed carries out an operation for each named gateway, in configured order, and shows the answers. of returns the
// request for a gateway.
func eachNamed[Q, L, A any](ctx context.Context, p *program, names []string, op *remote.Op[Q, L, A], of func(gateway string) Q, show func(A) error) error {
	if len(names) == 0 {
		return cli.Usage("name it with -g GATEWAY", "no gateway is named")
	}
	d, err := p.at(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	chosen, err := remote.Named.Ask(ctx, d, remote.At{Gateways: names})
	if err != nil {
		return err
	}
	for _, name := range chosen.Gateways {
		v, err := op.Ask(ctx, d, of(name))
		if err == nil {
			err = show(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *program) showForgiven(v desk.Forgiven) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	lines := []string{"nothing was charged"}
	for i, c := range v.Forgiven {
		lines = append(lines[:i], fmt.Sprintf("%d calls of %s forgiven", c.Units, c.Limit))
	}
	_, err := fmt.Fprintf(p.Tell(), "%s: %s\n", v.Gateway, strings.Join(lines, ", "))
	return err
}

func whyFlag(cmd *cobra.Command, why *string) {
	cmd.Flags().StringVar(why, "why", "", "the `REASON`, recorded in the trail")
}

// limits shows the limits in force.
func (p *program) limits(ctx context.Context, names []string) error {
	v, err := ask(ctx, p, remote.Limits, remote.At{Gateways: names})
	if err != nil {
		return err
	}
	for _, now := range v.Gateways {
		if err := p.showLimits(now); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) showLimits(v desk.Limits) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	from := "as in the file"
	if v.SetLive {
		from = "set live; the file says " + strings.Join(v.File, " ")
	}
	text := fmt.Sprintf("%s: %s (%s)\n", v.Gateway, v.Text(), from)
	for _, c := range v.Charged {
		text += fmt.Sprintf("%s: %d calls of %s are charged until %s, as Redis may have lost them (limit forgive)\n", v.Gateway, c.Units, c.Limit, job.Moment(*c.Until))
	}
	_, err := fmt.Fprint(p.Tell(), text)
	return err
}
