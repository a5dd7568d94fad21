// Package sdk tells one story through every way in: the commands on Redis, the Go client, and clients in other languages that are generated from /openapi.json.
package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/client"
	"spillway/internal/testkit"
)

const token = "tok_sdk_canary_4711"

// world is a dispatcher with a gateway for each way in.
type world struct {
	t      *testing.T
	dir    string // with both programs and the configuration
	server string
	client *client.Client
}

func newWorld(t *testing.T, gateways ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), server: fmt.Sprintf("http://127.0.0.1:%d", testkit.FreePort(t))}
	if err := testkit.Programs(w.dir, false); err != nil {
		t.Fatal(err)
	}
	provider := httptest.NewServer(http.HandlerFunc(charge))
	t.Cleanup(provider.Close)
	var text strings.Builder
	fmt.Fprintf(&text, "redis: %s\ntoken: %s\ngateways:\n", testkit.Server(t).URL(), token)
	for _, name := range gateways {
		fmt.Fprintf(&text, "  %s:\n    request: {url: %q, idempotency_prefix: %q}\n    amount: {field: amount, currency: currency}\n    outcomes: {readers: [ledger]}\n"+
			"    leak: {limits: [100/s]}\n    admission: {limits: [10000/s], burst: 10000}\n", name, provider.URL, name+"-")
	}
	w.write("dispatcher.yaml", text.String())
	run := w.command("dispatcher", "run", "--listen", strings.TrimPrefix(w.server, "http://"))
	log := &testkit.Log{}
	run.Stderr = log
	if err := testkit.Start(run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(os.Interrupt)
		if err := run.Wait(); err != nil {
			t.Errorf("the dispatcher: %v\n%s", err, log)
		}
	})
	var err error
	if w.client, err = client.New(w.server, client.Token(token)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the dispatcher to serve", func() bool {
		_, err := w.client.Status(context.Background())
		return err == nil
	})
	return w
}

// charge declines payments with "decline".
func charge(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	if strings.Contains(string(text), `"decline":true`) {
		w.WriteHeader(http.StatusPaymentRequired)
	}
	_, _ = io.WriteString(w, `{"error":"the card was declined"}`)
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.dir, program), args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "DISPATCHER_CONFIG="+filepath.Join(w.dir, "dispatcher.yaml"), "STATE_DIRECTORY="+w.dir, "DISPATCHER_SERVER=", "DISPATCHER_TOKEN="+token)
	return cmd
}

// print runs a command and returns its standard output. Its exit code may be 3: some lines were invalid.
func (w *world) print(program string, args ...string) string {
	w.t.Helper()
	cmd := w.command(program, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if e, is := errors.AsType[*exec.ExitError](err); err != nil && (!is || e.ExitCode() != 3) {
		w.t.Fatalf("%s %v: %v\n%s%s", program, args, err, out, said.String())
	}
	return string(out)
}

// told is a program that does the steps that it reads, one line of JSON each.
type told struct {
	t   *testing.T
	in  io.Writer
	out *json.Decoder
}

// tell starts such a program.
func (w *world) tell(cmd *exec.Cmd) *told {
	w.t.Helper()
	cmd.Env = append(os.Environ(), "DISPATCHER_SERVER="+w.server, "DISPATCHER_TOKEN="+token, "PYTHONDONTWRITEBYTECODE=1")
	log := &testkit.Log{}
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = testkit.Start(cmd)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("%v: %v\n%s", cmd.Args, err, log)
		}
	})
	return &told{w.t, in, json.NewDecoder(out)}
}

// do implements way.
func (p *told) do(s step) any {
	p.t.Helper()
	var answer any
	err := json.NewEncoder(p.in).Encode(s)
	if err == nil {
		err = p.out.Decode(&answer)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", s.Do, err)
	}
	return answer
}

// document is /openapi.json in a file.
func (w *world) document() string {
	w.t.Helper()
	back, err := http.Get(w.server + "/openapi.json")
	if err != nil {
		w.t.Fatal(err)
	}
	defer back.Body.Close()
	text, err := io.ReadAll(back.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("openapi.json", string(text))
	return filepath.Join(w.dir, "openapi.json")
}
