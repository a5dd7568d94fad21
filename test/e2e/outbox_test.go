package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// outbox creates the table of the example, with n payments.
func outbox(t *testing.T, db *testkit.PostgresServer, n int) *pgx.Conn {
	t.Helper()
	c := testkit.PostgresConn(t, db.URL())
	for _, sql := range []string{read(t, "../../examples/outbox/outbox.sql"), `INSERT INTO payment_outbox (id, gateway, batch, payload, at)
		SELECT 'inv-' || i, 'stripe', '2026-11', jsonb_build_object('amount', 100 + i, 'currency', 'EUR'), '2026-01-01' FROM generate_series(1, ` + fmt.Sprint(n) + `) i`} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// count returns how many rows of the outbox meet a condition.
func count(t *testing.T, c *pgx.Conn, where string) (n int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), `SELECT count(*) FROM payment_outbox WHERE `+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// enqueue is killed at each of its statements, also between the admission and the mark in the table. Each row is accepted once.
func TestAnOutboxIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	n := testkit.Often(8000, 100_000)
	db := testkit.Postgres(t)
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    admission: {limits: [100/s], burst: 200000}\n    amount: {field: amount, currency: currency}\n")
	c := outbox(t, db, n)
	line := cutTo(t, db.Addr())
	args := []string{"--from", db.URLAt(line.ln.Addr().String()), "--outbox", "payment_outbox", "-o", "json"}
	kills := []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	if n > 8000 {
		kills = append(kills, 30, 47, 64, 81, 98)
	}
	for i, at := range kills {
		line.next(at, i%2 == 1)
		if w.killable(line, "enqueue", args...) == nil {
			t.Fatalf("question %d was never put", at)
		}
	}
	marked, known := count(t, c, "accepted_at IS NOT NULL"), w.status().Queued
	if marked >= known || marked == 0 {
		t.Errorf("%d rows are marked, %d jobs are queued: it was not killed between the two", marked, known)
	}
	last := decode[report](t, w.ok("enqueue", args...))
	if last.Duplicate != known-marked || last.Enqueued+known != n || last.Parked+last.Invalid+last.Failed != 0 || last.Read != n-marked {
		t.Errorf("%+v; %d were marked and %d known", last, marked, known)
	}
	if s := w.status(); s.Queued != n || count(t, c, "accepted_at IS NOT NULL AND refused IS NULL") != n {
		t.Errorf("%+v, want %d", s, n)
	}
	w.ok("dispatcher", "audit")
	money := w.ok("dispatcher", "batch", "2026-11")
	if want := fmt.Sprintf("EUR %d", n*100+n*(n+1)/2); !strings.Contains(money, want) {
		t.Errorf("the batch has no %s:\n%s", want, money)
	}
}

// A row that can't be a job gets the reason, and stops no other row. A row that was corrected is accepted. A dry run changes nothing. --follow accepts new rows until it is stopped.
func TestAnOutboxSaysWhatItCanNotTake(t *testing.T) {
	t.Parallel()
	db := testkit.Postgres(t)
	w := newWorld(t, provider.Config{}, "    leak: {limits: [100/s]}\n    amount: {field: amount, currency: currency}\n")
	c := outbox(t, db, 5)
	change := func(sql string) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	change(`UPDATE payment_outbox SET gateway = 'canary' WHERE id = 'inv-2'; UPDATE payment_outbox SET payload = '{"amount":-4242,"currency":"EUR"}' WHERE id = 'inv-3'`)
	args := []string{"--from", db.URL(), "--outbox", "payment_outbox", "-o", "json"}
	if dry := w.do("enqueue", append(args, "--dry-run")...); dry.code != 3 || !strings.Contains(dry.out, `"usable":3`) || count(t, c, "accepted_at IS NULL AND refused IS NULL") != 5 {
		t.Errorf("a dry run: %+v", dry)
	}
	got := w.do("enqueue", args...)
	if got.code != 3 || !strings.Contains(got.err, "row inv-2: no gateway \"canary\" is configured\n") || !strings.Contains(got.err, "row inv-3: the amount") || strings.Contains(got.err, "4242") ||
		!strings.Contains(got.err, "the column refused says why") {
		t.Errorf("%+v", got)
	}
	if count(t, c, "accepted_at IS NOT NULL") != 3 || count(t, c, "refused LIKE 'no gateway%' AND id = 'inv-2'") != 1 || count(t, c, "refused LIKE 'the amount%' AND refused NOT LIKE '%4242%' AND id = 'inv-3'") != 1 {
		t.Error("the marks are wrong")
	}
	// A name with a NUL, which PostgreSQL can't store in a text, is in the reason.
	change(`ALTER TABLE payment_outbox ALTER payload TYPE json; INSERT INTO payment_outbox (id, gateway, payload) VALUES ('nul', 'stripe', '{"\u0000":"4111111111111111","amount":1,"currency":"EUR"}'), ('behind', 'stripe', '{"amount":1,"currency":"EUR"}')`)
	if got := w.do("enqueue", args...); got.code != 3 || count(t, c, "refused LIKE '%card number%' AND id = 'nul'") != 1 || count(t, c, "accepted_at IS NOT NULL") != 4 {
		t.Errorf("%+v", got)
	}
	following := w.started(w.follower(args))
	change(`UPDATE payment_outbox SET gateway = 'stripe', refused = NULL WHERE id = 'inv-2'; UPDATE payment_outbox SET payload = '{"amount":4242,"currency":"EUR"}', refused = NULL WHERE id = 'inv-3'`)
	w.shown(t, 0, "the mended rows to go in", func() bool { return count(t, c, "accepted_at IS NOT NULL") == 6 })
	change(`UPDATE payment_outbox SET accepted_at = NULL, payload = '{"amount":1,"currency":"EUR"}' WHERE id = 'inv-1'`)
	w.shown(t, 0, "the row with another payload to be refused", func() bool { return count(t, c, "refused LIKE '%payload%'") == 1 })
	following.ended(3) // some of its rows were invalid
	if s := w.status(); s.Queued != 6 {
		t.Errorf("%+v", s)
	}
}
