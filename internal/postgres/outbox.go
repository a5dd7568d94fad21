package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"spillway/internal/job"
)

// Outbox is a table of jobs that somebody writes in their own transactions. Not safe for concurrent use; several programs may take over rows of the same table.
type Outbox struct {
	db   *DB
	name pgx.Identifier
	sql  string // what takes rows; empty: the table was not looked at yet
}

// Row is a row of an outbox that was not taken over.
type Row struct {
	Line     []byte // the job in the wrapped form of NDJSON, with its line end
	position int64
	// Accepted says that it was taken over. Refused says why it can't be, and nobody takes it until a person has set it to null again. Neither: it stays as it is.
	Accepted bool
	Refused  string
}

var (
	outboxNeeds = []string{"position", "id", "payload", "accepted_at", "refused"}
	outboxTakes = []string{"gateway", "batch", "route", "lane", "priority", "cost", "at", "expires"}
)

// NewOutbox returns an outbox by the name of its table, with or without a schema.
func NewOutbox(db *DB, name string) (*Outbox, error) {
	id, err := table(name, "--outbox")
	return &Outbox{db: db, name: id}, err
}

// Take locks up to so many rows that were not taken over, the oldest first, hands them to do, and marks what do has said of each, also when do fails. It returns how many there were.
// Rows that another program has locked are left to it. It does not stop halfway when ctx ends: do may. A kill before the end marks nothing: the rows are handed out again.
func (o *Outbox) Take(ctx context.Context, most int, do func([]Row) error) (n int, err error) {
	var failed error
	ctx = context.WithoutCancel(ctx) // what was accepted by then is marked
	err = o.db.tx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := o.look(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, settled); err != nil {
			return err
		}
		got, err := tx.Query(ctx, o.sql+` LIMIT $1 FOR UPDATE SKIP LOCKED`, most)
		if err != nil {
			return err
		}
		rows, err := pgx.CollectRows(got, func(r pgx.CollectableRow) (row Row, err error) {
			err = r.Scan(&row.position, &row.Line)
			row.Line = lineOf(row.Line)
			return row, err
		})
		if n = len(rows); err != nil || n == 0 {
			return err
		}
		failed = do(rows)
		return o.mark(ctx, tx, rows)
	})
	if err == nil {
		err = failed
	}
	return n, err
}

// Waiting begins to read all rows that were not taken over, and changes nothing.
func (o *Outbox) Waiting(ctx context.Context) (*Rows, error) {
	if err := o.db.tx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return o.look(ctx, tx) }); err != nil {
		return nil, err
	}
	return o.db.stream(ctx, `SELECT line FROM (`+o.sql+`) AS q`, func(pgx.Tx) error { return nil })
}

// look sees, once, which columns the table has.
func (o *Outbox) look(ctx context.Context, tx pgx.Tx) error {
	if o.sql != "" {
		return nil
	}
	there, err := columnsOf(ctx, tx, o.name)
	if err != nil {
		return err
	}
	if missing := lacks(outboxNeeds, there); len(missing) > 0 {
		message := fmt.Sprintf("the outbox %s has no column %s", strings.Join(o.name, "."), strings.Join(missing, ", "))
		if len(there) == 0 {
			message = fmt.Sprintf("there is no table %s", strings.Join(o.name, "."))
		}
		return &job.Error{Code: job.CodeUsage, Message: message, Hint: "examples/outbox/outbox.sql makes one"}
	}
	pairs := []string{`'id', id`, `'payload', payload`}
	for _, c := range outboxTakes {
		if slices.Contains(there, c) {
			pairs = append(pairs, `'`+c+`', `+pgx.Identifier{c}.Sanitize())
		}
	}
	o.sql = `SELECT position, json_build_object(` + strings.Join(pairs, ", ") + `)::text AS line FROM ` + o.name.Sanitize() + ` WHERE accepted_at IS NULL AND refused IS NULL ORDER BY position`
	return nil
}

// mark writes down what became of rows.
func (o *Outbox) mark(ctx context.Context, tx pgx.Tx, rows []Row) error {
	var in, out []int64
	var why []string
	for _, r := range rows {
		switch {
		case r.Accepted:
			in = append(in, r.position)
		case r.Refused != "":
			out, why = append(out, r.position), append(why, r.Refused)
		}
	}
	if len(in) > 0 {
		marked, err := tx.Exec(ctx, `UPDATE `+o.name.Sanitize()+` SET accepted_at = now() WHERE position = ANY($1)`, in)
		if err != nil {
			return err
		}
		if int(marked.RowsAffected()) != len(in) {
			return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("%d rows were accepted, and the outbox %s took the marks of %d: a trigger, a rule or a position that is there twice stands in the way",
				len(in), strings.Join(o.name, "."), marked.RowsAffected()), Hint: "mend the table: what was accepted is known, and is marked when it comes again"}
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE `+o.name.Sanitize()+` AS o SET refused = m.why FROM unnest($1::bigint[], $2::text[]) AS m(at, why) WHERE o.position = m.at`, out, why)
	return err
}
