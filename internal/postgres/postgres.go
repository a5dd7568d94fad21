// Package postgres connects outcomes and jobs with PostgreSQL: a table into which outcomes are copied, with the
// cursor in the same transaction; a query whose rows become jobs; and an outbox whose rows are taken over once.
// No other package uses pgx.
package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"spillway/internal/job"
)

// DB is a PostgreSQL server. It connects when needed, and reconnects after its connection broke. It is not safe
// for concurrent use.
type DB struct {
	cfg  *pgx.ConnConfig
	conn *pgx.Conn // nil: none yet, or it broke
}

// Is reports whether an address is a PostgreSQL's.
func Is(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// New returns a DB for an address, without connecting. The error has code usage, and contains no part of the
// address, because any of it may be a password.
func New(url string) (*DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil || !Is(url) {
		return nil, &job.Error{Code: job.CodeUsage, Message: "the PostgreSQL address can't be read",
			Hint: "write postgres://user:password@host:port/database?sslmode=verify-full; write @ / ? # and % of a user or password as %40 %2F %3F %23 %25"}
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "spillway"
	}
	return &DB{cfg: cfg}, nil
}

// Warning says that others on the way to the server could read or change what is sent; empty if its certificate is
// checked on each way, or it is on this machine.
func (d *DB) Warning() string {
	safe := local(d.cfg.Host) || checked(d.cfg.TLSConfig)
	for _, f := range d.cfg.Fallbacks {
		safe = safe && (local(f.Host) || checked(f.TLSConfig))
	}
	if safe {
		return ""
	}
	return "anyone on the way to PostgreSQL can read the password and the rows, or answer in its place; write ?sslmode=verify-full"
}

// local reports whether a host is this machine: a folder of sockets, or loopback.
func local(host string) bool {
	ip := net.ParseIP(host)
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" || ip != nil && ip.IsLoopback()
}

// checked reports whether a certificate is checked; nil: the connection is in clear.
func checked(c *tls.Config) bool {
	return c != nil && (!c.InsecureSkipVerify || c.VerifyPeerCertificate != nil || c.VerifyConnection != nil)
}

// Close closes the connection, if there is one.
func (d *DB) Close(ctx context.Context) {
	if d.conn != nil {
		_ = d.conn.Close(ctx) // what was committed is committed
		d.conn = nil
	}
}

// with calls do with the connection. After an error the next call gets another connection, because the state of
// this one is unknown.
func (d *DB) with(ctx context.Context, do func(*pgx.Conn) error) error {
	if d.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, d.cfg)
		if err != nil {
			return coded(ctx, err, true)
		}
		d.conn = conn
	}
	err := do(d.conn)
	if err == nil {
		return nil
	}
	broken := d.conn.IsClosed()
	d.Close(context.WithoutCancel(ctx))
	return coded(ctx, err, broken)
}

// tx calls do in a transaction, which is committed unless it fails.
func (d *DB) tx(ctx context.Context, opt pgx.TxOptions, do func(pgx.Tx) error) error {
	return d.with(ctx, func(c *pgx.Conn) error { return pgx.BeginTxFunc(ctx, c, opt, do) })
}

// passing are the classes and codes of errors that may not recur on a retry.
var passing = []string{"08", "53", "57P01", "57P02", "57P03", "57P05", "40001", "40P01", "55P03", "25006"}

// telling are the classes of errors whose text may contain values of a row.
var telling = []string{"22", "23", "P0"}

// raised is PostgreSQL's name of the place of an error raised by a function: its text and SQLSTATE are its
// author's.
const raised = "exec_stmt_raise"

// coded gives an error code unavailable if PostgreSQL is unreachable, and failed if it refuses. broken says
// that the connection is gone.
func coded(ctx context.Context, err error, broken bool) error {
	if _, done := errors.AsType[*job.Error](err); done || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return err
	}
	said, ok := errors.AsType[*pgconn.PgError](err)
	has := func(of []string) bool {
		return slices.ContainsFunc(of, func(code string) bool { return strings.HasPrefix(said.Code, code) })
	}
	switch {
	case ok && has(passing) && said.Routine == raised:
		return away("SQLSTATE " + said.Code)
	case ok && has(passing):
		return away(said.Message)
	case ok && (has(telling) || said.Routine == raised):
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("PostgreSQL refuses it: SQLSTATE %s%s", said.Code, about(said)),
			Hint: "its own words may hold data: they are in the log of PostgreSQL"}
	case ok:
		return &job.Error{Code: job.CodeFailed, Message: fmt.Sprintf("PostgreSQL says: %s (SQLSTATE %s)", said.Message, said.Code)}
	}
	if _, network := errors.AsType[net.Error](err); broken || network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
		return away(err.Error())
	}
	return &job.Error{Code: job.CodeFailed, Message: "PostgreSQL", Err: err}
}

func away(why string) error {
	return &job.Error{Code: job.CodeUnavailable, Message: "PostgreSQL is away: " + why, Hint: "try again: nothing was lost"}
}

// about names the column and the constraint of an error, if any.
func about(e *pgconn.PgError) (text string) {
	if e.ColumnName != "" {
		text += ", column " + e.ColumnName
	}
	if e.ConstraintName != "" {
		text += ", constraint " + e.ConstraintName
	}
	return text
}

var tableName = regexp.MustCompile(`^(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,53}$`)

// table parses the name of a table, with or without its schema.
func table(name, flag string) (pgx.Identifier, error) {
	if !tableName.MatchString(name) {
		return nil, &job.Error{Code: job.CodeUsage, Message: fmt.Sprintf("%s %.80q is not a name of a table", flag, name),
			Hint: "use lower-case letters, digits and _, with or without a schema: outcomes or billing.outcomes; the name itself may have 54 characters"}
	}
	return strings.Split(name, "."), nil
}

// columnsOf returns the names of a table's columns; nil if there is no such table.
func columnsOf(ctx context.Context, tx pgx.Tx, name pgx.Identifier) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, name.Sanitize())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// lacks returns the columns that are missing in there.
func lacks(columns, there []string) []string {
	return slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(there, c) })
}
