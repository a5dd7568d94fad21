package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/clock"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/feed"
	"spillway/internal/handoff"
	"spillway/internal/job"
	"spillway/internal/postgres"
	"spillway/internal/redisdb"
	"spillway/internal/remote"
	"spillway/internal/webhook"
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
		Example: "  dispatcher outcomes copy --to 'postgres://ledger:${PGPASSWORD}@db/billing?sslmode=verify-full' --table outcomes --reader ledger\n" +
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
	p.Warn(p.Streams, db.Warning())
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
	case strings.HasPrefix(address, "http://"):
		p.Warn(p.Streams, "http:// shows outcomes to anyone on the way; use https://")
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
