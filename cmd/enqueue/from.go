package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/pan"
	"spillway/internal/postgres"
	"spillway/internal/producer"
)

// checkCards refuses names that contain a card number: names are stored, logged and shown.
func (f *flags) checkCards() error {
	for _, named := range []struct{ flag, text string }{{"-f", f.file}, {"--rejects", f.rejects}, {"--batch", f.batch}, {"--why", f.why}} {
		if pan.ContainsString(named.text) {
			return cli.Usage("choose a name without it", "%s has what looks like a card number in it", named.flag)
		}
	}
	return nil
}

// checkFrom refuses flags that conflict with --from or require it.
func (f *flags) checkFrom(o *options) error {
	with := func(what string, given bool, hint string) error {
		if given {
			return cli.Usage(hint, "%s does not go with --from", what)
		}
		return nil
	}
	switch {
	case f.from == "" && (f.query != "" || f.outbox != "" || f.idColumn != "" || f.follow):
		return cli.Usage("say --from postgres://user@host/database", "--query, --id-column, --outbox and --follow are for rows of a PostgreSQL, and there is no --from")
	case f.from == "":
		return nil
	case (f.query == "") == (f.outbox == ""):
		return cli.Usage("say either --query 'SELECT …' --id-column id, or --outbox TABLE", "--from needs to know which rows")
	case f.query != "" && f.idColumn == "":
		return cli.Usage("name the column of the id: --id-column invoice", "--query needs --id-column")
	case f.outbox != "" && f.idColumn != "":
		return cli.Usage("leave it out: the column id of the outbox is the id", "--id-column is for --query")
	case f.follow && (f.outbox == "" || f.dryRun):
		return cli.Usage("leave it out: a query, and a dry run, end by themselves", "--follow is for --outbox")
	case f.outbox != "" && (f.expectsCount || f.expectsSum):
		return cli.Usage("leave them out: an outbox has no end", "control totals are for a file or a query")
	}
	return errors.Join(
		with("-f", f.file != "", "leave one of them out"),
		with("--id-field", f.idField != "", "say --id-column"),
		with("--replace", f.replace, "write the rows into a file, and replace the payloads from there"),
		with("--format, --separator and --encoding", f.format != "" || f.separator != "" || f.encoding != "" && f.encoding != producer.UTF8, "leave them out: rows have a form of their own"))
}

const (
	// rowsAtATime is how many rows of an outbox are locked at once.
	rowsAtATime = 1000
	// outboxEvery is how often to poll an outbox that has no new rows.
	outboxEvery = 500 * time.Millisecond
)

// takeOver admits the rows of an outbox in groups. Each group's results are marked in the transaction that
// locked the rows. A process killed in between marks nothing; the next one finds that the jobs are known.
func takeOver(ctx context.Context, src jobSource, d door, t *tally) error {
	for {
		n, err := src.outbox.Take(ctx, rowsAtATime, func(rows []postgres.Row) error {
			var lines bytes.Buffer
			for _, r := range rows {
				lines.Write(r.Line)
			}
			src.in.r = &lines
			t.under(&takenRows{rows})
			defer t.under(nil) // later reads no longer concern these rows
			return flow(ctx, src, d, t)
		})
		switch {
		case ctx.Err() != nil && src.opt.follow:
			return nil // the normal way to stop
		case err != nil:
			return err
		case n > 0:
			continue
		case !src.opt.follow:
			return nil
		}
		select {
		case <-time.After(outboxEvery):
		case <-ctx.Done():
		}
	}
}

// under sets the outbox rows that are in flight.
func (t *tally) under(rows *takenRows) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = rows
}

// takenRows holds the outbox rows that are in flight, indexed by line number, from 1. A nil *takenRows holds
// none.
type takenRows struct{ rows []postgres.Row }

func (r *takenRows) row(line int) *postgres.Row {
	if r == nil || line < 1 || line > len(r.rows) {
		return new(postgres.Row)
	}
	return &r.rows[line-1]
}

func (r *takenRows) refuse(line int, why error) { r.row(line).Refused = why.Error() }

// answered records what became of a row. A row that found no room, or that has no answer, is left unchanged.
func (r *takenRows) answered(line int, a admission.Answer) {
	switch {
	case a.Outcome == job.Enqueued, a.Outcome == job.ParkedNow, a.Outcome == job.Duplicate:
		r.row(line).Accepted = true
	case a.Err != nil:
		r.refuse(line, a.Err)
	}
}

// id returns the id of a row, or what there is of it.
func (r *takenRows) id(line int) string {
	var job struct{ ID json.RawMessage }
	if r == nil || json.Unmarshal(r.row(line).Line, &job) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(job.ID, &text) == nil {
		return text
	}
	return string(job.ID)
}
