package main

import (
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

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
