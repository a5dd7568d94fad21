package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/handoff"
	"spillway/internal/job"
	"spillway/internal/postgres"
	"spillway/internal/webhook"
)

// copyFlags are the flags of "outcomes copy".
type copyFlags struct {
	gateways []string
	to       string
	table    string
	reader   string
	rows     int
	sign     bool
	secrets  []string
	once     bool
}

func outcomesCopyCommand(p *program) *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use: "copy --to URL --reader NAME", Short: "Copy outcomes into PostgreSQL, each exactly once, or send them as signed webhooks",
		Long: `Copy delivers the outcomes of gateways to a reader as they happen, until SIGTERM or SIGINT.

Into a PostgreSQL table: each outcome is in it exactly once, whatever is killed. Rows and the reader's
cursor are written in one transaction; then the outcomes are acknowledged. The table, and one for the
cursors (TABLE_cursors), are created if missing. Several processes may copy for the same reader: one writes
at a time.

To an HTTP receiver, as Standard Webhooks, each a CloudEvent: in order within a job, retried until it
answers 2xx, then acknowledged. If copy is killed in between, some are sent again, with the same webhook-id.
If the receiver permanently refuses one (410, 4xx), copy stops with exit code 1 after sending those of the
other gateways: nothing is lost, and it says what to do.

While Redis or the destination is away, it waits and then continues. With --once it ends when there is
nothing left to copy, or when either was away for 30 s (exit code 5).`,
		Example: "  dispatcher outcomes copy --to 'postgres://ledger:${PGPASSWORD}@db/billing' --table outcomes --reader ledger\n" +
			"  dispatcher outcomes copy -g stripe --to '${file:/run/secrets/ledger-url}' --table billing.outcomes --reader ledger --once -o json\n" +
			"  dispatcher outcomes copy --to https://erp.example/hooks --sign --secret '${file:/run/secrets/webhook}' --reader mailer",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.copyOutcomes(cmd.Context(), f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only outcomes at this `GATEWAY`; repeatable (default: all with this reader)")
	cmd.Flags().StringVar(&f.to, "to", "", "the destination `URL`: postgres://… or https://…; use ${NAME} or ${file:PATH} to keep its password hidden")
	cmd.Flags().StringVar(&f.table, "table", "", "the PostgreSQL `TABLE`, with or without its schema")
	cmd.Flags().StringVar(&f.reader, "reader", "", "the `NAME` of outcomes.readers that acknowledges")
	cmd.Flags().IntVar(&f.rows, "rows", 2000, "at most `N` rows in one transaction")
	cmd.Flags().BoolVar(&f.sign, "sign", false, "sign the webhooks")
	cmd.Flags().StringArrayVar(&f.secrets, "secret", []string{"${WEBHOOK_SECRET}"}, "the signing `SECRET`, as ${NAME} or ${file:PATH}; give two while the receiver changes from one to the other")
	cmd.Flags().BoolVar(&f.once, "once", false, "end when there is nothing left to copy")
	return cmd
}

// copyPatience is how long --once waits for Redis or the destination.
const copyPatience = 30 * time.Second

// copied is the result of "outcomes copy".
type copied struct {
	Copied   int64        `json:"copied"` // outcomes copied by this run
	Gateways []copiedLane `json:"gateways"`
}

type copiedLane struct {
	Gateway string `json:"gateway"`
	Copied  int64  `json:"copied"`
	Cursor  string `json:"cursor"` // up to which outcomes are copied; empty: none yet
}

func (p *program) copyOutcomes(ctx context.Context, f *copyFlags) error {
	switch {
	case f.reader == "":
		return cli.Usage("name one of outcomes.readers: --reader ledger", "no --reader is named")
	case f.to == "":
		return cli.Usage("say --to postgres://user@host/database, or --to https://host/path", "--to does not say where they go")
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
		err = nil // the normal way to stop
	}
	if code := job.CodeOf(err); err != nil && (code == job.CodeUsage || code == job.CodeNotFound) {
		return err
	}
	return errors.Join(err, p.reportCopied(lanes))
}

// sinkOf returns the destination, and how many outcomes to copy at once.
func (p *program) sinkOf(f *copyFlags) (sink handoff.Sink, page int, closeSink func(), err error) {
	to, err := config.FlagSecret("--to", f.to)
	if err != nil {
		return nil, 0, nil, err
	}
	p.WarnOfPassword(p.Streams, "--to", f.to, "write ${NAME} in its place, for a variable, or ${file:PATH}")
	address := to.Reveal()
	switch {
	case strings.HasPrefix(address, "https://"), strings.HasPrefix(address, "http://"):
		return p.receiver(address, f)
	case !postgres.Is(address):
		return nil, 0, nil, cli.Usage("write postgres://user@host/database, or https://host/path", "--to is not an address of a PostgreSQL or a receiver")
	case f.table == "":
		return nil, 0, nil, cli.Usage("say --table outcomes: it is made where it is missing", "no --table is named")
	case f.rows < 1:
		return nil, 0, nil, cli.Usage("give at least 1, or leave it out", "--rows %d is too few", f.rows)
	}
	db, err := postgres.New(address)
	if err != nil {
		return nil, 0, nil, err
	}
	table, err := postgres.NewTable(db, f.table, f.reader)
	return table, f.rows, func() { db.Close(context.Background()) }, err
}

// sentAtATime is how many outcomes are read for webhooks at once; they are acknowledged together.
const sentAtATime = 200

// receiver returns the sender of webhooks.
func (p *program) receiver(address string, f *copyFlags) (handoff.Sink, int, func(), error) {
	switch {
	case !f.sign:
		return nil, 0, nil, cli.Usage("say --sign, with --secret '${file:PATH}' or $WEBHOOK_SECRET", "webhooks go out signed")
	case f.table != "":
		return nil, 0, nil, cli.Usage("leave it out", "--table is for a PostgreSQL")
	case strings.HasPrefix(address, "http://") && !p.Quiet:
		fmt.Fprintln(p.Err, "warning: http:// shows outcomes to anyone on the way; use https://")
	}
	var secrets []string
	for _, text := range f.secrets {
		if !strings.Contains(text, "${") {
			return nil, 0, nil, cli.Usage("write ${NAME} or ${file:PATH} in its place", "a secret may not stand in --secret: every user of this machine could see it")
		}
		secret, err := config.FlagSecret("--secret", text)
		if err != nil {
			return nil, 0, nil, err
		}
		secrets = append(secrets, strings.Fields(secret.Reveal())...)
	}
	sender, err := webhook.New(webhook.Config{URL: address, Secrets: secrets, Reader: f.reader})
	return sender, sentAtATime, func() {}, err
}

// lanesOf returns the selected feeds.
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
