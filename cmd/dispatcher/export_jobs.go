package main

import (
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
