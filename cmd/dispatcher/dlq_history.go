package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// historyFlags are the flags of dlq history as typed.
type historyFlags struct {
	cmd          *cobra.Command
	gateways     []string
	since, until string
	limit        int
}

func dlqHistoryCommand(p *program) *cobra.Command {
	f := &historyFlags{}
	cmd := &cobra.Command{
		Use: "history [flags]", Short: "Show who did what to dead letters and gateways, when and why",
		Long: `History lists what people did to jobs (replay, discard, resolve, replace, park) and to gateways (pause,
resume, limits, rename): who, when, why, the flags that selected the jobs, how many there were and how much
money. It is ordered by gateway as in the file, and within a gateway oldest first. Forgotten gateways come
last. The trail is never trimmed. An act without an end is still running or was killed: the count of its
jobs is still right, and their money may be a second behind.`,
		Example: "  dispatcher dlq history -g stripe\n  dispatcher dlq history --since 30d -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.dlqHistory(cmd.Context(), f) },
	}
	f.cmd = cmd
	gatewaysFlag(cmd, &f.gateways, "only what was done at this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringVar(&f.since, "since", "", "only acts started at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\" (local time unless it says otherwise), RFC 3339")
	fs.StringVar(&f.until, "until", "", "only acts started before `TIME`")
	fs.IntVar(&f.limit, "limit", 0, "at most `N` acts, oldest first (default: all)")
	return cmd
}

func (p *program) dlqHistory(ctx context.Context, f *historyFlags) error {
	filter, err := p.understand(&dlqFilter{cmd: f.cmd, gateways: f.gateways, since: f.since, until: f.until, limit: f.limit})
	if err != nil {
		return err
	}
	d, err := p.at(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	list := p.newPaged("AT", "GATEWAY", "WHO", "WHAT", "JOBS", "MONEY", "FILTER", "WHY", "ENDED")
	q := remote.HistoryOf{At: remote.At{Gateways: f.gateways}, Since: desk.Stamp(filter.Since), Until: desk.Stamp(filter.Until), Limit: filter.Limit}
	if _, err := remote.History.Do(ctx, d, q, remote.Out[dispatch.Forgotten]{Line: list.addAct}); err != nil {
		return err
	}
	if list.rows == 0 {
		p.nothingMeant("act")
	}
	return list.flush()
}

func (l *paged) addAct(v dispatch.Forgotten) error {
	if l.p.JSON() {
		return cli.WriteJSON(l.out, v)
	}
	money := l.table.Money(v.Totals)
	if r := v.Replaced; r != nil {
		money = l.table.Money(job.Totals{Amount: r.Amount, NoAmount: r.NoAmount}) + " → " + money
	}
	var ended time.Time
	if v.Ended != nil {
		ended = *v.Ended
	}
	return l.row(v.At, cli.Uncut(v.Gateway), v.Who, cli.Uncut(v.What), v.Jobs, money, cli.Uncut(v.Filter), cli.Uncut(v.Why), ended)
}
