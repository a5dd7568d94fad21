// Package e2e runs the built programs against real servers: a redis-server, the strict provider, and as many
// dispatchers as a story needs.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/provider"
	"spillway/internal/testkit"
)

var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "spillway-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		bin = dir
		flag.Parse()
		if *soak == 0 { // the stories wait more than they work: more of them at once than there are processors
			_ = flag.Set("test.parallel", "8")
		}
		if err := testkit.Programs(dir, testkit.Race); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// world holds the servers and files of one story.
type world struct {
	t        *testing.T
	dir      string
	bin      string // directory of the programs
	redis    *testkit.RedisServer
	provider *provider.Provider
	url      string // of the provider
	config   string
	state    string // directory in which this machine remembers what it has seen of Redis
	runs     []*run
	more     []string // variables of a story's own, NAME=value
}

// newWorld starts a redis-server and a provider; settings are put into the gateway's part of the configuration.
func newWorld(t *testing.T, p provider.Config, settings string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), bin: bin, redis: testkit.Server(t, "--appendonly", "yes"), provider: provider.New(p)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.serve(ln)
	w.url, w.state = "http://"+ln.Addr().String(), filepath.Join(w.dir, "state")
	w.config = w.file("dispatcher.yaml", fmt.Sprintf(`redis: %s
gateways:
  stripe:
    request:
      url: %s/v1/payment_intents
      encoding: form
      headers: {Authorization: "Bearer ${STRIPE_KEY}"}
%s`, w.redis.URL(), w.url, settings))
	return w
}

// serve makes the provider answer on one more listener.
func (w *world) serve(ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.provider.Serve(ctx, ln) }()
	w.t.Cleanup(func() { cancel(); <-served })
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// jobs writes a billing file of n jobs and returns its path.
func (w *world) jobs(name string, n int) string {
	w.t.Helper()
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `{"id":"inv-%05d","payload":{"amount":%d,"currency":"EUR","metadata":{"line":%d}}}`+"\n", i, 100+i, i)
	}
	return w.file(name, b.String())
}

type result struct {
	code     int
	out, err string
}

// do runs a program to its end.
func (w *world) do(program string, args ...string) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, program), args...)
	cmd.Env, cmd.Dir = w.env(false), w.dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s %v: %v", program, args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// ok runs a program that must exit with 0 and returns its standard output.
func (w *world) ok(program string, args ...string) string {
	w.t.Helper()
	r := w.do(program, args...)
	if r.code != 0 {
		w.t.Fatalf("%s %s: exit code %d\n%s%s", program, strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

func (w *world) env(secrets bool) []string {
	env := append(os.Environ(), "GORACE=atexit_sleep_ms=0") // the race detector would wait a second at the end of each program
	env = append(append(env, "DISPATCHER_CONFIG="+w.config, "STATE_DIRECTORY="+w.state), w.more...)
	if secrets {
		env = append(env, "STRIPE_KEY="+canary)
	}
	return env
}

// canary is the secret of every story. No program may print it.
const canary = "sk_live_canary_4242"

// run is a dispatcher at work.
type run struct {
	t   *testing.T
	cmd *exec.Cmd
	log *os.File
}

// dispatcher starts "dispatcher run" that serves no HTTP unless args say where.
func (w *world) dispatcher(args ...string) *run {
	return w.dispatcherAsIs(append([]string{"--listen", ""}, args...)...)
}

// dispatcherAsIs starts "dispatcher run" with these flags alone.
func (w *world) dispatcherAsIs(args ...string) *run {
	w.t.Helper()
	return w.started(exec.Command(filepath.Join(w.bin, "dispatcher"), append([]string{"run"}, args...)...))
}

// started starts a command that becomes a "dispatcher run".
func (w *world) started(cmd *exec.Cmd) *run {
	w.t.Helper()
	log, err := os.Create(filepath.Join(w.dir, fmt.Sprintf("run-%d.log", len(w.runs)+1)))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.env(true), w.dir, log, log
	if err := testkit.Start(cmd); err != nil {
		w.t.Fatal(err)
	}
	r := &run{t: w.t, cmd: cmd, log: log}
	w.runs = append(w.runs, r)
	w.t.Cleanup(func() {
		r.stop()
		if w.t.Failed() {
			w.t.Logf("log of a dispatcher, its end:\n%s", tail(r.text()))
		}
	})
	return r
}

func (r *run) text() string {
	text, err := os.ReadFile(r.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// stop ends the dispatcher as an operator would and checks that it ends well.
func (r *run) stop() {
	r.t.Helper()
	if r.cmd.ProcessState != nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("dispatcher run ended with %v, want exit code 0", err)
	}
	if text := r.text(); strings.Contains(text, canary) || strings.Contains(text, "DATA RACE") || strings.Contains(text, "goroutine ") {
		r.t.Errorf("a secret, a data race or a stack trace is in the log:\n%s", tail(text))
	}
}

func (r *run) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// report is what enqueue prints.
type report struct {
	Read, Enqueued, Parked, Duplicate, Invalid, Failed int
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one document:\n%s", text)
	}
	return v
}

// standing is what status says about the one gateway.
type standing struct {
	Gateway                                     string
	Queued, InFlight, Scheduled, Retrying, Done int
	Pending                                     int
	Parked                                      map[string]int
	Limits                                      []string
	HeldUntil                                   *time.Time
	Paused                                      bool
}

func (w *world) status() standing {
	w.t.Helper()
	type row struct {
		standing
		InFlight  int        `json:"in_flight"`
		HeldUntil *time.Time `json:"held_until"`
	}
	all := decode[struct{ Gateways []row }](w.t, w.ok("dispatcher", "status", "-o", "json"))
	if len(all.Gateways) != 1 {
		w.t.Fatalf("%d gateways, want 1", len(all.Gateways))
	}
	s := all.Gateways[0].standing
	s.InFlight, s.HeldUntil = all.Gateways[0].InFlight, all.Gateways[0].HeldUntil
	return s
}

// shown waits until cond holds, where cond starts a program. The pause between two looks leaves the machine to the other stories.
func (w *world) shown(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	testkit.EventuallyEvery(t, 250*time.Millisecond, within, what, cond)
}

// observed waits until cond holds, where cond goes through all calls of the provider.
func (w *world) observed(t *testing.T, what string, cond func() bool) {
	t.Helper()
	testkit.EventuallyEvery(t, 50*time.Millisecond, time.Minute, what, cond)
}

// settled waits until no job waits, retries or is under way.
func (w *world) settled(within time.Duration) standing {
	w.t.Helper()
	var s standing
	w.shown(w.t, within, "everything to be done or parked", func() bool {
		s = w.status()
		return s.Queued+s.InFlight+s.Scheduled+s.Retrying+s.Pending+s.Parked["rejected"] == 0
	})
	return s
}

// emptied waits until all gateways together have done so many jobs.
func (w *world) emptied(t *testing.T, within time.Duration, done int) {
	t.Helper()
	w.shown(t, within, fmt.Sprintf("%d jobs to be done", done), func() bool {
		all := decode[struct {
			Gateways []struct{ Queued, Retrying, Done int }
		}](t, w.ok("dispatcher", "status", "-o", "json"))
		sum := 0
		for _, g := range all.Gateways {
			sum += g.Done
		}
		return sum == done
	})
}

// strict checks that the provider saw no call above its limit and charged nothing twice.
func (w *world) strict() provider.Stats {
	w.t.Helper()
	s := w.provider.Stats()
	if s.TooMany != 0 || s.Over != 0 {
		w.t.Errorf("%d answers 429, %d calls above the limit; fullest windows %v of %v", s.TooMany, s.Over, s.MaxInWindow, s.Limits)
		w.t.Log(around(w.provider.Calls()))
	}
	if s.ChargedTwice != 0 {
		w.t.Errorf("%d jobs were charged twice", s.ChargedTwice)
	}
	return s
}

// around shows the calls near the first one that was refused for the rate: µs from it, gap to the previous call, key.
func around(calls []provider.CallLine) string {
	var b strings.Builder
	at := slices.IndexFunc(calls, func(c provider.CallLine) bool { return c.Status == 429 })
	for i := max(at-110, 1); at >= 0 && i < min(at+10, len(calls)); i++ {
		fmt.Fprintf(&b, "\n%9d %6d %s %d", calls[i].At-calls[at].At, calls[i].At-calls[i-1].At, calls[i].Key, calls[i].Status)
	}
	return b.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
