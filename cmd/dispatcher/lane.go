package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

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
			return eachNamed(cmd.Context(), p, names, remote.SetLane, func(name string) remote.LaneTo {
				to.LaneOf = remote.LaneOf{GatewayAct: steering(name, why), Lane: args[0]}
				return to
			}, p.showLane)
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
			return eachNamed(cmd.Context(), p, names, op, func(name string) remote.LaneOf {
				return remote.LaneOf{GatewayAct: steering(name, why), Lane: args[0]}
			}, p.showLane)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the lane; repeatable")
	whyFlag(cmd, &why)
	return cmd
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
			return eachNamed(cmd.Context(), p, names, op, func(name string) remote.RouteOf {
				return remote.RouteOf{GatewayAct: steering(name, why), Route: args[0]}
			}, func(v remote.SteeredRoute) error {
				if p.JSON() {
					return cli.WriteJSON(p.Out, v)
				}
				_, err := fmt.Fprintf(p.Out, "%s %s %s\n", v.Gateway, v.Route, v.Done)
				return err
			})
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the route; repeatable")
	whyFlag(cmd, &why)
	return cmd
}

func laneListCommand(p *program) *cobra.Command {
	var names []string
	var q remote.LanesOf
	cmd := &cobra.Command{
		Use: "list -g GATEWAY", Short: "List the lanes with the most jobs in the queue",
		Long: `List shows the lanes of a gateway with the most queued jobs: how many wait and are in flight, until when a
lane is throttled because its limits have no permit or it is held, why it is held, its limits, and its
share. The share is its approximate number of calls a second while all lanes with jobs want as many as
possible. Redis does not sort lanes by jobs, so list reads all lanes with jobs, 500 at a time, at most
200,000. It says so if there are more.`,
		Example: "  dispatcher lane list -g stripe\n  dispatcher lane list -g stripe --top 100 --throttled -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("top") && (q.Top < 1 || q.Top > desk.LanesMost) {
				return cli.Usage(fmt.Sprintf("give a number from 1 to %d", desk.LanesMost), "--top %d is not a number of lanes", q.Top)
			}
			return eachNamed(cmd.Context(), p, names, remote.Lanes, func(name string) remote.LanesOf {
				q.Gateway = name
				return q
			}, p.laneTable)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the lanes; repeatable")
	cmd.Flags().IntVar(&q.Top, "top", 0, fmt.Sprintf("show `N` lanes (default: %d)", desk.LanesShown))
	cmd.Flags().BoolVar(&q.Throttled, "throttled", false, "only lanes that must wait before their next call")
	return cmd
}

func (p *program) laneTable(v desk.Lanes) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	t := cli.NewTable(p.Streams, time.Now(), "LANE", "QUEUED", "IN FLIGHT", "THROTTLED UNTIL", "HOLD", "LIMITS", "WEIGHT", "SHARE")
	for _, l := range v.Lanes {
		t.Row(cli.Uncut(l.Name()), l.Queued, inFlightText(l.InFlight), untilText(l), l.HoldReason, cli.Uncut(strings.Join(l.Limits, " ")), l.Weight, shareText(l.Share))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	p.remark("%s: lanes with jobs: %s, throttled: %s; %s in them", v.Gateway, job.CountText(v.Busy), job.CountText(v.Throttled), job.JobsText(v.Queued))
	if v.Unsorted > 0 {
		p.remark("%s: %s in the queue in no lane yet: they go there when a dispatcher calls the next one", v.Gateway, job.JobsText(v.Unsorted))
	}
	if !v.Exact {
		p.remark("%s: %s lanes were looked at, and there are more: some of those may have more jobs than these", v.Gateway, job.CountText(v.Looked))
	}
	return nil
}

func inFlightText(n *int64) string {
	if n == nil {
		return "?"
	}
	return job.CountText(*n)
}

func untilText(l desk.LaneRow) any {
	switch {
	case l.Paused:
		return "paused"
	case l.Until == nil:
		return ""
	}
	return *l.Until
}

func shareText(share *float64) string {
	if share == nil {
		return "?"
	}
	return fmt.Sprintf("%.3g/s", *share)
}

func laneShowCommand(p *program) *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use: "show -g GATEWAY LANE", Short: "Show everything known of one lane",
		Long: `Show prints how many jobs of a lane wait, by class and route, which one is next, the use of its limits, and
what its next job waits for. A lane without jobs and recent calls looks like one that never existed. Jobs
without a lane share the lane with an empty name.`,
		Example: "  dispatcher lane show -g stripe acct_1\n  dispatcher lane show -g stripe acct_1 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachNamed(cmd.Context(), p, names, remote.Lane, func(name string) remote.OneLane {
				return remote.OneLane{Gateway: name, Lane: args[0]}
			}, p.laneDetails)
		},
	}
	gatewaysFlag(cmd, &names, "the `GATEWAY` of the lane; repeatable")
	return cmd
}

func (p *program) laneDetails(v desk.LaneShown) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, v)
	}
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("lane", cli.Uncut(v.Name()))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("queued", v.Queued)
	t.Row("in flight", inFlightText(v.InFlight))
	t.Row("why", cli.Uncut(v.Why))
	for _, u := range v.Used {
		t.Row("used of "+u.Limit, u.Used)
	}
	t.Row("share", shareText(v.Share))
	for _, f := range v.Flows {
		t.Row("queued"+f.Text(), cli.Uncut(fmt.Sprintf("%s, next %s", job.CountText(f.Queued), strings.Join(f.Next, " or "))))
	}
	return t.Flush()
}
