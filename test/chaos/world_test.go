// Package chaos breaks what a running dispatcher depends on: the network to Redis and to the gateways, Redis, the
// gateways, and the dispatchers themselves. It runs the built programs, and judges them by what the providers saw.
package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/provider"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "spillway-chaos-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		bin = dir
		flag.Parse()
		_ = flag.Set("test.parallel", "6") // they wait more than they work
		if err := testkit.Programs(dir, true); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// world is a Redis and its gateways, each behind a line, and the dispatchers that serve them.
type world struct {
	t        *testing.T
	dir      string
	redis    *testkit.RedisServer
	line     *testkit.Line // to Redis
	db       *redis.Client // past the line
	gateways []*gateway
	config   string
	complain func(format string, args ...any) // of the program

	mu   sync.Mutex
	runs []*run
}

// gateway is a strict provider behind a line.
type gateway struct {
	name string
	*provider.Provider
	line *testkit.Line
}

// spec is a gateway as a story wants it: how the provider behaves, and two parts of its configuration.
type spec struct {
	name     string
	provider provider.Config
	request  string // lines of request, beside url and timeout
	rest     string // lines beside request
}

const callTimeout = 2 * time.Second

func newWorld(t *testing.T, dir string, specs ...spec) *world {
	t.Helper()
	w := &world{t: t, dir: dir, complain: t.Errorf, redis: testkit.Server(t, "--appendonly", "yes", "--appendfsync", "always")}
	w.line = testkit.LineTo(t, w.redis.Addr())
	w.db = redis.NewClient(&redis.Options{Addr: w.redis.Addr(), Protocol: 2})
	t.Cleanup(func() { _ = w.db.Close() })
	var conf strings.Builder
	fmt.Fprintf(&conf, "redis: redis://%s/0\ngateways:\n", w.line.Addr())
	for _, s := range specs {
		g := w.open(s)
		fmt.Fprintf(&conf, "  %s:\n    request:\n      url: http://%s/v1/charges/{id}\n      timeout: %v\n%s%s",
			s.name, g.line.Addr(), callTimeout, indent(6, s.request), indent(4, s.rest))
	}
	w.config = w.file("dispatcher.yaml", conf.String())
	return w
}

func indent(n int, lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString(strings.Repeat(" ", n) + strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// open starts a provider behind its line.
func (w *world) open(s spec) *gateway {
	w.t.Helper()
	line, ln := testkit.InnerLine(w.t, provider.Listen)
	g := &gateway{name: s.name, Provider: provider.New(s.provider), line: line}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, ln) }()
	w.t.Cleanup(func() { cancel(); <-served })
	w.gateways = append(w.gateways, g)
	return g
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func ids(name string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%05d", name, i+1)
	}
	return list
}

// merchants is how many have jobs in a file.
const merchants = 5

func merchant(i int) string { return fmt.Sprintf("m%d", i%merchants) }

func lines(ids []string) string {
	var b strings.Builder
	for i, id := range ids {
		fmt.Fprintf(&b, `{"id":%q,"payload":{"amount":%d,"currency":"EUR","merchant":%q}}`+"\n", id, 100+i, merchant(i))
	}
	return b.String()
}

// program returns one of ours, ready to start.
func (w *world) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	cmd.Env, cmd.Dir = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "DISPATCHER_CONFIG="+w.config, "STATE_DIRECTORY="+filepath.Join(w.dir, "state")), w.dir
	return cmd
}

type result struct {
	code     int
	out, err string
}

// do runs a program to its end.
func (w *world) do(name string, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := w.program(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := testkit.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, fmt.Errorf("%s %v: %w", name, args, err)
	}
	r := result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	if broken(r.err) != "" {
		return r, fmt.Errorf("%s %v: %s", name, args, r.err)
	}
	return r, nil
}

// broken returns a part of an output that no working program has, with what follows it, or "".
func broken(text string) string {
	for _, bad := range []string{"DATA RACE", "goroutine ", "panic: "} {
		if at := strings.Index(text, bad); at >= 0 {
			return text[max(0, at-200):min(len(text), at+4000)]
		}
	}
	return ""
}

// direct runs a program past the line to Redis; it must exit with 0.
func (w *world) direct(name string, args ...string) string {
	w.t.Helper()
	r, err := w.do(name, append(args, "--redis", w.redis.URL())...)
	if err != nil || r.code != 0 {
		w.t.Fatalf("%s %s: exit code %d, %v\n%s%s", name, strings.Join(args, " "), r.code, err, r.out, r.err)
	}
	return r.out
}

// enqueue puts n jobs of a gateway into the queue, past the line.
func (w *world) enqueue(g *gateway, name string, n int) []string {
	w.t.Helper()
	list := ids(name, n)
	w.direct("enqueue", "-q", "-g", g.name, "-f", w.file(name+".ndjson", lines(list)))
	return list
}

// run is a dispatcher at work.
type run struct {
	w     *world
	cmd   *exec.Cmd
	log   string
	begun time.Time
	over  chan struct{}
}

// dispatcher starts "dispatcher run".
func (w *world) dispatcher() *run {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &run{w: w, begun: time.Now(), over: make(chan struct{}), log: filepath.Join(w.dir, fmt.Sprintf("run-%02d.log", len(w.runs)+1))}
	log, err := os.Create(r.log)
	if err != nil {
		w.t.Fatal(err)
	}
	r.cmd = w.program(context.Background(), "dispatcher", "run", "--listen", "")
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := testkit.Start(r.cmd); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		_ = log.Close()
		close(r.over)
	}()
	w.runs = append(w.runs, r)
	w.t.Cleanup(r.check)
	return r
}

// signal sends a signal to a dispatcher that runs.
func (r *run) signal(sig syscall.Signal) {
	select {
	case <-r.over:
	default:
		_ = r.cmd.Process.Signal(sig)
	}
}

func (r *run) kill() {
	r.signal(syscall.SIGKILL)
	<-r.over
}

// check ends the dispatcher as an operator would, and looks through its log.
func (r *run) check() {
	select {
	case <-r.over: // killed by the story
	default:
		r.signal(syscall.SIGCONT)
		r.signal(syscall.SIGTERM)
		select {
		case <-r.over:
		case <-time.After(stopWithin):
			r.kill()
			r.w.t.Errorf("a dispatcher did not stop within %v; its log ends:\n%s", stopWithin, tail(r.text()))
		}
		if code := r.cmd.ProcessState.ExitCode(); code > 0 {
			r.w.t.Errorf("a dispatcher stopped with exit code %d; its log ends:\n%s", code, tail(r.text()))
		}
	}
	text := r.text()
	if bad := broken(text); bad != "" {
		r.w.t.Errorf("in a dispatcher's log:\n%s", bad)
		return
	}
	if r.w.t.Failed() && *length == 0 { // chaos keeps its files
		r.w.t.Logf("log of a dispatcher, its end:\n%s", tail(text))
	}
}

func (r *run) text() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// standing is what status says about a gateway.
type standing struct {
	Gateway                           string
	Queued, Scheduled, Retrying, Done int
	Pending                           int
	InFlight                          int `json:"in_flight"`
	Parked                            map[string]int
	Paused                            bool
}

// left counts the jobs that are not at an end.
func (s standing) left() int {
	return s.Queued + s.Scheduled + s.Retrying + s.InFlight + s.Pending + s.Parked["rejected"]
}

func (w *world) status() map[string]standing {
	w.t.Helper()
	var all struct{ Gateways []standing }
	if err := json.Unmarshal([]byte(w.direct("dispatcher", "status", "-o", "json")), &all); err != nil {
		w.t.Fatal(err)
	}
	by := map[string]standing{}
	for _, s := range all.Gateways {
		by[s.Gateway] = s
	}
	return by
}

// waiting counts the jobs of a gateway that are not at an end, as Redis has them.
func (w *world) waiting(g *gateway) int64 {
	k, ctx := redisdb.NewKeys(g.name), context.Background()
	var n int64
	for _, line := range k.Lines() {
		n += w.db.LLen(ctx, line).Val()
	}
	inLanes, _ := w.db.HGet(ctx, k.Lanes(), "tasks").Int64()
	n += inLanes
	for _, set := range []string{k.Scheduled(), k.Retrying(), k.Open(), k.Asking(), k.Parked("rejected")} {
		n += w.db.ZCard(ctx, set).Val()
	}
	return n
}

// settle waits until every job is at an end, and returns what status says then.
func (w *world) settle(within time.Duration) map[string]standing {
	w.t.Helper()
	over := time.Now().Add(within)
	for {
		quiet := testkit.Within(time.Until(over), 50*time.Millisecond, func() bool {
			return !slices.ContainsFunc(w.gateways, func(g *gateway) bool { return w.waiting(g) > 0 })
		})
		by := w.status()
		left := 0
		for _, s := range by {
			left += s.left()
		}
		if quiet && left == 0 {
			return by
		}
		if time.Now().After(over) {
			w.complain("after %v not every job is done or parked: %+v", within, by)
			return by
		}
	}
}
