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
			to := make([]job.Limit, len(args))
			for i, text := range args {
				var err error
				if to[i], err = job.ParseLimit(text); err != nil {
					return cli.Usage("each limit is an argument of its own: dispatcher limit set -g stripe 100/s 5000/m", "%v", err)
				}
			}
			return p.changeLimits(cmd.Context(), names, to, why)
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.changeLimits(cmd.Context(), names, nil, why) },
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
			return p.forgive(cmd.Context(), names, desk.By{Who: steersman(), Why: why})
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` to forgive; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func (p *program) forgive(ctx context.Context, names []string, by desk.By) error {
	return p.eachNamed(ctx, names, func(d remote.Desk, name string) error {
		v, err := remote.ForgiveLimits.Ask(ctx, d, remote.GatewayAct{Gateway: name, Actor: remote.ActorOf(by)})
		if err != nil {
			return err
		}
		return p.showForgiven(v)
	})
}

// eachNamed calls do for each named gateway, in configured order.
func (p *program) eachNamed(ctx context.Context, names []string, do func(remote.Desk, string) error) error {
	if len(names) == 0 {
		return noGateway()
	}
	d, err := p.at(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	chosen, err := inOrder(ctx, d, names)
	if err != nil {
		return err
	}
	for _, name := range chosen {
		if err := do(d, name); err != nil {
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

func noGateway() error { return cli.Usage("name it with -g GATEWAY", "no gateway is named") }

func whyFlag(cmd *cobra.Command, why *string) {
	cmd.Flags().StringVar(why, "why", "", "the `REASON`, recorded in the trail")
}

// changeLimits replaces limits, or restores the configured ones if to is empty, and shows the limits in force.
func (p *program) changeLimits(ctx context.Context, names []string, to []job.Limit, why string) error {
	texts := make([]string, len(to))
	for i, l := range to {
		texts[i] = l.String()
	}
	return p.eachNamed(ctx, names, func(d remote.Desk, name string) (err error) {
		var now desk.Limits
		act := steering(name, why)
		if len(texts) > 0 {
			now, err = remote.SetLimits.Ask(ctx, d, remote.LimitsTo{GatewayAct: act, Limits: texts})
		} else {
			now, err = remote.ResetLimits.Ask(ctx, d, act)
		}
		if err != nil {
			return err
		}
		return p.showLimits(now)
	})
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
