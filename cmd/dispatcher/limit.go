package main

import (
	"context"
	"fmt"
	"math/big"
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

func brakeCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "brake", Short: "Show and lift a gateway's brakes of money",
		Long: `Brakes bound the money that a gateway's calls move in any window. They are configured in the file. If no
limit has room for the next job, the gateway waits until there is room.`,
		Example: "  dispatcher brake show -g stripe\n  dispatcher brake lift -g stripe --for 2h --why \"month's end, agreed with finance\"",
	}
	cmd.AddCommand(brakeShow(p), brakeLift(p))
	return cmd
}

func brakeShow(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "show [-g GATEWAY]...", Short: "Show the money in each window, and what waits for room",
		Example: "  dispatcher brake show\n  dispatcher brake show -g stripe -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := ask(cmd.Context(), p, remote.Brakes, remote.At{Gateways: names})
			if err != nil {
				return err
			}
			for _, now := range v.Gateways {
				if err := p.showBrakes(now); err != nil {
					return err
				}
			}
			return nil
		},
	}
	gatewaysFlag(cmd, &names, "show this `GATEWAY` only; repeatable (default: all of the file)")
	return cmd
}

func brakeLift(p *program) *cobra.Command {
	var names []string
	var of remote.LiftOf
	var why string
	cmd := &cobra.Command{
		Use: "lift -g GATEWAY --for DURATION --why TEXT", Short: "Suspend the limits of money for a time",
		Long: `Lift suspends the limits of money, on every process at once, for the given time. Calls made meanwhile count
once the limits are in force again. Calls above a "single" stay forbidden, and parked jobs stay parked.
First find out why the gateway waits: a file may have been sent twice.

With --lost, limits no longer wait for amounts that Redis has lost. First ask the gateway how much was called.`,
		Example: `  dispatcher brake lift -g stripe --for 2h --why "month's end, agreed with finance"
  dispatcher brake lift -g stripe --for 0 --why "through"
  dispatcher brake lift -g stripe --for 0 --lost --why "their console counts EUR 12000 today"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := desk.NeedWhy(why, "brake lift"); err != nil {
				return err
			}
			return eachNamed(cmd.Context(), p, names, remote.LiftBrakes, func(name string) remote.LiftOf {
				of.GatewayAct = steering(name, why)
				return of
			}, p.showLifted)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` whose brakes are lifted; repeatable")
	cmd.Flags().StringVar(&of.For, "for", "", "for this `DURATION` from now on, at most 7d; 0: the limits are in force at once")
	cmd.Flags().BoolVar(&of.Lost, "lost", false, "no longer wait for amounts that Redis has lost")
	whyFlag(cmd, &why)
	return cmd
}

// showLifted shows the brakes, and fails if the act became a request.
func (p *program) showLifted(v desk.Brakes) error {
	if err := p.showBrakes(v); err != nil || v.Request == nil {
		return err
	}
	return (&desk.Awaits{Request: *v.Request}).Unwrap()
}

func (p *program) showBrakes(v desk.Brakes) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	text := ""
	say := func(format string, args ...any) { text += v.Gateway + ": " + fmt.Sprintf(format, args...) + "\n" }
	for _, l := range v.Limits {
		say("%s: %s called", l.Limit, job.Money{Minor: big.NewInt(l.Called), Currency: l.Currency}.Plain())
		if l.UnknownUntil != nil {
			say("%s: until %s nobody knows what was called before Redis lost its data (brake lift --lost)", l.Limit, job.Moment(*l.UnknownUntil))
		}
	}
	for _, most := range v.Single {
		say("a call takes %s at most", most)
	}
	if v.RefuseUnknown {
		say("no call whose money can't be read, or whose currency no brake names")
	}
	if text == "" {
		say("no brakes")
	}
	if v.WaitsSince != nil {
		say("a job waits since %s for %s, until %s at the latest", job.Moment(*v.WaitsSince), v.Why, job.Moment(*v.WaitsUntil))
	}
	if v.LiftedUntil != nil {
		say("limits of money are lifted until %s, by %s at %s: %s", job.Moment(*v.LiftedUntil), v.LiftedBy, job.Moment(*v.LiftedAt), v.LiftedWhy)
	}
	_, err := fmt.Fprint(p.Tell(), text)
	return err
}
