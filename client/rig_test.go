package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/testkit"
)

const token = "tok_client_canary_4711"

// server is the address of a real dispatcher over a real Redis, and redisURL that of the Redis.
var server, redisURL string

// The examples have no testing.T, so there is one dispatcher for the whole package.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "spillway-client-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		gateway := httptest.NewServer(http.HandlerFunc(charge))
		defer gateway.Close()
		stop, err := begin(dir, gateway.URL)
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// charge is a gateway that declines payments with "decline".
func charge(w http.ResponseWriter, r *http.Request) {
	var payload struct {
		Amount  int64 `json:"amount"`
		Decline bool  `json:"decline"`
	}
	if err := json.NewDecoder(r.Body).Decode(&payload); err != nil || payload.Decline {
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"error":"the card was declined"}`)
		return
	}
	fmt.Fprintf(w, `{"id":"ch_%d"}`, payload.Amount)
}

const fast = "leak: {limits: [10000/s], burst: 100, max_in_flight: 64}"

// gateways are those of the tests, each with settings of its own.
var gateways = map[string]string{
	"stripe":  "outcomes: {readers: [ledger]}\n    admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"adyen":   "admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"tight":   "admission: {limits: [1/h], burst: 2}\n    replay: manual\n    " + fast,
	"lost":    "admission: {limits: [1/h], burst: 2}\n    replay: manual\n    " + fast,
	"second":  "admission: {limits: [2/s], burst: 2}\n    replay: manual\n    " + fast,
	"letters": "admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"steered": "admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"braked":  "brakes: [{limit: EUR 10/1h}]\n    admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"acts":    "admission: {limits: [10000/s], burst: 100000}\n    " + fast,
	"fed":     "outcomes: {}\n    admission: {limits: [1/h], burst: 1}\n    replay: manual\n    " + fast,
}

// begin starts a Redis and a dispatcher.
func begin(dir, gateway string) (stop func(), err error) {
	var started []*exec.Cmd
	stop = func() {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	bin := filepath.Join(dir, "dispatcher")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "spillway/cmd/dispatcher").CombinedOutput(); err != nil {
		return stop, fmt.Errorf("build the dispatcher: %w\n%s", err, out)
	}
	port := freePort()
	redisURL, server = "redis://127.0.0.1:"+port+"/0", "http://127.0.0.1:"+freePort()
	var text strings.Builder
	fmt.Fprintf(&text, "redis: %s\ntoken: %s\ngateways:\n", redisURL, token)
	for name, settings := range gateways {
		fmt.Fprintf(&text, "  %s:\n    request: {url: %q, idempotency_prefix: %q}\n    amount: {field: amount, currency: currency}\n    %s\n", name, gateway, name+"-", settings)
	}
	config := filepath.Join(dir, "dispatcher.yaml")
	if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
		return stop, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return stop, err
	}
	for _, cmd := range []*exec.Cmd{
		exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir),
		exec.Command(bin, "run", "--listen", strings.TrimPrefix(server, "http://")),
	} {
		cmd.Env = append(os.Environ(), "DISPATCHER_CONFIG="+config, "STATE_DIRECTORY="+dir)
		cmd.Stderr = log
		if err := testkit.Start(cmd); err != nil {
			return stop, err
		}
		started = append(started, cmd)
	}
	_ = os.Setenv("DISPATCHER_SERVER", server) // for the examples
	_ = os.Setenv("DISPATCHER_TOKEN", token)
	if !testkit.Within(2*time.Minute, 50*time.Millisecond, ready) {
		said, _ := os.ReadFile(log.Name())
		return stop, fmt.Errorf("the dispatcher is not ready:\n%s", said)
	}
	return stop, nil
}

func ready() bool {
	back, err := http.Get(server + "/readyz")
	if err != nil {
		return false
	}
	defer back.Body.Close()
	return back.StatusCode == http.StatusOK
}

// freePort returns a port that no other test process gets.
func freePort() string {
	port, err := testkit.Port()
	if err != nil {
		panic(err)
	}
	return strconv.Itoa(port)
}

// at returns a client of this address.
func at(t testing.TB, address string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(address, append([]client.Option{client.Token(token)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// jobs makes jobs of one gateway.
func jobs(gateway, prefix string, n int) []client.Job {
	all := make([]client.Job, n)
	for i := range all {
		all[i] = client.Job{Gateway: gateway, ID: fmt.Sprintf("%s-%05d", prefix, i), Payload: map[string]any{"amount": 100 + i, "currency": "EUR"}}
	}
	return all
}

// settled waits until a job is in this state.
func settled(t testing.TB, c *client.Client, gateway, id string, state client.State) client.JobView {
	t.Helper()
	var v client.JobView
	testkit.Eventually(t, time.Minute, id+" to be "+string(state), func() bool {
		var err error
		v, err = c.Job(context.Background(), gateway, id)
		return err == nil && v.State == state
	})
	return v
}
