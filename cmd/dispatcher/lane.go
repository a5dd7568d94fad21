package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func laneCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "lane", Short: "Show and change a gateway's lanes while it runs",
		Long: `A lane is all jobs of a gateway with one key, such as a merchant's account. Settings of a lane are stored in
Redis, apply on every process once the command returns, and override the file until they are reset. The lane
needs no jobs. Jobs without a lane are in the lane "".`,
		Example: "  dispatcher lane list -g stripe --top 10\n  dispatcher lane set -g stripe acct_1 --limits 50/s --weight 5\n  dispatcher lane pause -g stripe acct_1",
	}
	cmd.AddCommand(laneListCommand(p), laneShowCommand(p), laneSet(p),
		laneAct(p, "reset", "Return a lane to the file's limits, weight and cap", "Reset does not end a pause: see lane resume.", remote.ResetLane),
		laneAct(p, "pause", "Stop calling the jobs of a lane", "Pause stops all processes from starting calls for the lane. Its jobs wait in order, and new ones are accepted; other lanes are\nnot affected. Calls that already had a slot, at most 100 ms ahead, are still made.", remote.PauseLane),
		laneAct(p, "resume", "Call the jobs of a paused lane again", "", remote.ResumeLane))
	return cmd
}

func laneSet(p *program) *cobra.Command {
	var names, limits []string
	var weight, most int64
	var why string
	cmd := &cobra.Command{
		Use: "set -g GATEWAY LANE [--limits LIMIT,...] [--weight N] [--max-in-flight N]", Short: "Set limits, a weight and a cap of one lane, live",
		Long: `Set overrides the file's settings for one lane, on every process once the command returns. Settings that are
not given stay unchanged. Calls that already had a slot, at most 100 ms ahead, are still made, and count.`,
		Example: "  dispatcher lane set -g stripe acct_1 --limits 50/s,2000/m\n  dispatcher lane set -g stripe acct_1 --weight 5 --max-in-flight 2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := remote.LaneTo{Limits: limits, Weight: weight}
			if cmd.Flags().Changed("max-in-flight") {
				to.MaxInFlight = &most
			}
			if len(limits) == 0 && !cmd.Flags().Changed("weight") && to.MaxInFlight == nil {
				return cli.Usage("say --limits 50/s, --weight 5 or --max-in-flight 2, or several of them", "nothing is named that the lane is to have")
			}
			for i, text := range limits {
				l, err := job.ParseLimit(text)
				if err != nil {
					return cli.Usage("limits have a comma between: dispatcher lane set -g stripe acct_1 --limits 50/s,2000/m", "%v", err)
				}
				limits[i] = l.String()
			}
			if weight < 1 && cmd.Flags().Changed("weight") {
				return cli.Usage("give one from 1 to 1000", "a lane can't have a weight of %d", weight)
			}
			if most < 0 {
				return cli.Usage("give 0 for any number; lane reset gives the lane what all lanes have", "a lane can't have a cap of %d calls in flight", most)
			}
			return p.changeLane(cmd.Context(), names, func(ctx context.Context, d remote.Desk, act remote.GatewayAct) (desk.LaneSettings, error) {
				to.LaneOf = remote.LaneOf{GatewayAct: act, Lane: args[0]}
				return remote.SetLane.Ask(ctx, d, to)
			}, why)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the lane; repeatable")
	cmd.Flags().StringSliceVar(&limits, "limits", nil, "the `LIMIT`s of the lane, in every rolling window; repeatable")
	cmd.Flags().Int64Var(&most, "max-in-flight", 0, "at most `N` calls of it in flight, over all processes; 0: no cap")
	cmd.Flags().Int64Var(&weight, "weight", 0, "`N` calls for each call of a lane with weight 1, while both have jobs; 1 to 1000")
	whyFlag(cmd, &why)
	return cmd
}

func laneAct(p *program, verb, short, long string, op *remote.SteeringLane) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: verb + " -g GATEWAY LANE", Short: short, Long: long,
		Example: fmt.Sprintf("  dispatcher lane %s -g stripe acct_1", verb),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeLane(cmd.Context(), names, func(ctx context.Context, d remote.Desk, act remote.GatewayAct) (desk.LaneSettings, error) {
				return op.Ask(ctx, d, remote.LaneOf{GatewayAct: act, Lane: args[0]})
			}, why)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the lane; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

// changeLane changes a lane of each named gateway, and shows its settings afterwards.
func (p *program) changeLane(ctx context.Context, names []string, do func(context.Context, remote.Desk, remote.GatewayAct) (desk.LaneSettings, error), why string) error {
	return p.eachNamed(ctx, names, func(d remote.Desk, name string) error {
		v, err := do(ctx, d, steering(name, why))
		if err != nil {
			return err
		}
		return p.showLane(v)
	})
}

func (p *program) showLane(v desk.LaneSettings) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	from := "as in the file"
	if v.SetLive {
		from = "set live; the file says " + cmp.Or(strings.Join(v.File, " "), "no limits") + fmt.Sprintf(", weight %d", v.FileWeight)
		if v.FileMaxInFlight > 0 {
			from += fmt.Sprintf(", %d in flight at most", v.FileMaxInFlight)
		}
	}
	_, err := fmt.Fprintf(p.Tell(), "%s %s: %s (%s)\n", v.Gateway, v.Name(), v.Text(), from)
	return err
}

func routeCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "route", Short: "Pause and resume one route of a gateway",
		Long: `A route is one kind of request to a gateway, with its own limits. A pause is stored in Redis and applies on
every process once the command returns. It requires lanes, or a route with limits: otherwise all jobs are in
one line.`,
		Example: "  dispatcher route pause -g stripe refund\n  dispatcher route resume -g stripe refund",
	}
	cmd.AddCommand(routeAct(p, "pause", "Stop calling the jobs of a route", "Pause stops all processes from starting calls on the route. Its jobs wait in order, and new ones are accepted; other routes\nare not affected. Calls that already had a slot, at most 100 ms ahead, are still made.", remote.PauseRoute),
		routeAct(p, "resume", "Call the jobs of a paused route again", "", remote.ResumeRoute))
	return cmd
}

func routeAct(p *program, verb, short, long string, op *remote.SteeringRoute) *cobra.Command {
	var names []string
	var why string
	cmd := &cobra.Command{
		Use: verb + " -g GATEWAY ROUTE", Short: short, Long: long,
		Example: fmt.Sprintf("  dispatcher route %s -g stripe refund", verb),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return p.eachNamed(ctx, names, func(d remote.Desk, name string) error {
				v, err := op.Ask(ctx, d, remote.RouteOf{GatewayAct: steering(name, why), Route: args[0]})
				if err != nil {
					return err
				}
				if p.JSON() {
					return cli.WriteJSON(p.Out, v)
				}
				_, err = fmt.Fprintf(p.Out, "%s %s %s\n", v.Gateway, v.Route, v.Done)
				return err
			})
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the route; repeatable")
	whyFlag(cmd, &why)
	return cmd
}
