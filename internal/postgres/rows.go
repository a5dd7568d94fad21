package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"spillway/internal/job"
)

// settled makes every server format rows in the same way, so that enqueuing them twice finds duplicates.
const settled = `SET LOCAL TimeZone = 'UTC'; SET LOCAL IntervalStyle = 'iso_8601'; SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'`

// Rows are the rows of a query as a stream of NDJSON, one object each with the columns' names as keys. Numerics
// are as stored, times with zone are in UTC, json and jsonb are nested. It holds one row at a time.
type Rows struct {
	ctx  context.Context
	db   *DB
	tx   pgx.Tx
	rows pgx.Rows
	line []byte // the unread part of the current row
}

// Query starts a read-only query with a single snapshot. id is the column of the job's id. An error with code
// usage says why the query can't be used for jobs.
func (d *DB) Query(ctx context.Context, query, id string) (*Rows, error) {
	// A trailing comment would hide what follows, and a semicolon would end it.
	inner := "(\n" + strings.TrimRight(strings.TrimSpace(query), ";") + "\n)"
	return d.stream(ctx, `SELECT row_to_json(q)::text FROM `+inner+` q`, func(tx pgx.Tx) error {
		about, err := tx.Prepare(ctx, "", `SELECT * FROM `+inner+` q`)
		if err != nil {
			return err
		}
		var names []string
		for _, f := range about.Fields {
			if slices.Contains(names, f.Name) {
				return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("--query has two columns %q", f.Name), Hint: "name each column, with AS"}
			}
			names = append(names, f.Name)
		}
		if !slices.Contains(names, id) {
			return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("--query has no column %q, as --id-column says", id), Hint: "its columns are " + strings.Join(names, ", ")}
		}
		return nil
	})
}

// stream starts a query whose only column is a line of JSON.
func (d *DB) stream(ctx context.Context, sql string, check func(pgx.Tx) error) (*Rows, error) {
	r := &Rows{ctx: ctx, db: d}
	return r, d.with(ctx, func(c *pgx.Conn) (err error) {
		if r.tx, err = c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}); err != nil {
			return err
		}
		if _, err = r.tx.Exec(ctx, settled); err == nil {
			err = check(r.tx)
		}
		if err != nil {
			return err
		}
		r.rows, err = r.tx.Query(ctx, sql)
		return writes(err)
	})
}

// Read implements io.Reader.
func (r *Rows) Read(p []byte) (int, error) {
	if len(r.line) == 0 {
		if !r.rows.Next() {
			if err := r.rows.Err(); err != nil {
				return 0, coded(r.ctx, writes(err), r.db.conn == nil || r.db.conn.IsClosed())
			}
			return 0, io.EOF
		}
		r.line = lineOf(r.rows.RawValues()[0])
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

// writes returns an error for a query that writes, if that is why PostgreSQL refused it. For other queries that
// error comes from a standby.
func writes(err error) error {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok && said.Code == "25006" {
		return &job.Error{Code: job.CodeUsage, Message: "--query writes: " + said.Message, Hint: "let it only read"}
	}
	return err
}

// lineOf returns a row's JSON on one line: a column of type json may contain line ends, which are white space
// there.
func lineOf(text []byte) []byte {
	return append(bytes.Map(func(c rune) rune {
		if c == '\n' || c == '\r' {
			return ' '
		}
		return c
	}, text), '\n')
}

// Close ends the query.
func (r *Rows) Close() error {
	r.db.Close(context.WithoutCancel(r.ctx))
	return nil
}

// Outbox is a table of jobs that other programs write in their own transactions. It is not safe for concurrent
// use; several programs may take rows of the same table.
type Outbox struct {
	db   *DB
	name pgx.Identifier
	sql  string // takes rows; empty: the table was not examined yet
}

// Row is a row of an outbox that was not taken over.
type Row struct {
	Line     []byte // the job in the wrapped form of NDJSON, with its line end
	position int64
	// Accepted says that it was taken over. Refused says why it can't be, and it is not taken again until an
	// operator resets it to null. Neither: it is left unchanged.
	Accepted bool
	Refused  string
}

var (
	outboxNeeds = []string{"position", "id", "payload", "accepted_at", "refused"}
	outboxTakes = []string{"gateway", "batch", "route", "lane", "priority", "cost", "at", "expires"}
)

// NewOutbox returns an Outbox for a table, named with or without a schema.
func NewOutbox(db *DB, name string) (*Outbox, error) {
	id, err := table(name, "--outbox")
	return &Outbox{db: db, name: id}, err
}

// Take locks up to most rows that were not taken over, oldest first, passes them to do, and marks the results,
// even if do fails. It returns how many there were. Rows locked by another program are skipped. If ctx ends, do
// may stop early, but Take completes. If the process is killed before the end, nothing is marked: the rows are
// passed out again.
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

// Waiting starts to read all rows that were not taken over, and changes nothing.
func (o *Outbox) Waiting(ctx context.Context) (*Rows, error) {
	if err := o.db.tx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return o.look(ctx, tx) }); err != nil {
		return nil, err
	}
	return o.db.stream(ctx, `SELECT line FROM (`+o.sql+`) AS q`, func(pgx.Tx) error { return nil })
}

// look finds out, once, which columns the table has.
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

// mark records what became of rows.
func (o *Outbox) mark(ctx context.Context, tx pgx.Tx, rows []Row) error {
	var in, out []int64
	var why []string
	for _, r := range rows {
		switch {
		case r.Accepted:
			in = append(in, r.position)
		case r.Refused != "":
			out, why = append(out, r.position), append(why, strings.ReplaceAll(r.Refused, "\x00", `\0`)) // a text of PostgreSQL can't hold it
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
