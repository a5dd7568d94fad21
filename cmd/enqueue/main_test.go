package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"spillway/internal/cli"
	"spillway/internal/job"
	"spillway/internal/record"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// TestMain makes the test binary run enqueue, with another patience, if the variable is set.
func TestMain(m *testing.M) {
	if text := os.Getenv("ENQUEUE_TEST_PATIENCE"); text != "" {
		patience, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		os.Exit(cli.Main(name, func(s cli.Streams) *cobra.Command { return command(s, patience) }, os.Args[1:], cli.Standard()))
	}
	os.Exit(m.Run())
}

// bench is a directory to run enqueue in, with a configuration and two gateways of its own.
type bench struct {
	t        *testing.T
	dir      string
	g, g2    string
	patience string // with a Redis that is away; empty means 300ms, or with the shared Redis, which is never away, 5m
	stdin    io.Reader
	during   func(*os.Process)    // called once the program runs
	server   *testkit.RedisServer // of its own; nil means the shared one
	warned   string               // what the last run said of Redis
}

const configText = `redis: %[1]s
gateways:
  %[2]s:
    request: {url: "https://pay.example/{id}", headers: {Authorization: "Bearer ${NOT_SET_ANYWHERE}"}}
    amount: {field: money.amount, currency: money.currency}
    leak: {limits: [100/s]}
    admission: {limits: [%[4]s], burst: %[5]d}
    %[6]s
  %[3]s:
    request: {url: "https://pay.example", idempotency_prefix: b-}
    leak: {limits: [50/s]}
`

type place struct {
	redis string // empty means the shared one
	limit string // of admission; empty means 100/s
	burst int    // 0 means 5000
	more  string // of the first gateway
}

func setup(t *testing.T, p place) *bench {
	t.Helper()
	t.Parallel()
	patience := ""
	if p.redis == "" {
		p.redis, patience = testkit.Redis(t), "5m"
	}
	if p.limit == "" {
		p.limit = "100/s"
	}
	if p.burst == 0 {
		p.burst = 5000
	}
	b := &bench{t: t, dir: t.TempDir(), g: testkit.Gateway(t), g2: testkit.Gateway(t), patience: patience}
	b.write("dispatcher.yaml", fmt.Sprintf(configText, p.redis, b.g, b.g2, p.limit, p.burst, p.more))
	return b
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

var (
	jsonTimes = regexp.MustCompile(`"seconds":[0-9.e-]+,"jobs_per_second":[0-9]+`)
	textTimes = regexp.MustCompile(`(?m)^(seconds|jobs per second)\t[0-9.e-]+$`)
)

type result struct {
	code     int
	out, err string // with the times taken out, and the warnings of Redis
}

// warnings matches what enqueue says about Redis: that of most tests keeps nothing on disk.
var warnings = regexp.MustCompile(`(?m)^warning: .*\n`)

// run runs enqueue in the bench's directory.
func (b *bench) run(args ...string) result {
	b.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.CommandContext(b.t.Context(), exe, args...)
	cmd.Dir, cmd.Stdin = b.dir, b.stdin
	cmd.Env = append(os.Environ(), "ENQUEUE_TEST_PATIENCE="+cmp.Or(b.patience, "300ms"), "DISPATCHER_CONFIG=",
		"GORACE=atexit_sleep_ms=0") // the race detector would keep each for a second at its end
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if b.during != nil {
		b.during(cmd.Process)
	}
	err = cmd.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || failed.ExitCode() < 0) {
		b.t.Fatalf("enqueue: %v\n%s", err, errs.String())
	}
	text := jsonTimes.ReplaceAllString(out.String(), `"seconds":S,"jobs_per_second":J`)
	text = textTimes.ReplaceAllString(text, "$1\tN")
	b.warned = strings.Join(warnings.FindAllString(errs.String(), -1), "")
	return result{cmd.ProcessState.ExitCode(), text, warnings.ReplaceAllString(strings.ReplaceAll(errs.String(), b.g, "G"), "")}
}

func (b *bench) want(got, want result) {
	b.t.Helper()
	if got.code != want.code {
		b.t.Errorf("exit code %d, want %d", got.code, want.code)
	}
	if got.out != want.out {
		b.t.Errorf("standard output\n%s\nwant\n%s", got.out, want.out)
	}
	if got.err != want.err {
		b.t.Errorf("standard error\n%s\nwant\n%s", got.err, want.err)
	}
}

// counts returns the report in JSON, in its documented order.
func counts(read, enqueued, parked, duplicate, invalid, failed int) string {
	return fmt.Sprintf(`{"read":%d,"enqueued":%d,"parked":%d,"duplicate":%d,"invalid":%d,"failed":%d,"seconds":S,"jobs_per_second":J}`+"\n",
		read, enqueued, parked, duplicate, invalid, failed)
}

func (b *bench) record(gateway, id string) job.Record {
	b.t.Helper()
	h, err := testkit.Client(b.t).HGetAll(b.t.Context(), redisdb.NewKeys(gateway).Job(id)).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return record.Parse(gateway, id, record.Named(h))
}

// queued returns the task ids in the order in which they will be called.
func (b *bench) queued(gateway string) []string {
	b.t.Helper()
	ids, err := testkit.Client(b.t).LRange(b.t.Context(), redisdb.NewKeys(gateway).Pending(), 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids
}

// pipe makes standard input a pipe, and returns its other end. It stays open until the test ends.
func (b *bench) pipe() *os.File {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	b.stdin = r
	return w
}

// lines returns n lines in JSON, with ids that begin with a prefix.
func lines(prefix string, n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "{\"id\":\"%s-%d\",\"payload\":{\"money\":{\"amount\":%d,\"currency\":\"eur\"}}}\n", prefix, i, i+1)
	}
	return s.String()
}
