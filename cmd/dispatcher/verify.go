package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/verify"
)

// verifyFlags are the flags of "verify".
type verifyFlags struct {
	logs, books, limits, gateways []string
	trail, jobs, idField, prefix  string
	ordered                       bool
	slack                         string
	most                          int
}

const noOrder = "none"

func verifyCommand(p *program) *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use: "verify --provider-log [GATEWAY=]FILE --books FILE [--trail FILE] [--limit LIMIT]...", Short: "Compare a provider's log with exports: limits, losses, charges, order, money",
		Long: `Verify reads a provider's log, the output of "dispatcher export" or "batch NAME --export" and, if given, a
"trail export" and the billing file, and reports contradictions: a rolling window with too many calls, a
done job that was never called, a job charged twice, sums that differ. It needs neither Redis nor the
configuration, and shares no code with the programs it checks. The log is NDJSON or CSV; docs/verify.md
lists its fields, so that any provider's log can be converted.

A limit is 100/s, 5000/m or 300/10s, in whole microseconds. path=25/s applies to the calls to each path,
path:/v1/refunds=5/s to those to one path; header:Stripe-Account=5/s to those of each value of a header,
header:Stripe-Account:acct_1=5/s to those of one value. With @GATEWAY at its end it applies to one gateway,
otherwise to each.

Exit code 1 if there is a violation, and 3 if there is none but some lines were invalid.`,
		Example: "  curl -s http://127.0.0.1:9500/calls > calls.ndjson && dispatcher export -o json > books.ndjson && dispatcher trail export > trail.ndjson\n" +
			"  dispatcher verify --provider-log calls.ndjson --books books.ndjson --trail trail.ndjson --limit 100/s --limit 5000/m\n" +
			"  dispatcher verify --provider-log stripe=s.csv --provider-log adyen=a.csv --books books.csv --limit 100/s@stripe --limit header:X-Lane=5/s@adyen -o json\n" +
			"  dispatcher verify --provider-log calls.ndjson --books batch.ndjson --ordered --jobs november.ndjson --limit 100/s",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.verify(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.logs, "provider-log", nil, "the provider's log, as `[GATEWAY=]FILE`; repeatable; required")
	fs.StringArrayVar(&f.books, "books", nil, "`FILE` of \"export\" or \"batch NAME --export\", NDJSON or CSV; repeatable; required")
	fs.StringVar(&f.trail, "trail", "", "`FILE` of \"trail export\"")
	fs.StringVar(&f.jobs, "jobs", "", "the billing file, or a list of ids, as `FILE`: each of its jobs must be in --books")
	fs.StringVar(&f.idField, "id-field", "id", "the `FIELD`, dotted path or column of --jobs with the id")
	fs.StringArrayVar(&f.limits, "limit", nil, "`LIMIT` that must hold in every rolling window, like 100/s or path=25/s@stripe; repeatable")
	gatewaysFlag(cmd, &f.gateways, "check only this `GATEWAY`; repeatable (default: all)")
	fs.StringVar(&f.prefix, "key-prefix", "", "`TEXT` before the job's id in the keys of the log (request.idempotency_prefix)")
	fs.BoolVar(&f.ordered, "ordered", false, "--books is in file order, as \"batch NAME --export\" writes them")
	fs.StringVar(&f.slack, "order-slack", "10s", "how much later than a following job a job may first be called, as `TIME`; none: order is not checked")
	fs.IntVar(&f.most, "most", 100, "list at most `N` findings of a kind; all are counted")
	return cmd
}

// gatewayFile matches a file name with a gateway's name before it.
var gatewayFile = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]*)=(.+)$`)

// opened are open files.
type opened []io.Closer

func (o *opened) input(name, flag string) (in verify.Input, err error) {
	if m := gatewayFile.FindStringSubmatch(name); m != nil && flag == "--provider-log" {
		in.Gateway, name = m[1], m[2]
	}
	file, err := cli.OpenFile(name, flag)
	if err != nil {
		return in, err
	}
	*o = append(*o, file)
	in.Name, in.Reader = name, file
	return in, nil
}

func (o *opened) close() {
	for _, c := range *o {
		_ = c.Close()
	}
}

// params parses the flags, and opens the files.
func (f *verifyFlags) params(files *opened) (v verify.Params, err error) {
	switch {
	case len(f.logs) == 0:
		return v, cli.Usage("name it: --provider-log calls.ndjson", "there is no log of the provider")
	case len(f.books) == 0:
		return v, cli.Usage("name it: --books books.ndjson, which dispatcher export writes", "there are no books")
	case f.most < 0:
		return v, cli.Usage("give a number from 0 up", "--most %d is below 0", f.most)
	}
	v = verify.Params{IDField: f.idField, Gateways: f.gateways, KeyPrefix: f.prefix, Ordered: f.ordered, Most: f.most, Slack: -1}
	if f.slack != noOrder {
		if v.Slack, err = time.ParseDuration(f.slack); err != nil || v.Slack < 0 {
			return v, cli.Usage("write a time like 10s, or none", "--order-slack %q is not understood", f.slack)
		}
	}
	for _, text := range f.limits {
		limit, err := verify.ParseLimit(text)
		if err != nil {
			return v, cli.Usage("see dispatcher verify --help", "--limit: %v", err)
		}
		v.Limits = append(v.Limits, limit)
	}
	for _, name := range f.logs {
		in, err := files.input(name, "--provider-log")
		if err != nil {
			return v, err
		}
		v.Logs = append(v.Logs, in)
	}
	for _, name := range f.books {
		in, err := files.input(name, "--books")
		if err != nil {
			return v, err
		}
		v.Books = append(v.Books, in)
	}
	for _, one := range []struct {
		name, flag string
		to         **verify.Input
	}{{f.trail, "--trail", &v.Trail}, {f.jobs, "--jobs", &v.Jobs}} {
		if one.name == "" {
			continue
		}
		in, err := files.input(one.name, one.flag)
		if err != nil {
			return v, err
		}
		*one.to = &in
	}
	return v, nil
}

func (p *program) verify(ctx context.Context, f *verifyFlags) error {
	var files opened
	defer files.close()
	params, err := f.params(&files)
	if err != nil {
		return err
	}
	result, err := verify.Run(ctx, params)
	if wrong, is := errors.AsType[*verify.WrongUse](err); is {
		return cli.Usage(wrong.Hint, "%s", wrong.Message)
	}
	if err != nil {
		return err
	}
	if p.JSON() {
		err = cli.WriteJSON(p.Out, result)
	} else {
		err = p.verifyTables(result)
	}
	return errors.Join(err, verified(result))
}

// verified returns the verdict as an error; nil if nothing is wrong.
func verified(r *verify.Result) error {
	unread := r.Counts[verify.Unreadable]
	switch n := r.Violations(); {
	case n > 0:
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("what the provider saw and the books do not fit: %s", counted(int(n), "violation")), Hint: "docs/verify.md says what each means, and what to look at"}
	case unread > 0:
		return &job.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("nothing is wrong in what could be read, and %s could not be used", counted(int(unread), "line")), Hint: "mend these lines: they may hide something"}
	}
	return nil
}

// verifyTables writes what was compared, and a line for each finding.
func (p *program) verifyTables(r *verify.Result) error {
	now := time.Now()
	sides := cli.NewTable(p.Streams, now, "GATEWAY", "JOBS", "DONE", "CALLS", "LOOK-UPS", "429", "CHARGES", "IN DOUBT")
	for _, s := range r.Gateways {
		sides.Row(s.Gateway, s.Jobs, s.Done, s.Calls, s.Lookups, s.TooMany, s.Charges, s.InDoubt)
	}
	limits := cli.NewTable(p.Streams, now, "LIMIT", "CALLS", "FULLEST WINDOW", "FROM", "OF", "TOO MANY")
	for _, l := range r.Limits {
		limits.Row(cli.Uncut(l.Limit), l.Calls, l.Most, moments(l.Since), cli.Uncut(l.Of), l.Over)
	}
	money := cli.NewTable(p.Streams, now, "GATEWAY", "STATE", "CURRENCY", "JOBS", "IN THE BOOKS", "CHARGED")
	for _, s := range r.Money {
		money.Row(s.Gateway, s.State, s.Currency, s.Jobs, cli.Whole(s.Booked.String()), cli.Whole(s.Charged.String()))
	}
	findings := cli.NewTable(p.Streams, now, "WHAT", "GATEWAY", "JOB", "FINDING", "WHERE")
	for _, f := range r.Findings {
		findings.Row(string(f.Kind), f.Gateway, cli.Uncut(f.ID), cli.Uncut(f.Text), cli.Uncut(places(f.Where)))
	}
	for i, t := range []*cli.Table{sides, limits, money, findings} {
		if i > 0 && p.OutTerminal {
			fmt.Fprintln(p.Out)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	listed := map[verify.Kind]int64{}
	for _, f := range r.Findings {
		listed[f.Kind]++
	}
	for _, kind := range verify.Kinds() {
		if more := r.Counts[kind] - listed[kind]; more > 0 {
			fmt.Fprintf(p.Out, "%s: and %s more like it\n", kind, job.CountText(more))
		}
	}
	for _, note := range r.Notes {
		p.remark("%s", note)
	}
	return nil
}

// places lists lines of files.
func places(all []verify.Place) (text string) {
	for i, p := range all {
		if i > 0 {
			text += ", "
		}
		text += p.String()
	}
	return text
}
