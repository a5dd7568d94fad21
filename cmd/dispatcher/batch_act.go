package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/deadletter"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/ledger"
)

// batchAct is what pause, resume and cancel differ in.
type batchAct struct {
	verb, past string
	// would says which of a batch's jobs it would touch.
	would func(ledger.Batch) ledger.Sums
	run   func(ctx context.Context, t batchTarget, did func(ledger.Shelved) error) error
}

// batchTarget is one gateway's part of a batch that an act is done to.
type batchTarget struct {
	g     config.Gateway
	books *ledger.Books
	batch string
	who   string
	why   string
}

type batchActFlags struct {
	gateways []string
	why      string
	consent  cli.Consent
}

// unsent are the jobs that wait for their call.
func unsent(b ledger.Batch) ledger.Sums {
	return b.Sum(func(p ledger.Place) bool {
		switch p.State {
		case job.Queued, job.Scheduled, job.Retrying:
			return true
		}
		return p == ledger.Place{State: job.Parked, Reason: job.Rejected}
	})
}

// uncalled are those and what a pause has parked.
func uncalled(b ledger.Batch) ledger.Sums {
	s := unsent(b)
	s.Add(shelved(b))
	return s
}

// shelved are the jobs that a pause has parked.
func shelved(b ledger.Batch) ledger.Sums {
	return b.Sum(func(p ledger.Place) bool { return p == ledger.Place{State: job.Parked, Reason: job.Paused} })
}

func batchPauseCommand(p *program) *cobra.Command {
	return p.batchActCommand(batchAct{verb: "pause", past: "paused", would: unsent,
		run: func(ctx context.Context, t batchTarget, did func(ledger.Shelved) error) error {
			return t.books.PauseBatch(ctx, t.batch, t.who, t.why, did)
		}}, "Call the jobs of a batch no more until it is resumed",
		`Pause parks the jobs of a batch that wait, in the order of the file, as paused, so that other batches
go on in their place. Calls under way finish. Jobs of the batch that come in
later, or come back for another attempt, are parked when they come.`)
}

func batchResumeCommand(p *program) *cobra.Command {
	return p.batchActCommand(batchAct{verb: "resume", past: "resumed", would: shelved, run: func(ctx context.Context, t batchTarget, did func(ledger.Shelved) error) error {
		return t.books.ResumeBatch(ctx, t.batch, did)
	}}, "Call the jobs of a paused batch again",
		`Resume ends a pause: the jobs that it has parked wait for room as those parked as rejected do, in the order of the
file, and go in by themselves. With "replay: manual" they go with "dlq replay --reason rejected --batch NAME".
Jobs that batch cancel has parked stay; but those that come in from now on are called again.`)
}

func batchCancelCommand(p *program) *cobra.Command {
	return p.batchActCommand(batchAct{verb: "cancel", past: "cancelled", would: uncalled,
		run: func(ctx context.Context, t batchTarget, did func(ledger.Shelved) error) error {
			return t.books.CancelBatch(ctx, t.batch, t.who, t.why, t.g.Request.Timeout+comeBack, did)
		}}, "Park all of a batch that isn't sent yet, a file sent by mistake",
		`Cancel parks the jobs of a batch that are not sent yet as cancelled: queued, scheduled, waiting for another attempt
or for room, or parked by a pause. Calls under way finish; it waits for them, and parks what comes back. Jobs of the
batch that come in later are parked too, since enqueue may still be reading the wrong file: give the right file
another batch, or end this with "batch resume" first. Nothing is lost: "dlq replay --reason cancelled --batch NAME"
takes the jobs in again.

A job of which an earlier call may have charged is parked as unknown_outcome instead, and counted: look it up at the
gateway, then "dlq resolve".`)
}

// comeBack is how long after a gateway's time-out cancel waits for calls under way.
const comeBack = 5 * time.Second

func (p *program) batchActCommand(a batchAct, short, long string) *cobra.Command {
	f := &batchActFlags{}
	cmd := &cobra.Command{
		Use: a.verb + " NAME --why TEXT [-g GATEWAY]...", Short: short,
		Long: long + `

It says how many jobs and asks on a terminal; off one it only says so, unless --yes. Interrupted, it can be run
again. Who did it, when and why stands in "dlq history".`,
		Example: "  dispatcher batch " + a.verb + ` 2026-11 --why "wrong file, ticket 4711" --yes`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.batchAct(cmd.Context(), args[0], f, a) },
	}
	gatewaysFlag(cmd, &f.gateways, "only its jobs at this `GATEWAY`; repeatable (default: all of the file)")
	cmd.Flags().StringVar(&f.why, "why", "", "the `REASON`, for the trail")
	consentFlags(cmd, &f.consent)
	return cmd
}

// batchDeed is what "batch pause|resume|cancel -o json" prints.
type batchDeed struct {
	Batch    string             `json:"batch"`
	What     string             `json:"what"`
	Done     bool               `json:"done"`
	Gateways []batchGatewayDeed `json:"gateways"`
}

type batchGatewayDeed struct {
	Gateway string `json:"gateway"`
	Jobs    int64  `json:"jobs"`
	Amount  purse  `json:"amount"`
	Bare    int64  `json:"without_amount"`
	// Doubt is those of the jobs that may have been charged, and are parked as unknown_outcome; nil if none is.
	Doubt *batchDoubt `json:"unknown_outcome,omitempty"`
}

type batchDoubt struct {
	Jobs   int64 `json:"jobs"`
	Amount purse `json:"amount"`
	Bare   int64 `json:"without_amount"`
}

func deedOf(gateway string, s ledger.Shelved) batchGatewayDeed {
	d := batchGatewayDeed{Gateway: gateway, Jobs: s.Jobs, Amount: purseOf(s.Sums), Bare: s.Unread}
	if s.Doubt.Jobs > 0 {
		d.Doubt = &batchDoubt{s.Doubt.Jobs, purseOf(s.Doubt), s.Doubt.Unread}
	}
	return d
}

// doubtText says how many of the jobs may have been charged; empty if none.
func (d batchGatewayDeed) doubtText() string {
	if d.Doubt == nil {
		return ""
	}
	p := pile{jobs: int(d.Doubt.Jobs), money: d.Doubt.Amount, bare: int(d.Doubt.Bare)}
	return fmt.Sprintf("%s: of these, %s may have been charged, and wait as %s: look them up, then \"dispatcher dlq resolve\"\n", d.Gateway, p.text(),
		job.UnknownOutcome)
}

func (d batchGatewayDeed) pile() *pile {
	return &pile{jobs: int(d.Jobs), money: d.Amount, bare: int(d.Bare)}
}

func (p *program) batchAct(ctx context.Context, name string, f *batchActFlags, a batchAct) error {
	s, chosen, err := p.openToAct(ctx, f.gateways, "batch "+a.verb, f.why)
	if err != nil {
		return err
	}
	defer s.close()
	parts, err := batchParts(ctx, s, chosen, name)
	if err != nil {
		return err
	}
	d := batchDeed{Batch: name, What: a.verb}
	all := newPile()
	for _, part := range parts {
		d.Gateways = append(d.Gateways, deedOf(part.gateway, ledger.Shelved{Sums: a.would(part.Batch)}))
		all.addAll(d.Gateways[len(d.Gateways)-1].pile())
	}
	decision, err := cli.Confirm(ctx, p.Streams, f.consent, fmt.Sprintf("%s batch %q, %s that wait", a.verb, name, all.text()))
	if err != nil {
		return err
	}
	if d.Done = decision == cli.Go; d.Done {
		d.Gateways, err = p.actOnAll(ctx, s, parts, a, batchTarget{batch: name, who: s.who, why: f.why})
	}
	if written := p.writeDeed(d, a, decision); err == nil {
		err = written
	}
	return err
}

// actOnAll does the act at all gateways at once: none goes on calling while the calls under way at another are waited for.
func (p *program) actOnAll(ctx context.Context, s *session, parts []batchPart, a batchAct, t batchTarget) ([]batchGatewayDeed, error) {
	var total int64
	for _, part := range parts {
		total += a.would(part.Batch).Jobs
	}
	bar := cli.NewProgress(p.Streams, cli.ProgressParams{What: a.verb + " " + t.batch, Total: total, Quiet: p.Quiet})
	defer bar.Close()
	var done atomic.Int64
	deeds, errs := make([]batchGatewayDeed, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			deeds[i], errs[i] = p.actOn(ctx, s, part, a, t, func(jobs int64) { bar.Set(done.Add(jobs)) })
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return deeds, err
		}
	}
	return deeds, nil
}

// actOn does the act to one gateway's part, and writes it down before the first job, after each step, and at the end.
func (p *program) actOn(ctx context.Context, s *session, part batchPart, a batchAct, t batchTarget, did func(jobs int64)) (batchGatewayDeed, error) {
	t.g, _ = s.cfg.Gateway(part.gateway)
	t.books = dispatch.Books(s.db.Client, t.g)
	entry := deadletter.New(s.db.Client, t.g.Name).Entry(deadletter.Act{At: part.Now, Who: t.who, What: "batch " + a.verb, Why: t.why,
		Filter: "--batch " + strconv.Quote(t.batch)})
	t.books = t.books.For(entry.Place)
	if err := entry.Begin(ctx); err != nil {
		return deedOf(t.g.Name, ledger.Shelved{}), dispatch.Coded(err)
	}
	var sum ledger.Shelved
	deed := func() deadletter.Deed {
		return deadletter.Deed{Jobs: int(sum.Jobs), Amount: purseOf(sum.Sums), Bare: int(sum.Unread)}
	}
	last := context.WithoutCancel(ctx)
	err := a.run(ctx, t, func(step ledger.Shelved) error {
		sum.Add(step)
		did(step.Jobs)
		return entry.Note(last, deed())
	})
	if ended := entry.End(last, deed()); err == nil {
		err = ended
	}
	if errors.Is(err, ledger.ErrOvertaken) {
		err = &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the %s of batch %q at %s was not done for all jobs: %s", a.verb, t.batch, t.g.Name, err),
			Hint: fmt.Sprintf("see \"dispatcher batch %s\" and \"dispatcher dlq history\", and run it again if it is to hold", t.batch)}
	}
	return deedOf(t.g.Name, sum), dispatch.Coded(err)
}

func (p *program) writeDeed(d batchDeed, a batchAct, decision cli.Decision) error {
	if p.JSON() {
		return cli.WriteJSON(p.Out, d)
	}
	for _, g := range d.Gateways {
		if d.Done {
			fmt.Fprintf(p.Tell(), "%s: %s %s of batch %q\n%s", g.Gateway, a.past, g.pile().text(), d.Batch, g.doubtText())
		} else {
			fmt.Fprintf(p.Tell(), "%s: would %s %s of batch %q\n", g.Gateway, a.verb, g.pile().text(), d.Batch)
		}
	}
	if decision == cli.DryRun {
		p.remark("nothing was done: add --yes to do it")
	}
	return nil
}
