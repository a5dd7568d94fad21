package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/clock"
	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
)

// outcomesFlags are the flags of "outcomes".
type outcomesFlags struct {
	gateways []string
	after    string
	limit    int
	follow   bool
	reader   string
	ack      bool
}

func outcomesCommand(p *program) *cobra.Command {
	f := &outcomesFlags{}
	cmd := &cobra.Command{
		Use: "outcomes [-g GATEWAY]...", Short: "Print job outcomes as they happen, one line each",
		Long: `Outcomes prints the outcome feed of gateways that have "outcomes" in the configuration: a line of JSON for
each job that was parked, done or discarded, and for each finished batch, oldest first.

Each line has a cursor. A reader that stores the last one, ideally in one transaction with its own work,
gets every outcome exactly once: it continues with --after. With --reader it continues after that reader's
last acknowledgement; --ack acknowledges each outcome once it is printed. While Redis or the dispatcher is
away, --follow waits, then continues.`,
		Example: "  dispatcher outcomes -g stripe\n  dispatcher outcomes -g stripe --after 1763742851-1763742851000001 --follow\n  dispatcher outcomes -g stripe --reader mailer --ack",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.outcomes(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only outcomes at this `GATEWAY`; repeatable (default: all of the file with a feed)")
	cmd.Flags().StringVar(&f.after, "after", "", "only outcomes after this `CURSOR` of a line (default: all stored ones)")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most `N` outcomes (default: all)")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "wait for new outcomes and print them, until interrupted")
	cmd.Flags().StringVar(&f.reader, "reader", "", "continue after the last acknowledgement of this `NAME` in outcomes.readers")
	cmd.Flags().BoolVar(&f.ack, "ack", false, "acknowledge printed outcomes for --reader")
	cmd.AddCommand(outcomesCopyCommand(p))
	return cmd
}

// followEvery is how often several feeds are polled, and outcomesAtATime is how many outcomes are read at once.
const (
	followEvery     = 200 * time.Millisecond
	outcomesAtATime = 1000
)

func (p *program) outcomes(cmd *cobra.Command, f *outcomesFlags) error {
	switch flags := cmd.Flags(); {
	case f.limit < 0 || f.limit == 0 && flags.Changed("limit"):
		return cli.Usage("give at least 1, or leave it out for all", "--limit %d is too few", f.limit)
	case f.after == "" && flags.Changed("after"):
		return emptyFlag("after")
	case f.ack && f.reader == "":
		return cli.Usage("name it with --reader", "--ack needs the reader that acknowledges")
	}
	d, err := p.at(cmd.Context())
	if err != nil {
		return err
	}
	defer d.Close()
	tails, err := tailsOf(cmd.Context(), d, f)
	if err != nil {
		return err
	}
	return p.follow(cmd.Context(), tails, f)
}

// tail is one gateway's feed, and how far it was printed.
type tail struct {
	at      remote.Desk
	gateway string
	after   string
	reader  string // whose position it starts at; empty once it has started
	owed    bool   // what was printed is not acknowledged yet
}

// tailsOf returns the selected feeds.
func tailsOf(ctx context.Context, d remote.Desk, f *outcomesFlags) (all []*tail, err error) {
	names, err := remote.Named.Ask(ctx, d, remote.At{Gateways: f.gateways})
	if err != nil {
		return nil, err
	}
	of := names.Gateways
	if len(f.gateways) == 0 && len(names.Told) > 0 {
		of = names.Told
	}
	if f.after != "" && len(of) > 1 {
		return nil, cli.Usage("name the gateway with -g", "--after is a cursor of one gateway, and several have outcomes")
	}
	for _, name := range of {
		all = append(all, &tail{at: d, gateway: name, after: f.after, reader: f.reader})
	}
	return all, nil
}

// awayEvery is how often --follow retries while there is no answer.
const awayEvery = time.Second

// follow prints the feeds' outcomes, in turn, and with --follow those to come, even if Redis or the dispatcher
// was unreachable in between.
func (p *program) follow(ctx context.Context, tails []*tail, f *outcomesFlags) error {
	left, away, wait := f.limit, false, time.Duration(0)
	for {
		printed, err := p.printTails(ctx, tails, f, wait, &left)
		if err == nil && (f.limit > 0 && left == 0 || printed == 0 && !f.follow) {
			return nil
		}
		if wait = 0; printed == 0 {
			wait = followEvery
		}
		if gone := f.follow && ctx.Err() == nil && (redisdb.Away(err) || err != nil && job.CodeOf(err) == job.CodeUnavailable); gone != away {
			away = gone
			p.sayAway(err)
		}
		if err != nil && !away {
			return err
		}
		if away {
			if err := clock.Wait(ctx, awayEvery); err != nil {
				return err
			}
		}
	}
}

// sayAway says once that outcomes can't be read, and once that they can again; err is why, or nil.
func (p *program) sayAway(err error) {
	switch {
	case p.Quiet:
	case err != nil:
		fmt.Fprintf(p.Say(), "outcomes can't be read now, and are printed when they can: %v\n", err)
	default:
		fmt.Fprintln(p.Say(), "outcomes are read again")
	}
}

// printTails prints the next outcomes of each feed, up to left if there is a limit, and returns how many. Only
// the first feed waits for one.
func (p *program) printTails(ctx context.Context, tails []*tail, f *outcomesFlags, wait time.Duration, left *int) (printed int, err error) {
	for i, t := range tails {
		q := remote.OutcomesOf{Limit: outcomesAtATime}
		if f.limit > 0 {
			q.Limit = min(q.Limit, *left)
		}
		if i == 0 && wait > 0 { // the others have the same time
			q.Wait = wait.String()
		}
		n, err := p.printOutcomes(ctx, t, q, f)
		if printed, *left = printed+n, *left-n; err != nil || f.limit > 0 && *left == 0 {
			return printed, err
		}
	}
	return printed, nil
}

// printOutcomes prints the next outcomes of a feed, up to a limit, and acknowledges them if requested.
func (p *program) printOutcomes(ctx context.Context, t *tail, q remote.OutcomesOf, f *outcomesFlags) (n int, err error) {
	q.Gateway, q.After, q.Reader = t.gateway, t.after, t.reader
	_, err = remote.Outcomes.Do(ctx, t.at, q, remote.Out[feed.Outcome]{Line: func(o feed.Outcome) error {
		n++
		t.after, t.owed = o.Cursor, f.ack
		return cli.WriteJSON(p.Out, o)
	}})
	if err != nil {
		return n, err
	}
	if t.after != "" {
		t.reader = ""
	}
	if t.owed {
		if _, err = remote.AckOutcomes.Ask(ctx, t.at, remote.AckOf{Gateway: t.gateway, Reader: f.reader, Cursor: t.after}); err == nil {
			t.owed = false
		}
	}
	return n, err
}
