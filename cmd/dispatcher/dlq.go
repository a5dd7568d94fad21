package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
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

func dlqReplayCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay [flags]", Short: "Send parked jobs through admission again",
		Long: `Replay sends the selected jobs through admission again, oldest first, with a new count of attempts. It waits
for room as long as needed. It can be stopped and run again: nothing is lost or doubled. Jobs parked after
its start are not affected.

A job keeps its id and its idempotency key, unless the gateway has definitely refused it: then it gets the
next generation of the key. These jobs are skipped: jobs that an earlier call may have charged, if the
gateway keeps no keys; jobs whose key it has forgotten by now (key_lifetime), unless --expired-keys; jobs
whose time has passed; and entries that are not jobs.

--rate and --share leave the rest of the limits to live traffic: jobs enter the queue no faster, spread
evenly, each counting with its cost. A share is of the tightest of the gateway's current limits, and follows
"limit set". Both apply to each gateway, and to each replay: two concurrent replays are twice as fast
together.

--priority changes the jobs' class in their records before they are enqueued: jobs of a higher class go
before waiting ones. A class that a gateway does not have is an error.

--canary sends that many jobs of each gateway first and waits until they are finished. If one of them is
parked again or has to be retried, the replay stops (exit code 1). A replay also stops when the gateway is
held or paused, or its circuit is open, with exit code 5. Jobs replayed by then stay replayed; the same
command continues with the rest.`,
		Example: "  dispatcher dlq replay -g stripe --reason refused --since 24h\n  dispatcher dlq replay --batch 2026-11 --canary 20 --share 20% --yes --why 'card network is back'",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail")
	cmd.Flags().BoolVar(&f.expiredKeys, "expired-keys", false, "also replay jobs whose idempotency key the gateway has forgotten: they may be charged twice")
	pace := pacingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		careful, err := pace.understand()
		if err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, desk.Replay, careful)
	}
	return cmd
}

// paceFlags are the flags that limit the pace of a replay.
type paceFlags struct {
	cmd         *cobra.Command
	rate, share string
	canary      int
	priority    string
}

func pacingFlags(cmd *cobra.Command) *paceFlags {
	f := &paceFlags{cmd: cmd}
	fs := cmd.Flags()
	fs.StringVar(&f.rate, "rate", "", "enqueue jobs no faster than `LIMIT`, spread evenly: 50/s, 3000/m (default: as admission has room)")
	fs.StringVar(&f.share, "share", "", "enqueue jobs no faster than `PERCENT` of the gateway's current limits: 20%")
	fs.StringVar(&f.priority, "priority", "", "change the jobs' class to `CLASS`, permanently (default: each keeps its own)")
	fs.IntVar(&f.canary, "canary", 0, "send `N` jobs of each gateway first, and stop if one of them fails")
	return f
}

func (f *paceFlags) understand() (q remote.Clearing, err error) {
	q.Canary, q.Priority = f.canary, f.priority
	var p desk.Pace
	given := f.cmd.Flags().Changed
	if given("priority") && f.priority == "" {
		return q, emptyFlag("priority")
	}
	if given("rate") && given("share") {
		return q, cli.Usage("give one of the two", "--rate and --share both say how fast the jobs go in")
	}
	if given("canary") && f.canary < 1 {
		return q, cli.Usage("give at least 1, or leave it out to send all at once", "--canary %d is too few", f.canary)
	}
	if given("rate") {
		q.Rate = f.rate
		err = p.SetRate(f.rate, "--rate")
	}
	if given("share") {
		q.Share = f.share
		err = p.SetShare(f.share, "--share")
	}
	return q, err
}

// clearFlags are the flags that replay, discard and resolve share.
type clearFlags struct {
	*dlqFilter
	consent     cli.Consent
	why         string
	expiredKeys bool
	// mayBeCharged permits discarding jobs that may have been charged.
	mayBeCharged bool
}

func clearingFlags(cmd *cobra.Command) *clearFlags {
	f := &clearFlags{dlqFilter: filterFlags(cmd)}
	consentFlags(cmd, &f.consent)
	return f
}

// needWhy refuses an act without a reason.
func (f *clearFlags) needWhy(verb string) error {
	return desk.NeedWhy(f.why, verb)
}

// clear shows what an action would do to the selected jobs, asks for confirmation, carries it out, and reports
// the result.
func (p *program) clear(ctx context.Context, f *clearFlags, a desk.Action, q remote.Clearing) error {
	filter, d, err := p.selected(ctx, f.dlqFilter)
	if err != nil {
		return err
	}
	defer d.Close()
	q.Filter, q.Action, q.ExpiredKeys, q.MayBeCharged = remote.FilterOf(f.gateways, filter), a.Name, f.expiredKeys, f.mayBeCharged
	seen, err := remote.Previewed.Ask(ctx, d, q)
	if err != nil {
		return err
	}
	w := &bulkCommand{Preview: seen, p: p, at: d, f: f, action: a, filter: filter, q: q, total: seen.Jobs, open: seen.Would.Jobs}
	p.remarkLeftOut(seen.LeftOut)
	decision, err := w.decide(ctx)
	if err != nil {
		return err
	}
	if decision != cli.Go || w.open == 0 {
		return w.report(decision, nil)
	}
	return w.report(decision, w.do(ctx))
}

// bulkCommand is an action from its preview to its report.
type bulkCommand struct {
	remote.Preview
	p      *program
	at     remote.Desk
	f      *clearFlags
	action desk.Action
	filter deadletter.Filter
	q      remote.Clearing
	total  int64 // selected jobs
	open   int64 // those that are not held back
	ran    bool

	far      map[string]remote.ClearedPart // progress by gateway
	gone     int                           // jobs previewed, but no longer parked when the action began
	progress *cli.Progress
	reminded map[string]time.Time // when it was last printed that a gateway's canary is awaited
}

// decide asks for confirmation, unless nothing would be done.
func (w *bulkCommand) decide(ctx context.Context) (cli.Decision, error) {
	consent := w.f.consent
	if w.open == 0 && w.p.InTerminal {
		consent.Yes = true
	}
	if consent.Yes && !consent.DryRun && w.open > 0 && !w.p.JSON() {
		w.p.remark("%s", strings.TrimSuffix(w.previewText(), "\n"))
	}
	return cli.Confirm(ctx, w.p.Streams, consent, w.previewText()+capital(w.action.Verb)+" "+w.Would.String())
}

func (w *bulkCommand) do(ctx context.Context) error {
	who, err := cli.WhoAmI()
	if err != nil {
		return err
	}
	w.progress = cli.NewProgress(w.p.Streams, cli.ProgressParams{What: w.action.Verb, Total: w.open, Quiet: w.p.Quiet})
	defer w.progress.Close()
	w.ran, w.far, w.reminded = true, map[string]remote.ClearedPart{}, map[string]time.Time{}
	if here, is := w.at.(*remote.Here); is {
		if here.Traces, err = w.p.traces(ctx); err != nil {
			return err
		}
		defer desk.Bounded(ctx, here.Traces.Close)
	}
	done, err := remote.Clear.Do(ctx, w.at, w.q.After(w.Preview, desk.By{Who: who, Why: w.f.why}), remote.Out[remote.ClearedPart]{Line: w.show})
	for _, part := range done.Parts {
		w.far[part.Gateway] = part
	}
	if err != nil {
		return w.outcome([]error{err})
	}
	w.gone = int(w.total - done.Jobs)
	errs := make([]error, len(done.Parts))
	for i, part := range done.Parts {
		if errs[i] = part.Problem.Err(); part.Stopped {
			errs[i] = halt{part}
		}
	}
	return w.outcome(errs)
}
