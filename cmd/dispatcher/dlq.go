package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/producer"
	"spillway/internal/remote"
)

const dlqLong = `Dlq shows the parked jobs, and settles them.

list, show, stats, export and history change nothing. Three commands act: replay sends jobs through
admission again, discard removes them for good, and resolve settles those that may have been charged, or
asks the gateway about them. They show how many jobs and how much money they affect, and ask on a terminal.
Elsewhere they are a dry run, unless --yes is given. Each act is recorded for history.

All but show and history select jobs by the same flags; with several, a job must match all of them. Without
any, they select every parked job of every gateway. Jobs are ordered by gateway as in the file, and within a
gateway oldest first; --limit counts in that order.

Reasons: unknown_outcome (it may have been charged), refused (the gateway refused it), exhausted (attempts
used up), unreadable (not a job), expired (its time passed before it was called), cancelled (its batch was),
paused (its batch is), rejected (no room at admission yet: text output says "waiting for room").`

func dlqCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Show, replay, discard and resolve parked jobs", Long: dlqLong,
		Example: "  dispatcher dlq stats\n  dispatcher dlq list --reason refused --since 24h\n  dispatcher dlq replay -g stripe --reason refused --match 'HTTP 402'",
	}
	cmd.AddCommand(dlqListCommand(p), dlqShowCommand(p), dlqStatsCommand(p), dlqReplayCommand(p), dlqDiscardCommand(p),
		dlqResolveCommand(p), dlqExportCommand(p), dlqHistoryCommand(p))
	return cmd
}

// noArgs refuses arguments and says where an id belongs.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.Usage("name jobs by their id with --id "+args[0], "unexpected argument %q", args[0])
}

// understand parses the filter, and says in which zone its times were interpreted.
func (p *program) understand(f *dlqFilter) (deadletter.Filter, error) {
	filter, err := f.understand(time.Now())
	if err != nil {
		return filter, err
	}
	p.remarkZone("--since", f.since)
	p.remarkZone("--until", f.until)
	return filter, nil
}

// allBut returns the selected gateways, and those of jobs selected by id: others are not mentioned then.
func (f *dlqFilter) allBut(filter deadletter.Filter) []string {
	return append(slices.Clip(f.gateways), filter.IDs...)
}

// remarkZone says how a time without a zone was interpreted.
func (p *program) remarkZone(flag, text string) {
	if taken := producer.ZoneTaken(flag, text, time.Now()); taken != "" {
		p.remark("%s", taken)
	}
}

// remarkLeftOut says where jobs selected by id are, if they are not parked.
func (p *program) remarkLeftOut(l remote.LeftOut) {
	if l.MissingWhy != "" {
		p.remark("left out: %s", l.MissingWhy)
	}
}
