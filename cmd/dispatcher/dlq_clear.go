package main

import (
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
)

// clearFlags are the flags that replay, discard and resolve share.
type clearFlags struct {
	*dlqFilter
	consent     cli.Consent
	why         string
	expiredKeys bool
	// mayBeCharged lets jobs be discarded that may have been charged.
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

// clear shows what an action would touch, asks, does it and says what it did.
func (p *program) clear(ctx context.Context, f *clearFlags, a desk.Action, o desk.Options) error {
	s, err := p.choose(ctx, f.dlqFilter)
	if err != nil {
		return err
	}
	defer s.close()
	o.ExpiredKeys, o.MayBeCharged = f.expiredKeys, f.mayBeCharged
	plan, err := s.Plan(ctx, a, o)
	if err != nil {
		return err
	}
	w := &clearance{p: p, s: s, f: f, Plan: plan, o: o, total: plan.Meant().Jobs, open: plan.Would().Jobs}
	if o.Reference != "" && w.total > 1 {
		return cli.Usage("choose one with -g", "several gateways have parked a job %q", s.Filter.IDs[0])
	}
	if err := p.remarkMissing(ctx, s.Selection, plan.Missing); err != nil {
		return err
	}
	decision, err := w.decide(ctx)
	if err != nil {
		return err
	}
	if decision != cli.Go || w.open == 0 {
		return w.report(decision, nil)
	}
	return w.report(decision, w.do(ctx))
}

// clearance is one action under way.
type clearance struct {
	*desk.Plan
	p     *program
	s     *selection
	f     *clearFlags
	o     desk.Options
	total int64 // jobs meant
	open  int64 // of these, jobs not held back
	ran   bool

	progress *cli.Progress
	told     map[*desk.Bulk]time.Time // when a gateway's canary was last said to be waited for
}

// decide asks a person at a terminal, where there is something to ask about.
func (w *clearance) decide(ctx context.Context) (cli.Decision, error) {
	consent := w.f.consent
	if w.open == 0 && w.p.InTerminal {
		consent.Yes = true
	}
	if consent.Yes && !consent.DryRun && w.open > 0 && !w.p.JSON() {
		w.p.remark("%s", strings.TrimSuffix(w.previewText(), "\n"))
	}
	return cli.Confirm(ctx, w.p.Streams, consent, w.previewText()+capital(w.Action.Verb)+" "+w.Would().String())
}

// do runs the action at every gateway.
func (w *clearance) do(ctx context.Context) error {
	who, err := cli.WhoAmI()
	if err != nil {
		return err
	}
	w.progress = cli.NewProgress(w.p.Streams, cli.ProgressParams{What: w.Action.Verb, Total: w.open, Quiet: w.p.Quiet})
	defer w.progress.Close()
	w.ran, w.told = true, map[*desk.Bulk]time.Time{}
	traces, err := w.p.traces(ctx)
	if err != nil {
		return err
	}
	defer desk.Bounded(ctx, traces.Close)
	return w.outcome(w.Run(ctx, desk.By{Who: who, Why: w.f.why}, traces, w.show))
}

// outcome is one error of all gateways': what is broken before what was interrupted, and that before what stopped by itself.
func (w *clearance) outcome(errs []error) error {
	var halts []*deadletter.Halt
	interrupted := false
	for _, err := range errs {
		halt, halted := errors.AsType[*deadletter.Halt](err)
		switch {
		case halted:
			halts = append(halts, halt)
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

// show shows how far it is, and what a gateway's canary is waited for.
func (w *clearance) show(b *desk.Bulk) {
	sum := w.Now()
	w.progress.Set(int64(sum.Taken + sum.Gone))
	canary := b.Now().Canary
	if canary == nil || canary.Waiting == 0 || time.Since(w.told[b]) < remindEvery {
		return
	}
	first := w.told[b].IsZero()
	w.told[b] = time.Now()
	w.progress.Clear()
	w.p.remark("%s", waitingText(b.Name, *canary, first))
}

// remindEvery is how often a replay that waits for its canary says what it waits for.
const remindEvery = 15 * time.Second

func waitingText(gateway string, now deadletter.Canary, first bool) string {
	if first {
		return fmt.Sprintf("%s: %s sent ahead, waiting until they are finished", gateway, job.JobsText(int64(now.Sent)))
	}
	return fmt.Sprintf("%s: still waiting for %d of the %d sent ahead; is a dispatcher running? see \"dispatcher status\"", gateway, now.Waiting, now.Sent)
}

const goOn = "run the same again: that is safe, it goes on with the jobs that are still parked"

// cut adds to an error how far it got.
func (w *clearance) cut(err error, hint string) error {
	err = redisdb.Coded(err)
	sum := w.Now()
	far := fmt.Sprintf("%d of %s %s", sum.Taken, job.JobsText(w.open), w.Action.Past)
	if sum.Unsure > 0 {
		far += fmt.Sprintf(", and %d more may or may not be", sum.Unsure)
	}
	return &job.Error{Code: job.CodeOf(err), Message: far, Err: err, Hint: hint}
}

// halted says why a replay stopped by itself, and how to go on. A gateway that is held is away; a canary that failed is a failure.
func (w *clearance) halted(halts []*deadletter.Halt) error {
	var why []string
	code, hint := job.CodeUnavailable, `see "dispatcher status"; when calls go through again, run the same again: it goes on with the jobs that are still parked`
	for _, h := range halts {
		why = append(why, h.Why)
		if h.Canary != nil {
			code, hint = job.CodeFailed, `look at them with "dispatcher job ID"; once the cause is gone, run the same again: it goes on with the jobs that are still parked`
		}
	}
	return w.cut(&job.Error{Code: code, Message: "stopped: " + strings.Join(why, "; ")}, hint)
}
