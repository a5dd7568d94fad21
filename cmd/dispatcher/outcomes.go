package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
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
		Use: "outcomes [-g GATEWAY]...", Short: "Print what became of jobs, a line each, as it happens",
		Long: `Outcomes prints the outcome feed of gateways that have "outcomes" in the configuration: a line of JSON for
each job that was parked, done or discarded, and for each batch of which no job is left, oldest first.

Each line has a cursor. A reader that keeps the last one, best with its own work in one transaction, has every
outcome exactly once: it goes on with --after. With --reader it goes on where that reader has acknowledged;
--ack acknowledges what was printed, as soon as it is.`,
		Example: "  dispatcher outcomes -g stripe\n  dispatcher outcomes -g stripe --after 1763742851-1763742851000001 --follow\n  dispatcher outcomes -g stripe --reader mailer --ack",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.outcomes(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only outcomes at this `GATEWAY`; repeatable (default: all of the file that have a feed)")
	cmd.Flags().StringVar(&f.after, "after", "", "only outcomes behind this `CURSOR` of a line (default: all that are kept)")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most `N` outcomes (default: all)")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "wait for further outcomes and print them, until it is interrupted")
	cmd.Flags().StringVar(&f.reader, "reader", "", "go on where this `NAME` of outcomes.readers has acknowledged")
	cmd.Flags().BoolVar(&f.ack, "ack", false, "acknowledge what was printed, for --reader")
	cmd.AddCommand(outcomesCopyCommand(p))
	return cmd
}

// followEvery is how often several feeds are looked at for news, and outcomesAtATime how many are read at a time.
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
	s, err := p.openAt(cmd.Context(), f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	tails, err := tailsOf(cmd.Context(), s.desk, f)
	if err != nil {
		return err
	}
	return p.follow(cmd.Context(), tails, f)
}

// tail is one gateway's feed, and how far it was printed.
type tail struct {
	*desk.Outcomes
	after string
}

// tailsOf returns the feeds that are meant.
func tailsOf(ctx context.Context, d *desk.Desk, f *outcomesFlags) (all []*tail, err error) {
	of := d.Gateways
	if told := d.Told(); len(f.gateways) == 0 && len(told) > 0 {
		of = told
	}
	if f.after != "" && len(of) > 1 {
		return nil, cli.Usage("name the gateway with -g", "--after is a cursor of one gateway, and several have outcomes")
	}
	for _, g := range of {
		o, err := g.Outcomes()
		if err != nil {
			return nil, err
		}
		t := &tail{o, f.after}
		if f.reader != "" {
			acked, err := o.Acked(ctx, f.reader)
			if err != nil {
				return nil, err
			}
			if f.after == "" {
				t.after = acked
			}
		}
		all = append(all, t)
	}
	return all, nil
}

// follow prints what the feeds have, in turn, and with --follow what is still to come.
func (p *program) follow(ctx context.Context, tails []*tail, f *outcomesFlags) error {
	left := f.limit
	for {
		printed := 0
		for _, t := range tails {
			most := outcomesAtATime
			if f.limit > 0 {
				most = min(most, left)
			}
			n, err := p.printOutcomes(ctx, t, most, f)
			if err != nil {
				return err
			}
			if printed, left = printed+n, left-n; f.limit > 0 && left == 0 {
				return nil
			}
		}
		switch {
		case printed > 0:
		case !f.follow:
			return nil
		default:
			if err := tails[0].Wait(ctx, tails[0].after, followEvery); err != nil { // the others have so long
				return err
			}
		}
	}
}

// printOutcomes prints the next outcomes of a feed, up to so many, and acknowledges them where that is asked for.
func (p *program) printOutcomes(ctx context.Context, t *tail, most int, f *outcomesFlags) (int, error) {
	page, err := t.Read(ctx, t.after, most)
	if err != nil {
		return 0, err
	}
	for _, o := range page {
		if err := cli.WriteJSON(p.Out, o); err != nil {
			return 0, err
		}
		t.after = o.Cursor
	}
	if f.ack && len(page) > 0 {
		_, err = t.Ack(ctx, f.reader, t.after)
	}
	return len(page), err
}
