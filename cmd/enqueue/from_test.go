package main

import (
	"fmt"
	"strings"
	"testing"

	"spillway/internal/cli"
	"spillway/internal/testkit"
)

// due is a table of a billing system, with columns of different types.
const due = `CREATE SEQUENCE next; CREATE TABLE due (invoice text, total numeric(12,2), currency text, note text, due_at timestamptz, tags jsonb, raw json, paid boolean, big numeric, n bigint);
INSERT INTO due VALUES
  ('inv-1', 1698.81, 'EUR', 'a "b" \ c', '2026-11-30 18:00:00+01', '{"b": [1.50, null], "a": {"x": 1e2}}', E'{"k":\n 1}', true, 12345678901234567890.12345678901234567890, 9007199254740993),
  ('inv-2', 0.10, 'EUR', NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  ('inv-3', 0.105, 'EUR', '', NULL, NULL, NULL, false, 0, -1),
  (NULL, 5, 'EUR', 'no id', NULL, NULL, NULL, NULL, NULL, NULL);
UPDATE due SET total = 0.11 WHERE invoice = 'inv-3'`

func TestRowsOfAQueryBecomeJobs(t *testing.T) {
	b := setup(t, place{more: "map: {money.amount: {from: total, minor: true}, money.currency: {from: currency}, rest: keep}"})
	db := testkit.Postgres(t)
	if _, err := testkit.PostgresConn(t, db.URL()).Exec(t.Context(), due+`; ALTER DATABASE postgres SET TimeZone = 'America/New_York'`); err != nil {
		t.Fatal(err)
	}
	from := []string{"-g", b.g, "--from", db.URL(), "--query", "SELECT * FROM due ORDER BY n DESC NULLS LAST -- all\n;", "--id-column", "invoice", "-o", "json"}
	dry := b.run(append(from, "--dry-run")...)
	if dry.code != 3 || !strings.Contains(dry.out, `"usable":3,"amount":{"EUR":169902}`) || dry.err != "row 4: no id: the field \"invoice\" is missing, null or empty\ndry run: nothing was sent to Redis\nenqueue: 1 of 4 lines could not be used\n"+unusable &&
		!strings.Contains(dry.err, "row 4: no id") {
		t.Errorf("%+v", dry)
	}
	got := b.run(append(from, "--rejects", "rejected.ndjson", "--expect-sum", "EUR=1699.02")...)
	if got.code != 3 || !strings.Contains(got.out, `{"read":4,"enqueued":3,"parked":0,"duplicate":0,"invalid":1,"failed":0`) || !strings.Contains(got.err, "row 4: no id: the field \"invoice\" is missing") {
		t.Errorf("%+v", got)
	}
	if rejected := b.read("rejected.ndjson"); !strings.HasPrefix(rejected, `{"invoice":null,"total":5.00,`) {
		t.Error(rejected)
	}
	want := `{"big":12345678901234567890.12345678901234567890,"due_at":"2026-11-30T17:00:00+00:00","money":{"amount":169881,"currency":"EUR"},"n":9007199254740993,"note":"a \"b\" \\ c","paid":true,"raw":{"k":1},"tags":{"a":{"x":100},"b":[1.50,null]}}`
	if got := string(b.record(b.g, "inv-1").Job.Payload); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(b.record(b.g, "inv-2").Job.Payload); got != `{"money":{"amount":10,"currency":"EUR"}}` {
		t.Error(got)
	}
	again := b.run(append(from, "-q")...)
	if !strings.Contains(again.out, `"duplicate":3,"invalid":1`) {
		t.Errorf("%+v", again)
	}
}

func TestQueriesThatAreNotOfJobs(t *testing.T) {
	b := setup(t, place{})
	db := testkit.Postgres(t)
	if _, err := testkit.PostgresConn(t, db.URL()).Exec(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--query", "SELECT n, n FROM due", "--id-column", "n"}, 2, `--query has two columns "n"`},
		{[]string{"--query", "SELECT n AS id, total FROM due", "--id-column", "invoice"}, 2, "its columns are id, total"},
		{[]string{"--query", "SELECT nothing FROM due", "--id-column", "id"}, 1, `column "nothing" does not exist`},
		{[]string{"--query", "DELETE FROM due RETURNING *", "--id-column", "invoice"}, 1, "syntax error"},
		{[]string{"--query", "SELECT nextval('next') AS id", "--id-column", "id"}, 2, "--query writes"},
		{[]string{"--query", "SELECT 1 AS id) q; DROP TABLE due; SELECT (2", "--id-column", "id"}, 1, "SQLSTATE 42601"},
		{[]string{"--query", "SELECT invoice, note::int FROM due", "--id-column", "invoice"}, 1, "SQLSTATE 22P02"},
		{[]string{"--query", "SELECT 1"}, 2, "--query needs --id-column"}, {[]string{}, 2, "which rows"},
		{[]string{"--query", "SELECT 1", "--outbox", "x"}, 2, "which rows"}, {[]string{"--outbox", "x", "--id-column", "id"}, 2, "--id-column is for --query"},
		{[]string{"--outbox", "due"}, 2, "the outbox due has no column position, id, payload"}, {[]string{"--outbox", "nowhere"}, 2, "there is no table nowhere"},
		{[]string{"--outbox", "due", "-f", "x"}, 2, "-f does not go with --from"}, {[]string{"--query", "SELECT 1", "--id-column", "id", "--follow"}, 2, "--follow is for --outbox"},
	} {
		got := b.run(append([]string{"-g", b.g, "--from", strings.Replace(db.URL(), "spillway@", "spillway:canary@", 1), "-q"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.err, c.says) || strings.Contains(got.err, `a "b"`) || strings.Contains(got.err, "canary") {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	if got := b.run("-g", b.g, "--query", "SELECT 1", "-f", "x"); got.code != 2 || !strings.Contains(got.err, "there is no --from") {
		t.Errorf("%+v", got)
	}
	db.Kill()
	if got := b.run("-g", b.g, "--from", db.URL(), "--outbox", "due"); got.code != 5 || !strings.Contains(got.err, "PostgreSQL is away") {
		t.Errorf("%+v", got)
	}
	b.want(b.run("-g", b.g, "--from", "postgres://u:${NOT_SET_ANYWHERE}@h/db", "--outbox", "due"), result{2, "", "enqueue: --from: ${NOT_SET_ANYWHERE} is not set: set it in the environment of this command\n"})
}

// Rows are read as a stream, so that all of them need not fit into memory.
func TestManyRowsComeAsAStream(t *testing.T) {
	b := setup(t, place{burst: 50_000})
	db := testkit.Postgres(t)
	n := testkit.Often(3000, 30_000)
	query := fmt.Sprintf("SELECT 'r-' || i AS id, repeat('x', 1000) AS pad FROM generate_series(1, %d) i", n)
	got := b.run("-g", b.g, "--from", db.URL(), "--query", query, "--id-column", "id", "-o", "json")
	b.want(got, result{0, counts(n, n, 0, 0, 0, 0), ""})
	if ids := b.queued(b.g); len(ids) != n || ids[n-1] != fmt.Sprintf("r-%d~1", n) {
		t.Errorf("%d ids, the last is %s", len(ids), ids[len(ids)-1])
	}
}

// A connection on which others could read the rows is warned of.
func TestRowsThatOthersCouldReadAreWarnedOf(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for from, want := range map[string]bool{"postgres://u@db/x": true, "postgres://u@db/x?sslmode=verify-full": false, "postgres://u@127.0.0.1/x": false} {
		var err strings.Builder
		o := &options{flags: flags{from: from, outbox: "outbox"}}
		if _, _, failed := o.open(t.Context(), cli.Streams{Err: &err}); failed != nil {
			t.Fatal(failed)
		}
		if strings.HasPrefix(err.String(), "warning: anyone on the way to PostgreSQL") != want {
			t.Errorf("%s: %q", from, err.String())
		}
	}
}
