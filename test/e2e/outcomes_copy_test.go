package e2e

import (
	"math"
	"math/rand/v2"
	"testing"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

const fedBy = `
    amount: {field: amount, currency: currency}
    outcomes: {readers: [ledger, witness]}
`

// The copier is killed at each of its statements, before PostgreSQL gets it or after PostgreSQL has run it: no row is there twice, and none is missing.
func TestTheCopierIsKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	db := testkit.Postgres(t)
	w := newWorld(t, provider.Config{}, "    leak: {limits: [1/h]}\n    admission: {burst: 1}"+fedBy)
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("jobs.ndjson", 1500), "--batch", "b")
	all := w.told()
	if len(all) < 1400 {
		t.Fatalf("%d outcomes: this shows too little", len(all))
	}
	line, conn := cutTo(t, db.Addr()), testkit.PostgresConn(t, db.URL())
	to := []string{"--to", db.URLAt(line.ln.Addr().String()), "--rows", "20", "--once"}
	rows, kills, ways := 0, 0, []bool{false, true}
	step := testkit.Often(2, 1)                           // every second statement, from a random one on, so that several runs cover them all
	for at := 1 + rand.IntN(step); at <= 36; at += step { // 16 to begin with, and 7 for each batch of rows
		for i, after := range ways {
			if step > 1 && i != at/2%2 {
				continue // the ways take turns
			}
			line.next(at, after)
			if w.copying(line, to...) == nil {
				t.Fatalf("question %d was never put: the copier was through", at)
			}
			kills++
		}
		if at%9 < step || at+step > 36 {
			now := copied(t, conn)
			if len(now) < rows {
				t.Fatalf("%d rows, and %d before", len(now), rows)
			}
			rows = len(now)
			same(t, now, all[:rows])
		}
	}
	line.next(math.MaxInt, false)
	if err := w.copying(line, to...); err != nil {
		t.Fatal(err)
	}
	same(t, copied(t, conn), all)
	t.Logf("killed %d times; %d rows were there before the last run of %d questions", kills, rows, line.asked)
	if rows < 40 || rows >= len(all) {
		t.Errorf("%d rows of %d: it was not killed on the way", rows, len(all))
	}
}
