package dispatch

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/admission"
	"spillway/internal/config"
	"spillway/internal/gateway"
	"spillway/internal/job"
	"spillway/internal/testkit"
)

// A faulty request is reported when the file is read. Every request that the file may contain can be called.
func TestWhatTheFileMaySayOfARequestCanBeCalled(t *testing.T) {
	t.Parallel()
	for request, may := range map[string]bool{
		`url: "https://x.example"`:                                                     true,
		`url: "https://x.example?id={id}"`:                                             true,
		`url: "https://x.example/{payload.a.b}?id={id}"`:                               true,
		`url: "https://[::1]:8443/v1/{id}"`:                                            true,
		`url: "https://x.example{id}/"`:                                                false,
		`url: "https://user:secret@x.example/"`:                                        false,
		`url: "HTTPS://x.example/"`:                                                    false,
		`url: "https://x.example/", sign: {header: S, secret: "", content: "{body}"}`:  false,
		`url: "https://x.example/", sign: {header: S, secret: "a", content: "{body}"}`: true,
	} {
		checkRequest(t, request, may)
	}
	for algorithm, private := range signingKeys(t) {
		key := "\"" + strings.ReplaceAll(private, "\n", `\n`) + "\""
		checkRequest(t, `url: "https://x.example/", sign: {header: S, content: "{body}", algorithm: `+algorithm+`, private_key: `+key+`}`, true)
		checkRequest(t, `url: "https://x.example/", sign: {header: S, algorithm: `+algorithm+`, private_key: `+key+`, jws: {key_id: k, protected: {a: [1], crit: [a]}}}`, algorithm != "es256-raw")
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		checkRequest(t, `url: "https://x.example/", method: `+method, true)
	}
	for _, method := range []string{"HEAD", "OPTIONS", "CONNECT", "TRACE"} {
		checkRequest(t, `url: "https://x.example/", method: `+method, false)
	}
	for name, may := range map[string]bool{"X-Own": true, "User-Agent": true, "Content-Type": true, "Accept": true, "Accept-Encoding": false, "Connection": false,
		"Content-Length": false, "Expect": false, "Keep-Alive": false, "Proxy-Connection": false, "TE": false, "Trailer": false, "Transfer-Encoding": false, "Upgrade": false} {
		checkRequest(t, fmt.Sprintf(`url: "https://x.example/", headers: {%s: a}`, name), may)
		checkRequest(t, fmt.Sprintf(`url: "https://x.example/", idempotency_header: %s`, name), may)
	}
}

// signingKeys returns a private key in PEM for each algorithm that needs one.
func signingKeys(t *testing.T) map[string]string {
	t.Helper()
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for algorithm, key := range map[string]any{"rs256": long, "ps256": long, "es256": curve, "es256-raw": curve, "ed25519": ed} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		all[algorithm] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	return all
}

func checkRequest(t *testing.T, request string, may bool) {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte("gateways:\n  g:\n    request: {"+request+"}\n    leak: {limits: [1/s]}\n"), config.Options{Secrets: true})
	if (err == nil) != may {
		t.Errorf("%s: %v", request, err)
	}
	if err != nil {
		return
	}
	how, err := callConfig(cfg.Gateways[0])
	if err == nil {
		_, err = gateway.New(how)
	}
	if err != nil {
		t.Errorf("%s is allowed in the file, and refused by the call: %v", request, err)
	}
}

// A job's payload names the account. It is sent in a header and not in the body, and neither is what only the books need. A job that names no account is refused
// without a call.
func TestAJobNamesItsAccount(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Header.Get("Stripe-Account")+" "+string(body))
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}))
	t.Cleanup(srv.Close)
	r := setup(t, quick+"\namount: {field: total.minor, currency: total.currency}")
	g := &r.cfg.Gateways[0]
	cfg, err := config.Parse("x.yaml", []byte("gateways: {g: {leak: {limits: [1/s]}, request: {url: \""+srv.URL+"\", headers: {Stripe-Account: \"{payload.account}\"}, strip: [account, total]}}}"),
		config.Options{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	before := sent(*g)
	g.Request = cfg.Gateways[0].Request
	if got := strings.Join(job.SentChanges(before, sent(*g)), ", "); got != "url or method, encoding or strip, headers with placeholders" {
		t.Errorf("changed: %s", got)
	}
	jobs := []job.Job{
		{ID: "with", Gateway: g.Name, Cost: 1, Payload: []byte(`{"account":"acct_7", "total":{"minor":4900,"currency":"EUR"}, "pay" : 1.50}`)},
		{ID: "without", Gateway: g.Name, Cost: 1, Payload: []byte(`{"total":{"minor":100,"currency":"EUR"}}`)},
	}
	if _, err := Door(r.db.Client, r.cfg, patience).Admit(t.Context(), g.Name, jobs, admission.Park); err != nil {
		t.Fatal(err)
	}
	r.serve()
	testkit.Eventually(t, 20*time.Second, "both to be at their ends", func() bool {
		s := r.standing(0)
		return s.Done+s.Parked[job.Refused] == 2
	})
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != 1 || calls[0] != `acct_7 { "pay" : 1.50}` {
		t.Errorf("calls: %q", calls)
	}
	books := Books(r.db.Client, *g)
	paid, _, err := books.Find(t.Context(), "with")
	refused, _, refusedErr := books.Find(t.Context(), "without")
	if err != nil || refusedErr != nil {
		t.Fatal(err, refusedErr)
	}
	if paid.State != job.Done || paid.Money != "4900 EUR" || refused.Reason != job.Refused || !strings.Contains(refused.Error, "header Stripe-Account needs {payload.account}") {
		t.Errorf("%+v\n%+v", paid, refused)
	}
}
