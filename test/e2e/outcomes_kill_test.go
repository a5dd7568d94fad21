package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

// book is a gateway's own ledger: its charges, by key. It repeats its first answer to a used key.
type book struct {
	mu   sync.Mutex
	rows map[string]string // "done inv-7 107 EUR", or "parked inv-50"
}

// ServeHTTP implements http.Handler.
func (b *book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, amount := r.Header.Get("Idempotency-Key"), r.FormValue("amount")
	status, row := http.StatusOK, fmt.Sprintf("done %s %s %s", key, amount, r.FormValue("currency"))
	if strings.HasSuffix(key, "50") {
		status, row = http.StatusPaymentRequired, "parked "+key
	}
	b.mu.Lock()
	if first, again := b.rows[key]; again && first != row {
		row += ", and before " + first
	}
	b.rows[key] = row
	b.mu.Unlock()
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"id": "ch_" + key})
}

func (b *book) all() (rows []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, row := range b.rows {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows)
}

// Dispatchers, the copier, Redis (AOF always) and PostgreSQL are killed in turn while jobs run: the table equals the provider's ledger, row for row and cent for cent.
func TestTheTableEqualsTheProvidersLedger(t *testing.T) {
	t.Parallel()
	n := testkit.Often(3000, 90_000) // 10 s, and 5 minutes, at 300/s
	db := testkit.Postgres(t)
	ledger := &book{rows: map[string]string{}}
	gateway := httptest.NewServer(ledger)
	t.Cleanup(gateway.Close)
	w := newWorld(t, provider.Config{}, "    leak: {limits: [300/s], jitter: 10ms}\n"+roomy+"    reference: id"+fedBy)
	always := testkit.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	config := strings.NewReplacer(w.redis.URL(), always.URL(), w.url+"/v1/payment_intents", gateway.URL+"\n      timeout: 2s").Replace(read(t, w.config))
	w.redis.Stop()
	w.redis, w.config = always, w.file("dispatcher.yaml", config)
	w.ok("enqueue", "-g", "stripe", "-f", w.jobs("jobs.ndjson", n), "--batch", "b")

	serving := []*run{w.dispatcher(), w.dispatcher()}
	copying := w.copier(db.URL())
	kills := 0
	for ; kills < n/300 && ledger.size() < n; kills++ {
		before := ledger.size()
		testkit.Within(3*time.Second, 20*time.Millisecond, func() bool { return ledger.size() >= min(n, before+300) })
		switch turn := kills % 5; turn {
		case 0, 2:
			i := turn / 2
			serving[i].kill()
			serving[i] = w.dispatcher()
		case 1:
			copying.kill()
			if copying.cmd.ProcessState.Exited() {
				t.Fatalf("the copier has ended by itself:\n%s", copying.text())
			}
			copying = w.copier(db.URL())
		case 3:
			w.redis.Kill()
			w.redis.Restart()
		case 4:
			db.Restart()
		}
	}
	testkit.Eventually(t, 5*time.Minute, "the gateway to be called for every job", func() bool { return ledger.size() == n })
	s := w.settled(3 * time.Minute)
	if err := w.copying(nil, "--to", db.URL(), "--once"); err != nil {
		t.Fatal(err)
	}
	copying.ended(0)
	c := testkit.PostgresConn(t, db.URL())
	same(t, copied(t, c), w.told())
	rows, err := c.Query(t.Context(), `SELECT CASE state WHEN 'done' THEN concat_ws(' ', state, id, amount, currency) ELSE concat_ws(' ', state, id) END || CASE WHEN reference <> 'ch_' || id THEN ' ' || reference ELSE '' END
		FROM outcomes WHERE id IS NOT NULL`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		got = append(got, row)
	}
	slices.Sort(got)
	want := ledger.all()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d rows, and the ledger has %d; they differ from number %d on: %q, %q", len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
	t.Logf("%d kills; %d rows, %d done, %v parked", kills, len(got), s.Done, s.Parked)
}

// copier starts an "outcomes copy" that follows the feed.
func (w *world) copier(to string) *run {
	w.t.Helper()
	return w.started(exec.Command(filepath.Join(bin, "dispatcher"), "outcomes", "copy", "--table", "outcomes", "--reader", "ledger", "--to", to, "-o", "json"))
}

// ended stops a program, which must exit with this code.
func (r *run) ended(code int) {
	r.t.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if _ = r.cmd.Wait(); r.cmd.ProcessState.ExitCode() != code {
		r.t.Errorf("it ended with %d, want %d\n%s", r.cmd.ProcessState.ExitCode(), code, r.text())
	}
}
