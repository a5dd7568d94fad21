package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/remote"
)

func dlqShowCommand(p *program) *cobra.Command {
	var names []string
	var payload bool
	cmd := &cobra.Command{
		Use: "show ID [-g GATEWAY]", Short: "Show one parked job in full, and what a replay would do with it",
		Example: "  dispatcher dlq show inv-1042\n  dispatcher dlq show inv-1042 -g stripe --payload -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.dlqShow(cmd.Context(), args[0], names, payload)
		},
	}
	gatewaysFlag(cmd, &names, "look in this `GATEWAY` only; repeatable (default: all of the file)")
	cmd.Flags().BoolVar(&payload, "payload", false, "also show the payload, which may hold personal data")
	return cmd
}

func (p *program) dlqShow(ctx context.Context, id string, names []string, payload bool) error {
	p.payloads = payload
	v, err := ask(ctx, p, remote.DeadLetter, remote.JobOf{ID: id, At: remote.At{Gateways: names}, Payload: payload})
	if err != nil {
		return err
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, v.ParkedWhole)
	} else {
		err = p.parkedTable(v.ParkedWhole, v.Most)
	}
	if err != nil || !payload {
		return err
	}
	return unopened(id, v.Unopened)
}

// unopened returns the error for a requested payload that can't be opened.
func unopened(id, why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("job %q: %s", id, why)
}

func (p *program) parkedTable(v desk.ParkedWhole, most int) error {
	t := cli.NewTable(p.Streams, time.Now(), "FIELD", "VALUE")
	t.Row("id", cli.Uncut(v.ID))
	t.Row("gateway", cli.Uncut(v.Gateway))
	t.Row("reason", v.Reason.Words())
	t.Row("error", cli.Uncut(v.Error))
	t.Row("attempts", v.Attempts)
	t.Row("attempts spent", spentText(v.Spent, most))
	t.Row("replays", replaysText(v.Replays))
	t.Row("parked", v.ParkedAt)
	t.Row("batch", cli.Uncut(v.Batch))
	factRows(t, v.Given())
	if amount := t.Money(job.Totals{Amount: v.Amount}); amount != "" {
		t.Row("amount", amount)
	}
	t.Row("may have charged", yesNo(v.Unsure))
	t.Row("idempotency key", cli.Uncut(v.Key))
	t.Row("a replay", cli.Uncut(v.Replay))
	factRows(t, v.Facts())
	callRows(t, v.Calls)
	if len(v.Payload) > 0 {
		t.Row("payload", cli.Uncut(v.Payload))
	}
	return t.Flush()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func dlqStatsCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [flags]", Short: "Count parked jobs and their money by gateway and reason",
		Long: `Stats counts the parked jobs by gateway and reason, with the oldest of each and the sums of money by
currency, if the gateway has "amount" configured; and each gateway's total. Reasons that need a person come
first. Jobs that wait for room are admitted automatically: they come last, and are not in the total of the
text output.

Without --id, --match and --limit it answers from counters, however many jobs there are. The money is that
of the payloads when the jobs were accepted; an amount of more than 18 digits counts as none. Only money
between two times requires reading each job.`,
		Example: "  dispatcher dlq stats\n  dispatcher dlq stats -g stripe --batch 2026-11 -o json",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqStats(cmd.Context(), f) }
	return cmd
}

func (p *program) dlqStats(ctx context.Context, f *dlqFilter) error {
	filter, d, err := p.selected(ctx, f)
	if err != nil {
		return err
	}
	defer d.Close()
	v, err := remote.Stats.Ask(ctx, d, remote.FilterOf(f.gateways, filter))
	if err != nil {
		return err
	}
	if err := p.writeTallies(v.Gateways); err != nil {
		return err
	}
	p.remarkLeftOut(v.LeftOut)
	return nil
}

func (p *program) writeTallies(all []*desk.Tally) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, map[string]any{"gateways": all})
	}
	if !slices.ContainsFunc(all, func(of *desk.Tally) bool { return of.Jobs > 0 }) {
		p.nothingMeant("parked job")
	}
	t := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "REASON", "JOBS", "OLDEST", "MONEY")
	for _, of := range all {
		for _, r := range job.DeadReasons() {
			tallyRow(t, of.Gateway, r.Words(), of.ByReason[r])
		}
		tallyRow(t, of.Gateway, "total", of.Dead())
		tallyRow(t, of.Gateway, job.ForRoom, of.ByReason[job.Rejected])
	}
	return t.Flush()
}

// tallyRow adds a row for some parked jobs, if there are any.
func tallyRow(t *cli.Table, gateway, what string, of *desk.ReasonTally) {
	if of != nil {
		t.Row(gateway, what, of.Jobs, of.Oldest, t.Money(of.Totals))
	}
}

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

func dlqExportCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write parked jobs as a billing file that enqueue reads",
		Long: `Export writes the parked jobs to standard output as NDJSON, which "enqueue -f" reads. They stay parked;
enqueued on this Redis again, they are duplicates. The lines contain the payloads, which may hold personal
data.

With encryption in the configuration, the payloads are written sealed. Only an enqueue with the keys can
read such lines, each for its own job and gateway. --plain opens them.`,
		Example: "  dispatcher dlq export -g stripe --reason refused > refused.ndjson\n  dispatcher dlq export --batch 2026-11 | enqueue -f - -c elsewhere.yaml",
		Args:    noArgs,
	}
	f := filterFlags(cmd)
	f.afterFlag(cmd)
	cmd.Flags().BoolVar(&p.payloads, "plain", false, "write sealed payloads in plain: needs the keys")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.dlqExport(cmd.Context(), f) }
	return cmd
}

func (p *program) dlqExport(ctx context.Context, f *dlqFilter) error {
	filter, d, err := p.selected(ctx, f)
	if err != nil {
		return err
	}
	defer d.Close()
	out := bufio.NewWriter(p.Out)
	q := remote.DeadExportOf{Filter: remote.FilterOf(f.gateways, filter), After: f.after, Plain: p.payloads, Remarks: true}
	_, err = remote.DeadExport.Do(ctx, d, q, remote.Out[desk.ExportLine]{Line: func(l desk.ExportLine) error { return p.export(out, l) },
		Remark: func(text string) { p.remark("%s", text) }})
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("writing the result: %w", flushed)
	}
	return err
}

func (p *program) export(out *bufio.Writer, line desk.ExportLine) error {
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, line); err != nil {
		return err
	}
	if text.Len() > job.MaxLine {
		p.remark("job %q of %s: its line is longer than %d bytes, which enqueue refuses", line.ID, line.Gateway, job.MaxLine)
	}
	_, err := out.Write(text.Bytes())
	return err
}
