package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/double"
	"spillway/internal/job"
	"spillway/internal/ledger"
	"spillway/internal/provider"
)

const paypalFile = `redis: %[1]s
gateways:
  shop:
    like: paypal/payments-v2
    request:
      url: %[2]s/v2/payments/captures
      oauth2: {token_url: "%[2]s/v1/oauth2/token", client_id: shop, client_secret: "${TEST_KEY}"}
    leak: {limits: [20/s]}
    retry: {attempts: 1}
`

// tokensOf asks a double for the counts of its token endpoint, or tells it to revoke all tokens.
func tokensOf(t *testing.T, method, url string) (sums struct{ Requests, Given, Alive int }) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+"/_double/tokens", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if method == http.MethodGet {
		if err := json.NewDecoder(res.Body).Decode(&sums); err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

// denials returns a handler in front of a gateway that counts its answers 401.
func denials(gateway http.Handler) (http.Handler, *atomic.Int64) {
	n := &atomic.Int64{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		gateway.ServeHTTP(answer, r)
		if answer.Code == http.StatusUnauthorized {
			n.Add(1)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}), n
}

// Eight processes share the tokens of a gateway: they ask for one token in each life, also when all tokens are revoked in the middle. No attempt is spent, and no job has a 401 in its history.
func TestEightProcessesShareTheTokensOfAGateway(t *testing.T) {
	t.Parallel()
	life, lives := 5*time.Second, 4
	if *soak > 0 {
		life, lives = 20*time.Second, max(7, int(*soak/(16*time.Second)))
	}
	table, err := double.Load("paypal/payments-v2")
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := double.New(table, double.Options{TokenLife: life, Client: "shop:secret-4242"})
	if err != nil {
		t.Fatal(err)
	}
	counted, denied := denials(gateway)
	srv := httptest.NewServer(counted)
	t.Cleanup(srv.Close)
	w := newWorld(t, provider.Config{}, plain)
	w.more = []string{"TEST_KEY=secret-4242"}
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(paypalFile, w.redis.URL(), srv.URL))
	n := int(20 * (time.Duration(lives) * life * 4 / 5).Seconds())
	file := ""
	for i := range n {
		file += fmt.Sprintf(`{"id":"inv-%05d","payload":{"amount":{"value":"10.00","currency_code":"EUR"},"invoice_id":"inv-%05d"}}`+"\n", i, i)
	}
	w.ok("enqueue", "-f", w.file("jobs.ndjson", file))
	began := time.Now()
	const processes = 8
	for range processes {
		w.dispatcher()
	}
	w.shown(t, time.Minute+life, "half of the jobs to be done", func() bool { return w.status().Done >= n/2 })
	tokensOf(t, http.MethodDelete, srv.URL)
	w.shown(t, 4*time.Minute+time.Duration(lives)*life, "all jobs to be done", func() bool { return w.status().Done == n })
	took, tokens := time.Since(began), tokensOf(t, http.MethodGet, srv.URL)
	most := int(took/(life*4/5)) + 2 // the first one, and the one after the revocation
	if *soak == 0 {
		most += max(int(denied.Load())-processes, 0) // beside one for each process after the revocation: a call that a busy machine delays may arrive with an expired token
	}
	t.Logf("%d jobs in %s: %d requests for tokens that live for %s, at most %d wanted", n, took.Round(time.Second/10), tokens.Requests, life, most)
	if tokens.Requests > most || tokens.Requests < 3 || tokens.Given != tokens.Requests {
		t.Errorf("%+v in %s, want at most %d", tokens, took, most)
	}
	if charged := len(gateway.Ledger()); charged != n {
		t.Errorf("%d charged, want %d", charged, n)
	}
	c := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	for r, err := range ledger.EachJob(t.Context(), []*ledger.Books{ledger.New(c, ledger.Config{Gateway: "shop"})}, false) {
		if err != nil {
			t.Fatal(err)
		}
		if r.State != job.Done || r.Spent != 0 || len(r.History) != 1 || r.History[0].Status != 201 {
			t.Errorf("%s: %s, %d attempts spent: %+v", r.Job.ID, r.State, r.Spent, r.History)
		}
	}
}
