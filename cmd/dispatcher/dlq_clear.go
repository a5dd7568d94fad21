package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/deadletter"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

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

// halt says that an action stopped itself at a gateway.
type halt struct{ remote.ClearedPart }

func (h halt) Error() string { return h.Problem.Detail }

// outcome combines the results of the gateways' parts.
func (w *bulkCommand) outcome(errs []error) error {
	var halts []halt
	interrupted := false
	if err := w.awaits(); err != nil {
		return err
	}
	for _, err := range errs {
		h, halted := errors.AsType[halt](err)
		switch {
		case halted:
			halts = append(halts, h)
		case errors.Is(err, context.Canceled):
			interrupted = true
		case err != nil:
			return w.cut(err, goOn)
		}
	}
	switch {
	case interrupted:
		return w.cut(&job.Error{Code: job.CodeInterrupted, Message: "interrupted"}, goOn)
	case len(halts) > 0:
		return w.halted(halts)
	}
	return nil
}

// awaits says that a request was made and needs another person's approval; nil if none was.
func (w *bulkCommand) awaits() error {
	var texts []string
	var first *job.Error
	for _, part := range w.Parts {
		if r := w.far[part.Gateway].Request; r != nil {
			e, _ := errors.AsType[*job.Error]((&desk.Awaits{Request: *r}).Unwrap())
			first = cmp.Or(first, e)
			texts = append(texts, e.Message)
		}
	}
	if first == nil {
		return nil
	}
	return &job.Error{Code: first.Code, Message: strings.Join(texts, "; "), Hint: first.Hint}
}

// show draws the progress, and says from time to time that it waits for the jobs sent ahead.
func (w *bulkCommand) show(part remote.ClearedPart) error {
	w.far[part.Gateway] = part
	sum := w.now()
	w.progress.Set(int64(sum.Taken + sum.Gone))
	canary := part.Canary
	if canary == nil || canary.Waiting == 0 || time.Since(w.reminded[part.Gateway]) < remindEvery {
		return nil
	}
	first := w.reminded[part.Gateway].IsZero()
	w.reminded[part.Gateway] = time.Now()
	w.progress.Clear()
	w.p.remark("%s", waitingText(part.Gateway, *canary, first))
	return nil
}

// remindEvery is how often a replay that waits for its canary says so.
const remindEvery = 15 * time.Second

func waitingText(gateway string, now remote.Canary, first bool) string {
	if first {
		return fmt.Sprintf("%s: %s sent ahead, waiting until they are finished", gateway, job.JobsText(int64(now.Sent)))
	}
	return fmt.Sprintf("%s: still waiting for %d of the %d sent ahead; is a dispatcher running? see \"dispatcher status\"", gateway, now.Waiting, now.Sent)
}

const goOn = "run the same again: that is safe, it goes on with the jobs that are still parked"

// cut adds the progress to an error.
func (w *bulkCommand) cut(err error, hint string) error {
	err = redisdb.Coded(err)
	sum := w.now()
	far := fmt.Sprintf("%d of %s %s", sum.Taken, job.JobsText(w.open), w.action.Past)
	if sum.Unsure > 0 {
		far += fmt.Sprintf(", and %d more may or may not be", sum.Unsure)
	}
	return &job.Error{Code: job.CodeOf(err), Message: far, Err: err, Hint: hint}
}

// halted says why a replay stopped itself, and how to continue. A held gateway counts as unavailable, a failed
// canary as a failure.
func (w *bulkCommand) halted(halts []halt) error {
	var why []string
	code, hint := job.CodeUnavailable, `see "dispatcher status"; when calls go through again, run the same again: it goes on with the jobs that are still parked`
	for _, h := range halts {
		why = append(why, h.Problem.Detail)
		if h.Problem.Kind == job.CodeFailed { // one of the jobs sent ahead
			code, hint = job.CodeFailed, `look at them with "dispatcher job ID"; once the cause is gone, run the same again: it goes on with the jobs that are still parked`
		}
	}
	return w.cut(&job.Error{Code: code, Message: "stopped: " + strings.Join(why, "; ")}, hint)
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

func dlqDiscardCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "discard --why REASON [flags]", Short: "Remove parked jobs for good, keeping their records",
		Long: `Discard removes the selected jobs for good. Their payloads and errors are deleted at once. The rest of their
records is kept for the gateway's dedupe time: until then their ids are known, and not accepted again. They
still count in the sums of their batches.

Jobs that may have been charged are skipped: look them up at the gateway, then settle them with "dlq
resolve". --may-be-charged discards them anyway; Spillway then never settles whether they were charged.

A job named with --id may also be waiting for its call: queued, scheduled or in back-off. It is removed from
the queue and discarded in one step. A job in flight is not discarded, because its call can't be undone.`,
		Example: "  dispatcher dlq discard --reason expired --why 'too late to bill'\n  dispatcher dlq discard --id inv-1042 --why 'cancelled by the customer' --yes",
		Args:    noArgs,
	}
	f := clearingFlags(cmd)
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, recorded in the trail; required")
	cmd.Flags().BoolVar(&f.mayBeCharged, "may-be-charged", false, "also discard jobs that may have been charged: they are then never settled")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.needWhy("discard"); err != nil {
			return err
		}
		return p.clear(cmd.Context(), f, desk.Discard, remote.Clearing{})
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
