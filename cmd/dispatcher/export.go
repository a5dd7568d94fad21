package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/desk"
	"spillway/internal/job"
	"spillway/internal/remote"
)

// exportJobsFlags are the flags of "export".
type exportJobsFlags struct {
	gateways            []string
	states              []string
	since, until, times string
	batch               string
	out                 exportFlags
}

const (
	timesAccepted = "accepted"
	timesFinished = "finished"
)

func exportCommand(p *program) *cobra.Command {
	f := &exportJobsFlags{}
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Write the result of every job, for finance",
		Long: `Export writes a line for each job that has a record, with its state, amount, currency, reference and times,
and who settled it and why, whether or not the job has a batch. A record is kept for "dedupe" after the
job's end.

It reads the keys of Redis in short steps during normal operation, so the lines are in no particular order.
Each job appears once, in its state when it was read; jobs accepted meanwhile may be left out. --batch NAME
writes the jobs of one batch in file order, as "dispatcher batch NAME --export" does, which is faster. For a
billing file of parked jobs, use "dispatcher dlq export".
` + exportedHelp,
		Example: "  dispatcher export -g stripe --format csv > stripe.csv\n  dispatcher export --time finished --since 2026-11-01 --until 2026-12-01 --state done --format csv\n" +
			"  dispatcher export --state parked --fields payload.customer -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.exportJobs(cmd, f) },
	}
	gatewaysFlag(cmd, &f.gateways, "only jobs of this `GATEWAY`; repeatable (default: all of the file)")
	fs := cmd.Flags()
	fs.StringArrayVar(&f.states, "state", nil, "only jobs in this `STATE`: scheduled, queued, in_flight, retrying, pending, done, parked or discarded; repeatable (default: all)")
	fs.StringVar(&f.since, "since", "", "only jobs accepted at or after `TIME`: 24h or 2d ago, 2026-11-30, \"2026-11-30 18:00\", RFC 3339")
	fs.StringVar(&f.until, "until", "", "only jobs accepted before `TIME`")
	cli.Choice(cmd, &f.times, "time", "the time that --since and --until compare: when the job was accepted, or when it was done or discarded", timesAccepted, timesFinished)
	fs.StringVar(&f.batch, "batch", "", "the jobs of the batch `NAME`, in the order of the file")
	f.out.declare(cmd)
	return cmd
}

// query parses the flags.
func (f *exportJobsFlags) query(cmd *cobra.Command, now time.Time) (q desk.JobQuery, err error) {
	for name, value := range map[string]string{"since": f.since, "until": f.until} {
		if value == "" && cmd.Flags().Changed(name) {
			return q, emptyFlag(name)
		}
	}
	q.Fields, q.Finished = f.out.fields, f.times == timesFinished
	for _, s := range f.states {
		q.States = append(q.States, job.State(s))
	}
	if err = desk.CheckStates(q.States, "--state"); err != nil {
		return q, err
	}
	if q.Since, err = desk.ParseAgo(f.since, now, "--since"); err != nil {
		return q, err
	}
	if q.Until, err = desk.ParseAgo(f.until, now, "--until"); err != nil {
		return q, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Until.After(q.Since) {
		return q, cli.Usage("let --until be later than --since", "nothing is at or after %s and before %s", job.Moment(q.Since), job.Moment(q.Until))
	}
	return q, nil
}

// exportOfBatch exports a single batch.
func (p *program) exportOfBatch(cmd *cobra.Command, f *exportJobsFlags) error {
	if f.batch == "" {
		return emptyFlag("batch")
	}
	for _, other := range []string{"state", "since", "until", "time"} {
		if cmd.Flags().Changed(other) {
			return cli.Usage("leave one of them out", "--batch writes a whole batch, and --%s chooses among the jobs of all", other)
		}
	}
	return p.batchExport(cmd.Context(), f.batch, &batchFlags{gateways: f.gateways, out: f.out})
}

func (p *program) exportJobs(cmd *cobra.Command, f *exportJobsFlags) error {
	if cmd.Flags().Changed("batch") {
		return p.exportOfBatch(cmd, f)
	}
	q, err := f.query(cmd, time.Now())
	if err != nil {
		return err
	}
	if err := f.out.check(p); err != nil {
		return err
	}
	out, err := p.newJobWriter(&f.out)
	if err != nil {
		return err
	}
	as := remote.JobsOf{At: remote.At{Gateways: f.gateways}, States: f.states, Since: desk.Stamp(q.Since), Until: desk.Stamp(q.Until), Time: f.times, ExportAs: remote.ExportAs{Fields: f.out.fields}}
	if err := exported(cmd.Context(), p, out, f.gateways, remote.Jobs, as); err != nil {
		return err
	}
	if out.rows == 0 {
		p.nothingMeant("job")
	}
	return nil
}

// exported writes the jobs of an export operation. What was written before an error stays.
func exported[Q any](ctx context.Context, p *program, out *jobWriter, gateways []string, op *remote.Op[Q, remote.JobLine, remote.None], q Q) error {
	d, err := p.atAll(ctx, gateways)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = op.Do(ctx, d, q, remote.Out[remote.JobLine]{Line: out.write})
	if out.rows == 0 && err != nil {
		return err
	}
	if ended := out.end(); err == nil {
		err = ended
	}
	return err
}

// batchExport writes a line for each job, gateway by gateway in configured order, in bounded memory.
func (p *program) batchExport(ctx context.Context, name string, f *batchFlags) error {
	if f.by != "" {
		return cli.Usage("ask once with --by and once with --export", "--by and --export don't go together")
	}
	if err := f.out.check(p); err != nil {
		return err
	}
	out, err := p.newJobWriter(&f.out)
	if err != nil {
		return err
	}
	return exported(ctx, p, out, []string{name}, remote.BatchJobs, remote.BatchJobsOf{Name: name, At: remote.At{Gateways: f.gateways}, ExportAs: remote.ExportAs{Fields: f.out.fields}})
}

// exportFlags say how to write jobs.
type exportFlags struct {
	format string
	fields []string
}

const (
	formatCSV    = "csv"
	formatNDJSON = "ndjson"
)

// exportedHelp is the part of each export's help about fields and formats.
const exportedHelp = `
Amounts are in minor units. The column amount_major of --format csv has them in units of the currency, as
defined by ISO 4217. Text that a spreadsheet would take for a formula gets a ' before it.

--fields adds fields of the payload. Only jobs that are neither done nor discarded have a payload: it is
deleted when the job finishes, and its fields are then empty. Amount, currency and reference are kept. For
more data of a done job, put it into the id, or keep the billing file and match it by id. Sealed payloads
need the keys of the configuration. The fields may hold personal data.`

func (f *exportFlags) declare(cmd *cobra.Command) {
	cli.Choice(cmd, &f.format, "format", "write `csv|ndjson`, CSV with a header (default: a table, and NDJSON with -o json)", "", formatCSV, formatNDJSON)
	cmd.Flags().StringSliceVar(&f.fields, "fields", nil, "add `FIELDS` of the payload, separated by commas: payload.customer,payload.invoice.number")
}

// check refuses contradictory flags, and requires the encryption keys if payloads are read.
func (f *exportFlags) check(p *program) error {
	if f.format == formatCSV && p.JSON() {
		return cli.Usage("choose one of the two", "--format csv and -o json don't go together")
	}
	p.payloads = len(f.fields) > 0
	return desk.CheckJobFields(f.fields, "--fields")
}

// jobWriter writes a line for each job.
type jobWriter struct {
	p        *program
	f        *exportFlags
	out      *paged
	csv      *cli.CSV // nil for other formats
	rows     int
	unopened int
	why      string // why the first payload could not be opened
}

// newJobWriter returns what writes jobs.
func (p *program) newJobWriter(f *exportFlags) (w *jobWriter, err error) {
	titles := []string{"ID", "GATEWAY", "STATE", "REASON", "STATUS", "REFERENCE", "ATTEMPTS", "ACCEPTED", "CALLED", "FINISHED", "SETTLED", "MONEY", "BATCH"}
	for _, field := range f.fields {
		titles = append(titles, strings.ToUpper(field))
	}
	w = &jobWriter{p: p, f: f, out: p.newPaged(titles...)}
	if f.format == formatCSV {
		w.csv, err = cli.NewCSV(w.out.out, csvTitles(f.fields)...)
	}
	return w, err
}

func (w *jobWriter) write(line remote.JobLine) error {
	l := line.JobLine
	w.rows++
	if line.Unread != "" {
		if w.unopened++; w.unopened == 1 {
			w.why = line.Unread
		}
	}
	switch {
	case w.csv != nil:
		return w.csv.Row(append(csvCells(l), fieldCells(w.f.fields, l)...)...)
	case w.f.format == formatNDJSON || w.p.JSON():
		return cli.WriteJSON(w.out.out, l)
	}
	settled := ""
	if l.Settled != nil {
		settled = l.Settled.Text()
	}
	cells := []any{cli.Uncut(l.ID), cli.Uncut(l.Gateway), l.State, l.Reason, unlessZero(l.Status), cli.Uncut(l.Reference), l.Attempts,
		moments(l.AcceptedAt), moments(l.CalledAt), moments(l.FinishedAt), cli.Uncut(settled), w.out.table.Money(l.Money()), cli.Uncut(l.Batch)}
	return w.out.row(append(cells, fieldCells(w.f.fields, l)...)...)
}

func csvTitles(fields []string) []string {
	return append(strings.Split("id gateway batch state reason amount currency amount_major status reference attempts replays "+
		"accepted_at called_at parked_at finished_at settled_as settled_at settled_by settled_why error route priority lane erased_at", " "), fields...)
}

func csvCells(l desk.JobLine) []any {
	amount, major := "", ""
	if l.Amount != nil {
		amount, major = l.Amount.String(), job.Money{Minor: l.Amount, Currency: l.Currency}.Units()
	}
	cells := []any{cli.Uncut(l.ID), cli.Uncut(l.Gateway), cli.Uncut(l.Batch), l.State, l.Reason, cli.Whole(amount), l.Currency, cli.Whole(major),
		unlessZero(l.Status), cli.Uncut(l.Reference), l.Attempts, l.Replays, moments(l.AcceptedAt), moments(l.CalledAt), moments(l.ParkedAt), moments(l.FinishedAt)}
	if s := l.Settled; s != nil {
		cells = append(cells, s.As, s.At, cli.Uncut(s.Who), cli.Uncut(s.Why))
	} else {
		cells = append(cells, nil, nil, nil, nil)
	}
	return append(cells, cli.Uncut(l.Error), l.Route, l.Priority, cli.Uncut(l.Lane), moments(l.ErasedAt))
}

// fieldCells returns the payload's fields: texts as they are, numbers as written, and lists and objects as
// JSON.
func fieldCells(fields []string, l desk.JobLine) []any {
	var cells []any
	for _, name := range fields {
		switch v := l.Fields[name].(type) {
		case nil:
			cells = append(cells, nil)
		case string:
			cells = append(cells, cli.Uncut(v))
		case json.Number:
			cells = append(cells, cli.Whole(v))
		case bool:
			cells = append(cells, v)
		default:
			text, _ := json.Marshal(v) // it came from JSON
			cells = append(cells, cli.Uncut(text))
		}
	}
	return cells
}

// end writes the rest, and says for which jobs the fields could not be read.
func (w *jobWriter) end() error {
	if w.csv != nil {
		if err := w.csv.Flush(); err != nil {
			return err
		}
	}
	if w.unopened > 0 {
		w.p.remark("the fields of %s are empty, since their payloads can't be opened; the first: %s", job.JobsText(int64(w.unopened)), w.why)
	}
	if w.csv == nil && w.f.format == "" {
		return w.out.flush()
	}
	if err := w.out.out.Flush(); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func unlessZero(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func moments(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
