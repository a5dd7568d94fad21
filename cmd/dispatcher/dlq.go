package main

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
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

// selected parses the filter, and opens the desk of the jobs that it selects. The caller closes the desk.
func (p *program) selected(ctx context.Context, f *dlqFilter) (filter deadletter.Filter, d remote.Desk, err error) {
	if filter, err = p.understand(f); err == nil {
		d, err = p.atAll(ctx, append(slices.Clip(f.gateways), filter.IDs...)) // jobs selected by id name their gateways: others are not mentioned then
	}
	return filter, d, err
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

// dlqFilter is the filter flags as typed.
type dlqFilter struct {
	cmd                        *cobra.Command
	gateways, reasons, ids     []string
	batch, since, until, match string
	lane, route                string
	after                      string
	limit                      int
}

// filterFlags declares the flags that select parked jobs.
func filterFlags(cmd *cobra.Command) *dlqFilter {
	f := &dlqFilter{cmd: cmd}
	gatewaysFlag(cmd, &f.gateways, "only jobs of this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringArrayVar(&f.reasons, "reason", nil, "only jobs parked for this `REASON`; repeatable (default: all)")
	fs.StringVar(&f.batch, "batch", "", "only jobs of the batch `NAME`")
	fs.StringVar(&f.lane, "lane", "", "only jobs of the lane `LANE`")
	fs.StringVar(&f.route, "route", "", "only jobs of the route `NAME`")
	fs.StringVar(&f.since, "since", "", "only jobs parked at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339")
	fs.StringVar(&f.until, "until", "", "only jobs parked before `TIME`")
	fs.StringArrayVar(&f.ids, "id", nil, "only the job with this `ID`; repeatable")
	fs.StringVar(&f.match, "match", "", "only jobs whose error matches `REGEX`")
	fs.IntVar(&f.limit, "limit", 0, "at most `N` jobs, oldest first (default: all)")
	return f
}

// understand checks the flags. Times are relative to now.
func (f *dlqFilter) understand(now time.Time) (deadletter.Filter, error) {
	if err := f.noneEmpty(); err != nil {
		return deadletter.Filter{}, err
	}
	to, err := desk.ParseFilter(url.Values{"reason": f.reasons, "batch": {f.batch}, "lane": {f.lane}, "route": {f.route}, "since": {f.since}, "until": {f.until}, "id": f.ids, "match": {f.match}}, now,
		func(field string) string { return "--" + field })
	if to.Limit = f.limit; err == nil && (f.limit < 0 || (f.limit == 0 && f.cmd.Flags().Changed("limit"))) {
		err = cli.Usage("give at least 1, or leave it out for all", "--limit %d is too few", f.limit)
	}
	return to, err
}

// noneEmpty refuses flags without a value, as from unset shell variables: they would select every job.
func (f *dlqFilter) noneEmpty() error {
	single := map[string]string{"batch": f.batch, "lane": f.lane, "route": f.route, "since": f.since, "until": f.until, "match": f.match, "after": f.after}
	for _, name := range []string{"batch", "lane", "route", "since", "until", "match", "after"} {
		if f.cmd.Flags().Changed(name) && single[name] == "" {
			return emptyFlag(name)
		}
	}
	if slices.Contains(f.ids, "") {
		return emptyFlag("id")
	}
	return nil
}

func emptyFlag(name string) error {
	return cli.Usage("give it a value, or leave it out to choose all", "--%s is empty", name)
}

// afterFlag declares --after for commands that show jobs.
func (f *dlqFilter) afterFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.after, "after", "", "only jobs after this `CURSOR` from -o json or the end of a list: the next page")
}
