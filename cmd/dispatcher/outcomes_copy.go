package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/handoff"
	"spillway/internal/job"
	"spillway/internal/postgres"
)

// copyFlags are the flags of "outcomes copy".
type copyFlags struct {
	gateways []string
	to       string
	table    string
	reader   string
	rows     int
	once     bool
}

func outcomesCopyCommand(p *program) *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use: "copy --to postgres://… --table TABLE --reader NAME", Short: "Copy what became of jobs into a PostgreSQL, each exactly once",
		Long: `Copy writes the outcomes of gateways into a table, as they happen, until SIGTERM or SIGINT: each outcome
is in it exactly once, whatever is killed. Rows and the reader's cursor are written in one transaction; the
outcomes are acknowledged after it. The table, and one for the cursors (TABLE_cursors), are made where they are missing.

While Redis or PostgreSQL is away it waits, and goes on by itself. With --once it ends when there is nothing left to
copy, or when one of them was away for 30 s (exit code 5). Several may copy for the same reader: one writes at a time.`,
		Example: "  dispatcher outcomes copy --to 'postgres://ledger:${PGPASSWORD}@db/billing' --table outcomes --reader ledger\n" +
			"  dispatcher outcomes copy -g stripe --to '${file:/run/secrets/ledger-url}' --table billing.outcomes --reader ledger --once -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.copyOutcomes(cmd.Context(), f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only outcomes at this `GATEWAY`; repeatable (default: all that the reader is one of)")
	cmd.Flags().StringVar(&f.to, "to", "", "the `URL` where they go: postgres://…; with ${NAME} and ${file:PATH} it shows nobody its password")
	cmd.Flags().StringVar(&f.table, "table", "", "the `TABLE` of the PostgreSQL, with or without its schema")
	cmd.Flags().StringVar(&f.reader, "reader", "", "the `NAME` of outcomes.readers that acknowledges")
	cmd.Flags().IntVar(&f.rows, "rows", 2000, "at most `N` rows in one transaction")
	cmd.Flags().BoolVar(&f.once, "once", false, "end when there is nothing left to copy")
	return cmd
}

// copyPatience is how long --once waits for Redis or what it copies to.
const copyPatience = 30 * time.Second

// copied is what "outcomes copy" did.
type copied struct {
	Copied   int64        `json:"copied"` // outcomes, by this run
	Gateways []copiedLane `json:"gateways"`
}

type copiedLane struct {
	Gateway string `json:"gateway"`
	Copied  int64  `json:"copied"`
	Cursor  string `json:"cursor"` // up to which they are there; empty: there was none yet
}

func (p *program) copyOutcomes(ctx context.Context, f *copyFlags) error {
	switch {
	case f.reader == "":
		return cli.Usage("name one of outcomes.readers: --reader ledger", "no --reader is named")
	case f.to == "":
		return cli.Usage("say --to postgres://user@host/database", "--to does not say where they go")
	}
	sink, page, closeSink, err := p.sinkOf(f)
	if err != nil {
		return err
	}
	defer closeSink()
	s, err := p.openAt(ctx, f.gateways)
	if err != nil {
		return err
	}
	defer s.close()
	lanes, err := lanesOf(ctx, s.desk, f)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		if !p.Quiet {
			fmt.Fprintf(p.Say(), format+"\n", args...)
		}
	}
	err = handoff.New(handoff.Config{Reader: f.reader, Sink: sink, Page: page, Once: f.once, Patience: copyPatience, Say: say}, lanes).Run(ctx)
	if !f.once && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // that is how it ends
	}
	if code := job.CodeOf(err); err != nil && (code == job.CodeUsage || code == job.CodeNotFound) {
		return err
	}
	return errors.Join(err, p.reportCopied(lanes))
}

// sinkOf returns where the outcomes go, and how many at a time.
func (p *program) sinkOf(f *copyFlags) (sink handoff.Sink, page int, closeSink func(), err error) {
	to, err := config.FlagSecret("--to", f.to)
	if err != nil {
		return nil, 0, nil, err
	}
	p.WarnOfPassword(p.Streams, "--to", f.to, "write ${NAME} in its place, for a variable, or ${file:PATH}")
	switch {
	case !postgres.Is(to.Reveal()):
		return nil, 0, nil, cli.Usage("write postgres://user@host/database", "--to is no address of a PostgreSQL")
	case f.table == "":
		return nil, 0, nil, cli.Usage("say --table outcomes: it is made where it is missing", "no --table is named")
	case f.rows < 1:
		return nil, 0, nil, cli.Usage("give at least 1, or leave it out", "--rows %d is too few", f.rows)
	}
	db, err := postgres.New(to.Reveal())
	if err != nil {
		return nil, 0, nil, err
	}
	table, err := postgres.NewTable(db, f.table, f.reader)
	return table, f.rows, func() { db.Close(context.Background()) }, err
}

// lanesOf returns the feeds that are meant.
func lanesOf(ctx context.Context, d *desk.Desk, f *copyFlags) (lanes []*handoff.Lane, err error) {
	of := d.Gateways
	if len(f.gateways) == 0 {
		if of, err = d.ToldTo(f.reader); err != nil {
			return nil, err
		}
	}
	for _, g := range of {
		o, err := g.Outcomes()
		if err != nil {
			return nil, err
		}
		if _, err := o.Acked(ctx, f.reader); job.CodeOf(err) == job.CodeNotFound {
			return nil, err
		}
		lanes = append(lanes, &handoff.Lane{Gateway: g.Name, Source: o})
	}
	return lanes, nil
}

func (p *program) reportCopied(lanes []*handoff.Lane) error {
	var all copied
	for _, l := range lanes {
		all.Copied += l.Copied
		all.Gateways = append(all.Gateways, copiedLane{l.Gateway, l.Copied, l.Cursor})
	}
	if p.JSON() {
		return cli.WriteJSON(p.Out, all)
	}
	table := cli.NewTable(p.Streams, time.Now(), "GATEWAY", "COPIED", "UP TO")
	for _, l := range all.Gateways {
		table.Row(l.Gateway, l.Copied, l.Cursor)
	}
	return table.Flush()
}
