package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/dispatch"
	"spillway/internal/job"
	"spillway/internal/producer"
	"spillway/internal/reconcile"
)

// reconcileFlags are the flags of reconcile.
type reconcileFlags struct {
	cmd                         *cobra.Command
	gateway, report             string
	columns                     map[string]string
	format, separator, decimal  string
	encoding, amounts, currency string
	ids                         string
	done, refused               []string
	since, until, batch         string
	differences                 string
	resolve                     bool
	again                       bool
	by                          string
	consent                     cli.Consent
}

const (
	amountsUnits = "units"
	amountsMinor = "minor"
)

const reconcileLong = `Reconcile compares a gateway's settlement report, CSV or NDJSON, with the records of its jobs, line by line,
and counts the jobs and the money that agree and differ. It changes nothing, unless --resolve.

--map names the report's columns (in NDJSON, fields or dotted paths): id is required; amount, currency,
status and reference are compared if they are named. Amounts are in units of their currency (49.00), and are
read as "enqueue" reads them; with --amounts minor they are whole numbers of minor units. If the map names
no status, every line is a charge. If it does, --done says which statuses are charges, and --refused which
are refusals; lines of other statuses are skipped and counted.

Every line is compared with the records of all jobs of the gateway. --since and --until, or --batch, select
the jobs that must be in the report; without them, all done jobs must be. A record is kept for "dedupe"
after the job's end; after that, its charge counts as not ours.

--resolve settles the parked jobs in doubt that the report makes clear, as "dlq resolve" does, with a trail
entry for each. A job charged once, with the amount and currency of its record and no other line, becomes
done with the report's reference. With --again, a job that was refused, was called exactly once and has only
refusals in the report counts as not done: it goes through admission again with its next key, and is called.
If the id of an invalid line can't be read, the line may belong to any job: then none is called again.
Nothing else is changed. It asks on a terminal; elsewhere it is a dry run, unless --yes.

Exit code 3: there are differences, or some lines were invalid.`

func reconcileCommand(p *program) *cobra.Command {
	f := &reconcileFlags{}
	cmd := &cobra.Command{
		Use: "reconcile --report FILE --map id=COLUMN,… [-g GATEWAY] [flags]", Short: "Compare a gateway's settlement report with the records",
		Long: reconcileLong,
		Example: "  dispatcher reconcile -g stripe --report november.csv --map id=invoice,amount=gross,currency=currency,reference=charge --since 2026-11-01 --until 2026-12-01\n" +
			"  dispatcher reconcile -g adyen --report settled.csv --separator ';' --decimal , --map id=Reference,amount=Betrag,status=Status --currency EUR --done Settled --refused Refused,Error\n" +
			"  dispatcher reconcile -g stripe --report - --map id=metadata.job,amount=amount,currency=currency --amounts minor --differences differ.ndjson -o json\n" +
			"  dispatcher reconcile -g stripe --report november.csv --map id=invoice,amount=gross,currency=currency,reference=charge --resolve",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.reconcile(cmd.Context(), f) },
	}
	f.cmd = cmd
	fs := cmd.Flags()
	cli.Once(cmd, &f.gateway, "gateway", "g", "the report's `GATEWAY`; not needed if the configuration has only one")
	cli.Once(cmd, &f.report, "report", "", "the settlement report's `FILE`; - is standard input; required")
	fs.StringToStringVar(&f.columns, "map", nil, "the report's columns, `id=COLUMN,amount=…,currency=…,status=…,reference=…`; required")
	fs.Lookup("map").DefValue = "" // help shows no default
	cli.Choice(cmd, &f.format, "format", "format of the report: ndjson or csv (default: by file name extension, else ndjson)", "", producer.NDJSON, producer.CSV)
	fs.StringVar(&f.separator, "separator", "", "`CHARACTER` between the fields of a CSV file, or tab (default: a comma)")
	fs.StringVar(&f.decimal, "decimal", "", "`CHARACTER` before the decimals of amounts: . or , (default: a point, and no commas)")
	cli.Choice(cmd, &f.encoding, "encoding", "encoding of the report: utf-8, latin-1 or windows-1252", producer.Encodings()...)
	cli.Choice(cmd, &f.amounts, "amounts", "unit of amounts: units of their currency, or minor units", amountsUnits, amountsMinor)
	fs.StringVar(&f.currency, "currency", "", "the currency of all lines, as `CODE`, if no column has it")
	cli.Choice(cmd, &f.ids, "id-is", "what the report's ids are: the job's, the gateway's own reference, or the idempotency key that was sent", reconcile.IDs()...)
	fs.StringSliceVar(&f.done, "done", nil, "the `STATUS` that means a charge; several with commas, or repeated")
	fs.StringSliceVar(&f.refused, "refused", nil, "the `STATUS` that means a refusal; several with commas, or repeated")
	fs.StringVar(&f.since, "since", "", "expect jobs that were done at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\", RFC 3339")
	fs.StringVar(&f.until, "until", "", "expect jobs that were done before `TIME`")
	fs.StringVar(&f.batch, "batch", "", "expect only the jobs of the batch `NAME`")
	fs.StringVar(&f.differences, "differences", "", "write a line of JSON for each difference to `FILE`")
	fs.BoolVar(&f.resolve, "resolve", false, "settle the parked jobs in doubt that the report makes clear")
	fs.BoolVar(&f.again, "again", false, "with --resolve: call again, with their next keys, jobs in doubt that the report says were refused")
	fs.StringVar(&f.by, "by", "", "`NAME` of the person who settles them, for the trail (default: user and host)")
	consentFlags(cmd, &f.consent)
	return cmd
}

// columnsOf parses --map.
func (f *reconcileFlags) columnsOf() (c reconcile.Columns, err error) {
	to := map[string]*string{"id": &c.ID, "amount": &c.Amount, "currency": &c.Currency, "status": &c.Status, "reference": &c.Reference}
	for _, key := range slices.Sorted(maps.Keys(f.columns)) {
		if to[key] == nil || f.columns[key] == "" {
			return c, cli.Usage("write id=COLUMN, and amount, currency, status or reference as there are columns for them", "--map %q is not understood", key+"="+f.columns[key])
		}
		*to[key] = f.columns[key]
	}
	return c, nil
}

func (f *reconcileFlags) options() (o reconcile.ReportOptions, err error) {
	if f.report == "" {
		return o, cli.Usage("name it: --report november.csv, or --report - for standard input", "no report is named")
	}
	if o.Columns, err = f.columnsOf(); err != nil {
		return o, err
	}
	if o.Separator, err = cli.Character("separator", f.separator); err != nil {
		return o, err
	}
	if o.Decimal, err = cli.Character("decimal", f.decimal); err != nil {
		return o, err
	}
	o.Format, o.Encoding, o.IDs, o.Minor = cmp.Or(f.format, producer.FormatOf(f.report)), f.encoding, f.ids, f.amounts == amountsMinor
	o.OneCurrency, o.Done, o.Refused = strings.ToUpper(f.currency), f.done, f.refused
	return o, f.checkResolve(o)
}

// checkResolve refuses to settle what the report can't decide.
func (f *reconcileFlags) checkResolve(o reconcile.ReportOptions) error {
	switch {
	case !f.resolve && (f.consent.Yes || f.by != "" || f.again):
		return cli.Usage("add --resolve, or leave them out", "--yes, --by and --again are for --resolve")
	case f.resolve && o.Amount == "":
		return cli.Usage("add the column to the map: amount=COLUMN", "--resolve compares amounts, and the map names none")
	case f.resolve && o.Currency == "" && o.OneCurrency == "":
		return cli.Usage("name its column, currency=COLUMN, or say --currency EUR", "--resolve compares currencies, and the report has none")
	case f.by == "" && f.cmd.Flags().Changed("by"):
		return emptyFlag("by")
	}
	return nil
}

// settling parses which jobs the report should contain.
func (f *reconcileFlags) settling(now time.Time) (s desk.Settling, err error) {
	for name, value := range map[string]string{"since": f.since, "until": f.until, "batch": f.batch} {
		if value == "" && f.cmd.Flags().Changed(name) {
			return s, emptyFlag(name)
		}
	}
	if f.batch != "" && f.since+f.until != "" {
		return s, cli.Usage("choose by one of the two", "--batch and --since or --until don't go together")
	}
	s.Batch, s.Keys = f.batch, f.ids == reconcile.IDIsKey
	if s.Since, err = desk.ParseAgo(f.since, now, "--since"); err != nil {
		return s, err
	}
	if s.Until, err = desk.ParseAgo(f.until, now, "--until"); err != nil {
		return s, err
	}
	if !s.Since.IsZero() && !s.Until.IsZero() && !s.Until.After(s.Since) {
		return s, cli.Usage("let --until be later than --since", "nothing is at or after %s and before %s", job.Moment(s.Since), job.Moment(s.Until))
	}
	return s, nil
}

// reconciling is one comparison in progress.
type reconciling struct {
	p       *program
	f       *reconcileFlags
	session *session
	gateway *desk.Gateway
	faults  cli.Faults
	result  *reconcile.Result
	settled *desk.Settled // result of --resolve; nil without it
	dry     bool          // nothing was settled
}

func (p *program) reconcile(ctx context.Context, f *reconcileFlags) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	s, err := f.settling(time.Now())
	if err != nil {
		return err
	}
	p.remarkZone("--since", f.since)
	p.remarkZone("--until", f.until)
	r := &reconciling{p: p, f: f}
	if r.session, r.gateway, err = p.openOne(ctx, f.gateway); err != nil {
		return err
	}
	defer r.session.close()
	opt.Gateway = r.gateway.Name
	if err := r.compare(ctx, opt, s); err != nil {
		return err
	}
	var cut error
	if f.resolve {
		cut = r.resolve(ctx)
	}
	if err := r.write(); err != nil {
		return err
	}
	return cmp.Or(cut, r.differ())
}

// openOne opens a session with one gateway: the named one, or the only one configured.
func (p *program) openOne(ctx context.Context, name string) (*session, *desk.Gateway, error) {
	s, err := p.openAt(ctx, slices.DeleteFunc([]string{name}, func(n string) bool { return n == "" }))
	if err != nil {
		return nil, nil, err
	}
	if len(s.desk.Gateways) != 1 {
		s.close()
		return nil, nil, cli.Usage("name it with -g; there are "+s.desk.Names(), "a report is of one gateway")
	}
	return s, s.desk.Gateways[0], nil
}

func (r *reconciling) compare(ctx context.Context, opt reconcile.ReportOptions, s desk.Settling) error {
	in, file, err := r.input()
	if err != nil {
		return err
	}
	if r.f.report != "-" {
		defer func() { _ = file.Close() }()
	}
	report, err := reconcile.NewReport(in, opt)
	if err != nil {
		return err
	}
	records, err := r.session.desk.Reconciled(ctx, r.gateway, s)
	if err != nil {
		return err
	}
	out, err := newDiffering(r.f.differences, file)
	if err != nil {
		return err
	}
	r.result, err = reconcile.Run(ctx, reconcile.Params{Report: report, Records: records, Bad: r.bad, Found: out.write})
	if ended := out.close(); err == nil {
		err = ended
	}
	return err
}

// input returns the report and its file, which is nil if standard input is not one.
func (r *reconciling) input() (io.Reader, *os.File, error) {
	if r.f.report == "-" {
		f, _ := r.p.In.(*os.File)
		return r.p.In, f, nil
	}
	f, err := cli.OpenFile(r.f.report, "--report")
	return f, f, err
}

// resolve settles what the report decides, after confirmation.
func (r *reconciling) resolve(ctx context.Context) error {
	name := r.f.report
	if name == "-" {
		name = "standard input"
	}
	settle := r.result.Clear
	if !r.f.again {
		settle = slices.DeleteFunc(settle, func(c reconcile.Clear) bool { return !c.Done })
	}
	would, err := r.session.desk.WouldSettle(ctx, settle, name)
	if err != nil {
		return err
	}
	r.settled, r.dry = &would, true
	if would.Done.Jobs+would.NotDone.Jobs == 0 {
		return nil
	}
	if r.f.consent.Yes && !r.f.consent.DryRun && !r.p.JSON() {
		r.p.remark("%s", settledText(would, true))
	}
	decision, err := cli.Confirm(ctx, r.p.Streams, r.f.consent, settledText(would, true)+"\nResolve them")
	if err != nil || decision != cli.Go {
		return err
	}
	who := r.f.by
	if who == "" {
		if who, err = cli.WhoAmI(); err != nil {
			return err
		}
	}
	traces, err := r.p.traces(ctx)
	if err != nil {
		return err
	}
	defer desk.Bounded(ctx, traces.Close)
	done, err := r.session.desk.Settle(ctx, settle, name, who, traces)
	r.settled, r.dry = &done, false
	if err != nil {
		return &job.Error{Code: job.CodeOf(err), Message: settledText(done, false), Err: err, Hint: goOn}
	}
	return nil
}

// takenOut returns the command that keeps a charged job from being called again.
func takenOut(g config.Gateway, id string) string {
	return "dispatcher pause -g " + g.Name + `; then look the job up, and take it out: dispatcher dlq discard --id ` + dispatch.ShellWord(id) + ` --why "charged already"`
}
