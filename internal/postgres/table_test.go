package postgres_test

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/internal/feed"
	"spillway/internal/job"
	"spillway/internal/postgres"
	"spillway/internal/testkit"
)

// outcomes returns outcomes of done jobs with amounts that no floating point number can hold.
func outcomes(from, n int) (all []feed.Outcome) {
	for i := from; i < from+n; i++ {
		at := time.UnixMicro(1_763_742_851_000_000 + int64(i)).UTC()
		amount, _ := new(big.Int).SetString("9007199254740993000000001", 10)
		all = append(all, feed.Outcome{Cursor: fmt.Sprintf("1763742851-%d", at.UnixMicro()), Gateway: "stripe", ID: fmt.Sprint("inv-", i), State: "done", Status: 200, Reference: "ch_1",
			Amount: amount, Currency: "EUR", Attempts: 1, AcceptedAt: &at, At: at})
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened returns a reader's table on a connection of its own.
func opened(t *testing.T, url, name, reader string) *postgres.Table {
	t.Helper()
	db, err := postgres.New(url)
	must(t, err)
	table, err := postgres.NewTable(db, name, reader)
	must(t, err)
	t.Cleanup(func() { table.Close(t.Context()) })
	return table
}

func one[T any](t *testing.T, c *pgx.Conn, sql string) (v T) {
	t.Helper()
	must(t, c.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// Tests that don't kill the server share one.
func TestTables(t *testing.T) {
	t.Parallel()
	db := testkit.Postgres(t)
	for i, test := range map[string]func(*testing.T, string){"as they were": hasOutcomesAsTheyWere, "turns": copiersTakeTurns, "renamed": aRenamedGatewayGoesOn, "refused": whatCanNotBeExactIsRefused} {
		url := db.Database(t, strings.ReplaceAll(i, " ", "_"))
		t.Run(i, func(t *testing.T) { test(t, url) })
	}
}

func hasOutcomesAsTheyWere(t *testing.T, url string) {
	c := testkit.PostgresConn(t, url)
	_, err := c.Exec(t.Context(), `CREATE SCHEMA billing; ALTER DATABASE as_they_were SET default_transaction_isolation = 'serializable'; ALTER DATABASE as_they_were SET synchronous_commit = off`)
	must(t, err)
	table := opened(t, url, "billing.outcomes", "ledger")
	after, err := table.Begin(t.Context(), "stripe", "", "")
	must(t, err)
	page := outcomes(0, 3)
	refused := job.Refused
	page[1].State, page[1].Reason, page[1].Amount, page[1].Currency, page[1].Route, page[1].Lane = "parked", &refused, nil, "", "refund", "acct_1"
	page = append(page, feed.Outcome{Cursor: "1763742851-1763742851000009", Gateway: "stripe", Batch: "b", State: feed.BatchDone, At: page[2].At})
	after, n, err := table.Put(t.Context(), "stripe", after, page)
	must(t, err)
	if n != 4 || after != page[3].Cursor {
		t.Errorf("%d rows up to %s", n, after)
	}
	if got := one[string](t, c, `SELECT sum(amount)::text FROM billing.outcomes`); got != "18014398509481986000000002" {
		t.Errorf("the sum is %s", got)
	}
	if got := one[string](t, c, `SELECT string_agg(concat_ws(',', id, batch, route, lane, state, reason, status, reference, currency, attempts, accepted_at AT TIME ZONE 'UTC', at AT TIME ZONE 'UTC'), ';' ORDER BY cursor) FROM billing.outcomes`); got !=
		"inv-0,done,200,ch_1,EUR,1,2025-11-21 16:34:11,2025-11-21 16:34:11;inv-1,refund,acct_1,parked,refused,200,ch_1,1,2025-11-21 16:34:11.000001,2025-11-21 16:34:11.000001;"+
			"inv-2,done,200,ch_1,EUR,1,2025-11-21 16:34:11.000002,2025-11-21 16:34:11.000002;b,batch_done,0,2025-11-21 16:34:11.000002" {
		t.Error(got)
	}
	again := opened(t, url, "billing.outcomes", "ledger")
	if got, err := again.Begin(t.Context(), "stripe", page[2].Cursor, ""); err != nil || got != page[3].Cursor {
		t.Errorf("another copier begins at %q: %v", got, err)
	}
	if got, err := again.Begin(t.Context(), "adyen", "", ""); err != nil || got != "" {
		t.Errorf("another gateway begins at %q: %v", got, err)
	}
}

// Several copiers of one reader write each outcome once between them.
func copiersTakeTurns(t *testing.T, url string) {
	all := outcomes(0, 400)
	var work sync.WaitGroup
	put := make([]int, 4)
	for i := range put {
		work.Go(func() {
			table := opened(t, url, "outcomes", "ledger")
			var at string
			for err := errors.New("not begun"); err != nil; { // all of them make the table
				if at, err = table.Begin(t.Context(), "stripe", "", ""); err != nil && job.CodeOf(err) != job.CodeUnavailable {
					t.Error(err)
					return
				}
			}
			for at != all[len(all)-1].Cursor {
				next := 0
				for next < len(all) && all[next].Cursor <= at {
					next++
				}
				upto, n, err := table.Put(t.Context(), "stripe", at, all[next:min(next+7, len(all))])
				if err != nil {
					t.Error(err)
					return
				}
				put[i] += n
				at = upto
			}
		})
	}
	work.Wait()
	if rows := one[int](t, testkit.PostgresConn(t, url), `SELECT count(*) FROM outcomes`); rows != 400 || put[0]+put[1]+put[2]+put[3] != 400 {
		t.Errorf("%d rows, %v were put", rows, put)
	}
}

// A renamed gateway keeps its feed. Rows that the table has with the old name do not come again with the new one.
func aRenamedGatewayGoesOn(t *testing.T, url string) {
	table := opened(t, url, "outcomes", "ledger")
	page := outcomes(0, 5)
	for _, gateway := range []string{"adyen", "stripe"} {
		_, err := table.Begin(t.Context(), gateway, "", "")
		must(t, err)
	}
	_, _, err := table.Put(t.Context(), "stripe", "", page[:4])
	must(t, err)
	for i := range page {
		page[i].Gateway = "stripe-eu"
	}
	after, err := table.Begin(t.Context(), "stripe-eu", page[0].Cursor, "") // another reader keeps what is behind it
	must(t, err)
	after, n, err := table.Put(t.Context(), "stripe-eu", after, page[1:])
	if err != nil || n != 0 || after != page[3].Cursor {
		t.Fatal(after, n, err)
	}
	if again, err := table.Begin(t.Context(), "stripe-eu", page[0].Cursor, ""); err != nil || again != after {
		t.Fatal(again, err)
	}
	if _, n, err = table.Put(t.Context(), "stripe-eu", after, page[4:]); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if rows := one[int](t, testkit.PostgresConn(t, url), `SELECT count(*) FROM outcomes`); rows != 5 {
		t.Errorf("%d rows of 5 outcomes", rows)
	}
}

func whatCanNotBeExactIsRefused(t *testing.T, url string) {
	c := testkit.PostgresConn(t, url)
	_, err := c.Exec(t.Context(), `CREATE TABLE bare (cursor text, id text)`)
	must(t, err)
	table := opened(t, url, "outcomes", "ledger")
	after, err := table.Begin(t.Context(), "stripe", "", "")
	must(t, err)
	page := outcomes(0, 2)
	_, _, err = table.Put(t.Context(), "stripe", after, page[:1])
	must(t, err)
	for what, c := range map[string]struct {
		table, reader, acked string
		code                 job.Code
		says                 string
		kept                 string
	}{
		"a table without the columns":                   {"bare", "ledger", "", job.CodeUsage, "the table bare has no column gateway, batch", ""},
		"a table of another reader":                     {"outcomes", "mailer", "", job.CodeUsage, "the reader ledger copies the outcomes of stripe into the table outcomes already", ""},
		"a table that was restored":                     {"outcomes", "ledger", page[1].Cursor, job.CodeFailed, "PostgreSQL has lost rows that it had committed", ""},
		"a table that is behind, and all of it is kept": {"outcomes", "ledger", page[1].Cursor, "", "", page[0].Cursor},
		"a table that is behind what is kept":           {"outcomes", "ledger", page[1].Cursor, job.CodeFailed, "PostgreSQL has lost rows", page[1].Cursor},
		"a schema that is not there":                    {"nowhere.outcomes", "ledger", "", job.CodeFailed, `schema "nowhere" does not exist`, ""},
		"a table as far as is acknowledged":             {"outcomes", "ledger", page[0].Cursor, "", "", ""},
		"a table that is ahead, as after a kill":        {"outcomes", "ledger", "", "", "", ""},
	} {
		_, err := opened(t, url, c.table, c.reader).Begin(t.Context(), "stripe", c.acked, c.kept)
		if c.code == "" && err != nil || c.code != "" && (err == nil || job.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The database itself keeps the promise: a row that is already there is an error, which holds nothing of the row.
	_, err = c.Exec(t.Context(), `UPDATE outcomes_cursors SET cursor = ''`)
	must(t, err)
	if _, _, err := table.Put(t.Context(), "stripe", "", page); job.CodeOf(err) != job.CodeFailed || !strings.Contains(err.Error(), "SQLSTATE 23505, constraint outcomes_pkey") || strings.Contains(err.Error(), "1763742851") {
		t.Error(err)
	}
	// Nor does an error that a trigger raises, with any SQLSTATE.
	for _, state := range []string{"45000", "42501", "40001"} {
		_, err = c.Exec(t.Context(), `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not %', NEW.id USING ERRCODE = '`+state+`'; END $$;
			CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON outcomes FOR EACH ROW EXECUTE FUNCTION refuse(); TRUNCATE outcomes`)
		must(t, err)
		if _, _, err := table.Put(t.Context(), "stripe", "", page); err == nil || !strings.Contains(err.Error(), "SQLSTATE "+state) || strings.Contains(err.Error(), "inv-") {
			t.Errorf("%s: %v", state, err)
		}
	}
	for _, name := range []string{"", "Outcomes", "a.b.c", `x"; DROP TABLE outcomes; --`, strings.Repeat("x", 60)} {
		if _, err := postgres.NewTable(nil, name, "ledger"); job.CodeOf(err) != job.CodeUsage {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// No error holds a part of an address, because any part may hold a password.
func TestAddressesAreNotShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:s3cret@127.0.0.1:1/db?connect_timeout=1", "postgres://u:s3cret/x@127.0.0.1:1/db", "postgres://u:s3cret@127.0.0.1:port/db", "postgres://u:s3cr%et@127.0.0.1:1/db", "postgres://u@127.0.0.1:1/?sslmode=s3cret",
		"host=h password=s3cret"} {
		db, err := postgres.New(url)
		if err == nil {
			table, _ := postgres.NewTable(db, "outcomes", "ledger")
			_, err = table.Begin(t.Context(), "stripe", "", "")
		}
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "s3cr%et") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Others that could read along are warned of, on each of several ways.
func TestAWayWithoutChecksIsWarnedOf(t *testing.T) {
	for _, name := range []string{"PGSSLMODE", "PGSSLROOTCERT", "PGHOST", "PGHOSTADDR"} {
		t.Setenv(name, "")
	}
	for url, warned := range map[string]bool{
		"postgres://u@db/x": true, "postgres://u@db/x?sslmode=disable": true, "postgres://u@db/x?sslmode=allow": true, "postgres://u@db/x?sslmode=prefer": true, "postgres://u@db/x?sslmode=require": true,
		"postgres://u@10.0.0.1/x": true, "postgres://u@127.0.0.1,db/x": true, "postgres://u@db,127.0.0.1/x": true,
		"postgres://u@db/x?sslmode=verify-ca": false, "postgres://u@db/x?sslmode=verify-full": false, "postgres://u@db1,db2/x?sslmode=verify-full": false,
		"postgres://u@127.0.0.1/x": false, "postgres://u@localhost/x?sslmode=disable": false, "postgres://u@[::1]/x": false, "postgres:///x?host=/run/postgresql": false,
	} {
		db, err := postgres.New(url)
		must(t, err)
		if got := db.Warning(); (got != "") != warned {
			t.Errorf("%s: %q", url, got)
		}
	}
}

// A killed PostgreSQL is unavailable, and the same table works again when it is back.
func TestAPostgresThatComesBack(t *testing.T) {
	t.Parallel()
	db := testkit.Postgres(t)
	table := opened(t, db.URL(), "outcomes", "ledger")
	after, err := table.Begin(t.Context(), "stripe", "", "")
	must(t, err)
	page := outcomes(0, 10)
	after, _, err = table.Put(t.Context(), "stripe", after, page[:4])
	must(t, err)
	db.Kill()
	for range 2 {
		if same, n, err := table.Put(t.Context(), "stripe", after, page[4:]); job.CodeOf(err) != job.CodeUnavailable || same != after || n != 0 {
			t.Fatal(same, n, err)
		}
	}
	db.Restart()
	if upto, n, err := table.Put(t.Context(), "stripe", after, page[4:]); err != nil || n != 6 || upto != page[9].Cursor {
		t.Fatal(upto, n, err)
	}
	if upto, n, err := table.Put(t.Context(), "stripe", after, page[4:]); err != nil || n != 0 || upto != page[9].Cursor {
		t.Errorf("what was put already is put again: %s %d %v", upto, n, err)
	}
}
