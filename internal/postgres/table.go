package postgres

import (
	"context"
	_ "embed" // for the tables
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"spillway/internal/feed"
	"spillway/internal/job"
)

//go:embed outcomes.sql
var outcomesSQL string

//go:embed cursors.sql
var cursorsSQL string

// Table is a table into which one reader copies outcomes, with a table of its cursors. Each outcome is in it
// exactly once: its row and the cursor are written in one transaction, which first locks the cursor. It is not
// safe for concurrent use; several programs may copy into the same table.
type Table struct {
	db            *DB
	name, cursors pgx.Identifier
	reader        string
}

// columns are the columns written, in order.
var columns = []string{"cursor", "gateway", "id", "batch", "route", "lane", "state", "reason", "status", "reference", "amount", "currency", "attempts", "accepted_at", "at"}

// NewTable returns a Table, named with or without a schema, into which a reader copies.
func NewTable(db *DB, name, reader string) (*Table, error) {
	id, err := table(name, "--table")
	if err != nil {
		return nil, err
	}
	cursors := append(pgx.Identifier{}, id...)
	cursors[len(cursors)-1] += "_cursors"
	return &Table{db, id, cursors, reader}, nil
}

// Close closes the connection.
func (t *Table) Close(ctx context.Context) { t.db.Close(ctx) }

// putWithin bounds one transaction. It waits at most for that of another program that copies into the same
// table.
const putWithin = time.Minute

// Begin creates the two tables if they are missing, and returns the cursor up to which the table has a
// gateway's outcomes; empty if this reader has copied none of them yet. An error with code usage says which
// columns the table needs, or that another reader copies into it. One with code failed says that the table has
// lost what the reader has acknowledged, and so has the feed: kept is the oldest outcome there, empty for none.
func (t *Table) Begin(ctx context.Context, gateway, acked, kept string) (cursor string, err error) {
	ctx, cancel := context.WithTimeout(ctx, putWithin)
	defer cancel()
	err = t.db.tx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := errors.Join(t.ready(ctx, tx, t.name, outcomesSQL, columns), t.ready(ctx, tx, t.cursors, cursorsSQL, []string{"reader", "gateway", "cursor", "copied_at"})); err != nil {
			return err
		}
		if err := t.alone(ctx, tx, gateway); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO `+t.cursors.Sanitize()+` (reader, gateway, cursor) VALUES ($1, $2, '') ON CONFLICT DO NOTHING`, t.reader, gateway); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT cursor FROM `+t.cursors.Sanitize()+` WHERE reader = $1 AND gateway = $2`, t.reader, gateway).Scan(&cursor)
	})
	if err == nil {
		err = t.lost(gateway, cursor, acked, kept)
	}
	return cursor, err
}

// lost returns an error if the table's cursor is before what the reader has acknowledged and before everything
// in the feed, which may have dropped what is between. An empty cursor is that of a new table.
func (t *Table) lost(gateway, cursor, acked, kept string) error {
	there, errThere := feed.ParseCursor(cursor)
	had, errHad := feed.ParseCursor(acked)
	first, errFirst := feed.ParseCursor(kept)
	if err := errors.Join(errThere, errHad, errFirst); err != nil || cursor == "" || there.Compare(had) >= 0 || kept != "" && there.Compare(first) >= 0 {
		return err
	}
	return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the table %s has the outcomes of %s up to %s, and the reader %s has acknowledged those up to %s: PostgreSQL has lost rows that it had committed, as a restore from a backup does, or another program copies to elsewhere for the same reader",
		strings.Join(t.name, "."), gateway, cursor, t.reader, acked),
		Hint: fmt.Sprintf("bring in from the records what is missing (dispatcher export -g %s --since TIME), then set the cursor in %s to %s", gateway, strings.Join(t.cursors, "."), acked)}
}

// ready creates a table if it is missing, and returns an error if an existing one lacks something.
func (t *Table) ready(ctx context.Context, tx pgx.Tx, name pgx.Identifier, sql string, columns []string) error {
	there, err := columnsOf(ctx, tx, name)
	if err == nil && len(there) == 0 {
		if _, err = tx.Exec(ctx, strings.ReplaceAll(sql, "TABLE_NAME", name.Sanitize())); meanwhile(err) {
			return away("another program makes the table")
		}
		return err
	}
	if missing := lacks(columns, there); err == nil && len(missing) > 0 {
		return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("the table %s has no column %s", strings.Join(name, "."), strings.Join(missing, ", ")),
			Hint: "add what docs/outcomes.md lists, or name a table that is not there: it is made"}
	}
	return err
}

// meanwhile reports whether an error means that another program has just created the same table.
func meanwhile(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "23505" || e.Code == "42P07" || e.Code == "42710")
}

// alone refuses a table that has the gateway's outcomes from another reader: it would have each twice.
func (t *Table) alone(ctx context.Context, tx pgx.Tx, gateway string) error {
	var other string
	err := tx.QueryRow(ctx, `SELECT reader FROM `+t.cursors.Sanitize()+` WHERE gateway = $1 AND reader <> $2 LIMIT 1`, gateway, t.reader).Scan(&other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("the reader %s copies the outcomes of %s into the table %s already", other, gateway, strings.Join(t.name, ".")),
		Hint: "give each reader a table of its own"}
}

// Put writes outcomes that follow a cursor, and returns the cursor up to which the table then has them. If the
// table's cursor differs from after, another program copies for the same reader, or an earlier Put was
// committed and its reply lost: nothing is written, and the caller continues from the returned cursor. It
// completes even if ctx ends.
func (t *Table) Put(ctx context.Context, gateway, after string, page []feed.Outcome) (upto string, put int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putWithin)
	defer cancel()
	err = t.db.tx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var there, durable string
		err := tx.QueryRow(ctx, `SELECT cursor, current_setting('synchronous_commit') FROM `+t.cursors.Sanitize()+` WHERE reader = $1 AND gateway = $2 FOR UPDATE`, t.reader, gateway).Scan(&there, &durable)
		if errors.Is(err, pgx.ErrNoRows) {
			return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("the cursor of the reader %s for %s is gone from %s", t.reader, gateway, strings.Join(t.cursors, ".")),
				Hint: "put it back, or start again with a new table"}
		}
		if upto = there; err != nil || there != after {
			return err
		}
		if after == "" {
			if upto, err = t.renamed(ctx, tx, gateway, page[0]); err != nil || upto != "" {
				return err
			}
		}
		if durable == "off" { // a crash of PostgreSQL would lose what the feed has dropped
			if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
				return err
			}
		}
		if _, err := tx.CopyFrom(ctx, t.name, columns, pgx.CopyFromSlice(len(page), func(i int) ([]any, error) { return row(page[i]), nil })); err != nil {
			return err
		}
		upto, put = page[len(page)-1].Cursor, len(page)
		_, err = tx.Exec(ctx, `UPDATE `+t.cursors.Sanitize()+` SET cursor = $3, copied_at = now() WHERE reader = $1 AND gateway = $2`, t.reader, gateway, upto)
		return err
	})
	if err != nil {
		return after, 0, err
	}
	return upto, put, nil
}

// renamed handles a gateway without outcomes in the table whose first outcome is there under another name: its
// name before a rename. It moves that name's cursor and returns it; empty: there is none.
func (t *Table) renamed(ctx context.Context, tx pgx.Tx, gateway string, first feed.Outcome) (cursor string, err error) {
	err = tx.QueryRow(ctx, `UPDATE `+t.cursors.Sanitize()+` AS own SET cursor = old.cursor, copied_at = now() FROM `+t.cursors.Sanitize()+` AS old
		WHERE own.reader = $1 AND own.gateway = $2 AND old.reader = $1 AND old.gateway <> $2
		AND EXISTS (SELECT 1 FROM `+t.name.Sanitize()+` AS o WHERE o.gateway = old.gateway AND o.cursor = $3 AND o.id IS NOT DISTINCT FROM $4) RETURNING own.cursor`,
		t.reader, gateway, first.Cursor, text(first.ID)).Scan(&cursor)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return cursor, err
}

// row returns an outcome in the order of columns. What a line of the feed leaves empty is null.
func row(o feed.Outcome) []any {
	return []any{o.Cursor, o.Gateway, text(o.ID), text(o.Batch), text(o.Route), text(o.Lane), o.State, reason(o.Reason), pgtype.Int4{Int32: int32(o.Status), Valid: o.Status != 0}, text(o.Reference),
		number(o.Amount), text(o.Currency), int32(o.Attempts), o.AcceptedAt, o.At}
}

func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

func reason(r *job.Reason) pgtype.Text {
	if r == nil {
		return pgtype.Text{}
	}
	return text(string(*r))
}

func number(n *big.Int) pgtype.Numeric { return pgtype.Numeric{Int: n, Valid: n != nil} }
