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
