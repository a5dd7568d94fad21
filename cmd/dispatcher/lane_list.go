package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

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
			return p.eachNamed(cmd.Context(), names, func(d remote.Desk, name string) error {
				q.Gateway = name
				v, err := remote.Lanes.Ask(cmd.Context(), d, q)
				if err != nil {
					return err
				}
				return p.laneTable(v)
			})
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
			return p.eachNamed(cmd.Context(), names, func(d remote.Desk, name string) error {
				v, err := remote.Lane.Ask(cmd.Context(), d, remote.OneLane{Gateway: name, Lane: args[0]})
				if err != nil {
					return err
				}
				return p.laneDetails(v)
			})
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
