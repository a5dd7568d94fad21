package main

import (
	"cmp"
	"math/big"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/producer"
)

// flags is the command line as typed.
type flags struct {
	cli.Common
	gateway, file, batch     string
	format, idField          string
	route, routeField        string
	class, lane              string
	separator, decimal       string
	encoding                 string
	show                     int
	onFull                   string
	at, expires              string
	why                      string // for --replace
	from, query, idColumn    string // for a PostgreSQL source
	outbox                   string
	follow                   bool
	canary                   int64 // how many jobs go first; 0: no canary
	dryRun, replace, yes     bool
	withoutAmount            bool // a replacement may remove an amount
	rejects                  string
	expectCount, expectSum   string
	patience                 time.Duration
	expectsCount, expectsSum bool
	canaries                 bool // --canary was given
}

// options is the parsed command line.
type options struct {
	flags
	mode  admission.Mode
	read  producer.Options
	count *big.Int // --expect-count; nil if not given
	// unasked makes a replacement a dry run, because there is no terminal to confirm it.
	unasked bool
	sum     *big.Int    // --expect-sum of one currency; nil if not given
	sums    job.Amounts // --expect-sum by currency; nil if not given
}

// addsUp reports whether sums are expected.
func (o options) addsUp() bool { return o.sum != nil || o.sums != nil }

const long = `Enqueue reads a billing file as a stream, in constant memory, and passes each job to admission. It
reports the result of every job. Running it again on the same file is safe: known jobs are counted
as duplicate.

NDJSON: one object per line, {"id": "...", "payload": {...}}, optionally with "gateway", "route", "lane", "priority", "cost", "at",
"expires" and "batch", which override the flags. A line of "dispatcher dlq export" may have "sealed"
instead of "payload": it needs the key, and is accepted only as the same job. With --id-field the
line itself is the payload, and that field its id. CSV: a header row, then one record per job, whose
payload is an object of strings; needs --id-field. --separator, --decimal and --encoding adapt to
the output of spreadsheets and ERP systems. If the gateway has a map in the configuration, it makes
the payload from the line.

Invalid lines are reported on standard error as "line N: ..." and written to --rejects unchanged; the
others are enqueued (exit code 3). For each kind of fault, the first 100 lines are reported.

The report counts read = enqueued + waiting for room ("parked" in JSON) + duplicate + invalid +
failed; failed are jobs that were read and not accepted. With --dry-run that is every valid job,
because nothing is sent to Redis: "usable" counts them. Duplicates and equal ids with another
payload show only in a real run. A dry run also sums the money of the jobs, and with --show 3 prints
how the first three jobs of each gateway would be called, including payloads, which may hold
personal data.

--expect-count and --expect-sum are control totals over the valid jobs of the whole file. The sum is
in minor units of the field named by the gateway's amount.field, or in units of each currency:
EUR=9635.86,JPY=1050. A difference, or a line with an unreadable amount, refuses the file before the
first job is enqueued (exit code 3).

--canary 20 calls the first 20 jobs of the batch first, at each gateway. The whole file is enqueued
at once; the other jobs are parked as paused until those are done, and are then admitted
automatically. If one of them is parked or discarded, the batch stops itself: "dispatcher batch
NAME" says why. Running the same command again shows its state: exit code 3 if it has stopped.

--from reads rows of a PostgreSQL instead of a file. With --query each row becomes a job, like a line
of NDJSON with --id-field: numerics keep all digits, times are in UTC, jsonb is nested. With
--outbox the rows of a table are enqueued, each once by its id, and marked as accepted, or with the
reason why they can't be jobs.

--replace gives parked jobs another payload and enqueues them again, with the next generation of
their idempotency key. The lines may be the edited output of "dispatcher dlq show --payload -o
json", list and export; only the payload may change. A job that already has this payload is a
duplicate. A line is invalid if its job isn't parked, may have been charged by an earlier call, or
would lose a readable amount (unless --without-amount). A job without room stays parked with its new
payload; so does a job of a paused batch, until that is resumed. It shows the jobs and their money
before and after, and asks on a terminal; elsewhere it is a dry run, unless --yes.`

const example = `  enqueue -g stripe -f november.ndjson --batch 2026-11
  enqueue -g stripe -f november.csv --id-field invoice --rejects bad.csv
  enqueue -g stripe -f erp.csv --id-field Rechnung --separator ';' --decimal ',' --encoding latin-1 --dry-run --show 3
  enqueue -g stripe -f november.ndjson --expect-count 1000 --expect-sum EUR=12345.00
  dispatcher dlq show inv-7 --payload -o json | jq -c '.payload.amount = 990' | enqueue --replace -f - --yes
  enqueue -g stripe -f november.ndjson --batch 2026-11 --canary 20
  enqueue -g stripe --from 'postgres://billing:${PGPASSWORD}@db/billing?sslmode=verify-full' --query 'SELECT invoice, amount, currency FROM due' --id-column invoice
  enqueue --from '${file:/run/secrets/billing-url}' --outbox payment_outbox --follow
  gunzip -c november.ndjson.gz | enqueue -g stripe -f - -o json`

// noArgs rejects the extra arguments that a shell pattern produces when it matches several files.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.Usage("name one file, with -f; several can come one after the other: cat november-*.ndjson | enqueue -f -", "unexpected argument %q", args[0])
}

func (f *flags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.gateway, "gateway", "g", "", "`GATEWAY` of lines that name none")
	cli.Once(cmd, &f.file, "file", "f", "billing `FILE`; - is standard input")
	fs.StringVar(&f.batch, "batch", "", "`NAME` of the batch, for dispatcher batch NAME")
	fs.StringVar(&f.idField, "id-field", "", "`FIELD` with the id; the line itself is the payload")
	fs.StringVar(&f.route, "route", "", "`ROUTE` of lines that name none")
	fs.StringVar(&f.routeField, "route-field", "", "with --id-field, the `FIELD` with the route; the line itself is the payload")
	fs.StringVar(&f.class, "priority", "", "`CLASS` of lines that name none: higher classes are called first")
	fs.StringVar(&f.lane, "lane", "", "`LANE` of lines that name none, if jobs name their lanes themselves")
	cli.Choice(cmd, &f.format, "format", "format of the file: ndjson or csv (default: by file name extension, else ndjson)", "", producer.NDJSON, producer.CSV)
	fs.StringVar(&f.separator, "separator", "", "`CHARACTER` between the fields of a CSV file, or tab (default: a comma)")
	fs.StringVar(&f.decimal, "decimal", "", "`CHARACTER` before the decimals of numbers that the gateway's map reads: . or , (default: a point, and no commas)")
	cli.Choice(cmd, &f.encoding, "encoding", "encoding of the file: utf-8, latin-1 or windows-1252", producer.Encodings()...)
	cli.Choice(cmd, &f.onFull, "on-full", "how to handle jobs without room at admission", modes()...)
	fs.StringVar(&f.at, "at", "", "send no job before this `TIME`: RFC 3339, \"2026-11-30 18:00\" (local time unless it says otherwise), 2026-11-30, +90m, +2d")
	fs.StringVar(&f.expires, "expires", "", "send no job after this `TIME`, written as for --at")
	fs.BoolVar(&f.dryRun, "dry-run", false, "read, check and report, but send nothing to Redis")
	fs.IntVar(&f.show, "show", 0, "with --dry-run, print the first `N` jobs of each gateway as they would be called, with payloads")
	fs.Int64Var(&f.canary, "canary", 0, "call the first `N` jobs of the batch first; the rest waits until they are done")
	fs.BoolVar(&f.replace, "replace", false, "give parked jobs the payload of their line, and replay them")
	fs.BoolVar(&f.yes, "yes", false, "do a --replace without asking")
	fs.BoolVar(&f.withoutAmount, "without-amount", false, "let a --replace remove readable amounts")
	fs.StringVar(&f.why, "why", "", "the `REASON` of a --replace, recorded in the trail")
	fs.StringVar(&f.rejects, "rejects", "", "write invalid lines to `FILE`, to be corrected and enqueued again")
	fs.StringVar(&f.from, "from", "", "read rows of the PostgreSQL at this `URL` instead of a file; use ${NAME} or ${file:PATH} to keep its password hidden")
	fs.StringVar(&f.query, "query", "", "with --from, the `SELECT` whose rows become jobs")
	fs.StringVar(&f.idColumn, "id-column", "", "with --query, the `COLUMN` with the id; the row itself is the payload")
	fs.StringVar(&f.outbox, "outbox", "", "with --from, the `TABLE` whose rows are enqueued, each once, and marked")
	fs.BoolVar(&f.follow, "follow", false, "with --outbox, continue with new rows until SIGTERM")
	fs.StringVar(&f.expectCount, "expect-count", "", "refuse the file unless it has `N` valid jobs")
	fs.StringVar(&f.expectSum, "expect-sum", "", "refuse the file unless its amounts add up to `AMOUNT`: minor units, or EUR=9635.86,JPY=1050")
}

func modes() []string {
	var all []string
	for _, m := range admission.Modes() {
		all = append(all, string(m))
	}
	return all
}

func (f *flags) understand(now time.Time) (options, error) {
	o := options{flags: *f, mode: admission.Mode(f.onFull)}
	if o.mode == "" {
		o.mode = admission.Park
	}
	if err := f.checkFrom(&o); err != nil {
		return o, err
	}
	if f.file == "" && f.from == "" {
		return o, cli.Usage("name the billing file: -f november.ndjson, or -f - for standard input", "no file is named")
	}
	if err := f.checkCards(); err != nil {
		return o, err
	}
	if err := f.checkReplace(); err != nil {
		return o, err
	}
	if err := f.checkCanary(); err != nil {
		return o, err
	}
	if f.show < 0 || f.show > 0 && !f.dryRun {
		return o, cli.Usage("write --dry-run --show 3, or leave it out", "--show is for a dry run, and takes a number of jobs")
	}
	at, err := timeFlag("at", f.at, now)
	if err != nil {
		return o, err
	}
	expires, err := timeFlag("expires", f.expires, now)
	if err != nil {
		return o, err
	}
	o.read = producer.Options{Format: cmp.Or(f.format, producer.FormatOf(f.file)), IDField: cmp.Or(f.idField, f.idColumn), Gateway: f.gateway, Batch: f.batch, Class: f.class, Lane: f.lane, Route: f.route, RouteField: f.routeField, At: at, Expires: expires,
		Shown: f.replace, Encoding: f.encoding, Flags: true}
	if o.read.Separator, err = cli.Character("separator", f.separator); err != nil {
		return o, err
	}
	if o.read.Decimal, err = cli.Character("decimal", f.decimal); err != nil {
		return o, err
	}
	return o, f.understandTotals(&o)
}

// understandTotals parses the control totals.
func (f *flags) understandTotals(o *options) (err error) {
	if o.count, err = wholeFlag("expect-count", f.expectCount, f.expectsCount); err != nil {
		return err
	}
	if o.count != nil && o.count.Sign() < 0 {
		return cli.Usage("give the number of usable jobs in the file", "--expect-count %s is not a number of jobs", f.expectCount)
	}
	if strings.Contains(f.expectSum, "=") {
		o.sums, err = sumsFlag(f.expectSum)
		return err
	}
	o.sum, err = wholeFlag("expect-sum", f.expectSum, f.expectsSum)
	return err
}

// sumsFlag parses sums by currency, each in units of its currency.
func sumsFlag(text string) (job.Amounts, error) {
	const hint = "write each currency once, with its sum in its own units: EUR=9635.86,JPY=1050"
	sums := job.Amounts{}
	for part := range strings.SplitSeq(text, ",") {
		code, sum, is := strings.Cut(strings.TrimSpace(part), "=")
		if !is && job.Digits(code) {
			return nil, cli.Usage("between currencies stands a comma, and before decimals a point: EUR=9635.86,JPY=1050", "--expect-sum: %q says no currency", code)
		}
		code = strings.ToUpper(code)
		digits, listed := job.CurrencyDigits(code)
		whole, fraction, _ := strings.Cut(sum, ".")
		_, twice := sums[code]
		switch {
		case !listed:
			return nil, cli.Usage(hint, "--expect-sum: ISO 4217 lists no currency %q", code)
		case twice:
			return nil, cli.Usage(hint, "--expect-sum: %s is there twice", code)
		case !job.Digits(strings.TrimPrefix(whole, "-")) || strings.Contains(sum, ".") && !job.Digits(fraction):
			return nil, cli.Usage(hint, "--expect-sum: %q is not a sum of %s", sum, code)
		case len(fraction) > digits:
			return nil, cli.Usage(hint, "--expect-sum: %q has more decimals than %s, which has %d", sum, code, digits)
		}
		sums[code], _ = new(big.Int).SetString(whole+fraction+strings.Repeat("0", digits-len(fraction)), 10)
	}
	return sums, nil
}

func timeFlag(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := producer.ParseTime(text, now)
	if err != nil {
		return t, err
	}
	if t.Unix() <= 0 {
		return t, cli.Usage("give a later time", "--%s lies before 1970", flag)
	}
	return t, nil
}

func wholeFlag(flag, text string, given bool) (*big.Int, error) {
	if !given {
		return nil, nil
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || strings.HasPrefix(text, "+") {
		return nil, cli.Usage("write digits alone; amounts are in minor units: 12345 for 123.45", "--%s %q is not a whole number", flag, text)
	}
	return n, nil
}
