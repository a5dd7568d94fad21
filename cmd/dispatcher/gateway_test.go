package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"spillway/internal/admission"
	"spillway/internal/cli"
	"spillway/internal/config"
	"spillway/internal/console"
	"spillway/internal/dispatch"
	"spillway/internal/httpapi"
	"spillway/internal/job"
	"spillway/internal/redisdb"
	"spillway/internal/testkit"
)

// renamed is a configuration file with one gateway, whose name changes, and a Redis of its own.
type renamed struct {
	t     *testing.T
	redis string
	url   string
	file  string
	mu    sync.Mutex
	calls map[string]int
}

func newRenamed(t *testing.T) *renamed {
	t.Helper()
	r := &renamed{t: t, redis: testkit.Server(t).URL(), file: filepath.Join(t.TempDir(), "dispatcher.yaml"), calls: map[string]int{}}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls[q.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// name writes the file with a gateway of this name.
func (r *renamed) name(gateway string) *config.Config {
	r.t.Helper()
	text := fmt.Sprintf("redis: %s\nlisten: 127.0.0.1:%d\ngateways:\n  %s:\n    request: {url: %q, key_lifetime: 24h}\n    amount: {field: amount, currency: currency}\n    leak: {limits: [2000/s]}\n",
		r.redis, testkit.FreePort(r.t), gateway, r.url)
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cfg, err := config.Load(r.file, config.Options{Secrets: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

// put enqueues 500 payments, and counts the results.
func (r *renamed) put(cfg *config.Config) map[job.Admittance]int {
	r.t.Helper()
	db, err := dispatch.Open(r.t.Context(), cfg, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	jobs := make([]job.Job, 500)
	for i := range jobs {
		jobs[i] = job.Job{ID: fmt.Sprintf("C-%06d", i+1), Payload: []byte(`{"amount":2469,"currency":"EUR"}`), Batch: "ren"}
	}
	answers, err := dispatch.Door(db.Client, cfg, time.Minute).Admit(r.t.Context(), cfg.Gateways[0].Name, jobs, admission.Park)
	if err != nil {
		r.t.Fatal(err)
	}
	came := map[job.Admittance]int{}
	for _, a := range answers {
		came[a.Outcome]++
	}
	return came
}

// run runs the dispatcher without a terminal.
func (r *renamed) run(args ...string) ran {
	r.t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(name, newCommand, append(args, "-c", r.file), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return ran{out.String(), errs.String(), code}
}

// serve runs the dispatcher until cond holds, stops it, and returns its log.
func (r *renamed) serve(cond func(log string) bool) string {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	log, over := &testkit.Log{}, make(chan int, 1)
	root := newCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log})
	root.SetArgs([]string{"run", "-c", r.file, "--log-format", "json"})
	go func() {
		code := 0
		if err := root.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(log, err)
			code = 1
		}
		over <- code
	}()
	testkit.Eventually(r.t, time.Minute, "the dispatcher's log and calls", func() bool { return cond(log.String()) })
	stop()
	if code := <-over; code != 0 {
		r.t.Fatalf("run ended with %d:\n%s", code, log.String())
	}
	return log.String()
}

const outOfSight = "500 jobs (EUR 12,345.00) of up, which the file does not have"

// 500 payments wait at gateway up, and the file has another gateway. Each command, the console and the log say so.
func TestEveryCommandNamesTheJobsOfAGatewayThatTheFileDoesNotHave(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	if came := r.put(r.name("up")); came[job.Enqueued] != 500 {
		t.Fatal(came)
	}
	for _, args := range []string{"status", "doctor", "audit", "gateway list", "batch ren", "job C-000001"} {
		if got := r.run(strings.Fields(args)...); strings.Contains(got.out+got.err, "which the file does not have") {
			t.Errorf("%s before the file was changed: %s%s", args, got.out, got.err)
		}
	}
	cfg := r.name("stripe-eu")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"status", 0, outOfSight},
		{"status -o json", 0, `"unlisted":[{"gateway":"up","jobs":500,"amount":{"EUR":1234500},"without_amount":0,"without_sum":0,"waiting":500,"parked":{},"done":0,"last_served":null,"served":false}]`},
		{"status -g up", 4, outOfSight},
		{"doctor", 1, "warn\tunlisted\tup\t" + outOfSight},
		{"audit", 0, "not checked: " + outOfSight},
		{"audit -o json", 0, `"unlisted":[{"gateway":"up","jobs":500,`},
		{"batch ren", 4, `no gateway of the file knows batch "ren", but up does`},
		{"batch ren --export", 4, `no gateway of the file knows batch "ren", but up does`},
		{"batch pause ren --why x --yes", 4, `no gateway of the file knows batch "ren", but up does`},
		{"job C-000001", 4, `no gateway of the file knows job "C-000001", but up does`},
		{"job C-900001", 4, "it was never enqueued here"},
		{"batch list", 0, "left out: " + outOfSight},
		{"dlq list", 0, "left out: " + outOfSight},
		{"dlq replay --reason refused", 0, "left out: " + outOfSight},
		{"export --format csv", 0, "left out: " + outOfSight},
		{"find C-00000", 0, "left out: " + outOfSight},
		{"gateway list", 0, "up\tno\t500\t\t0\tEUR 1234500"},
		{"gateway list -o json", 0, `"waiting":500,"parked":{},"done":0,"last_served":null,"served":false,"in_file":false}`},
	} {
		got := r.run(strings.Fields(c.args)...)
		if got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", c.args, got.code, c.code, c.want, got.out, got.err)
		}
	}
	if got := overviewOf(t, cfg); !strings.Contains(got, outOfSight) {
		t.Errorf("the console's overview: %s", got)
	}
	log := r.serve(func(log string) bool { return strings.Contains(log, outOfSight) })
	if !strings.Contains(log, `"level":"WARN"`) || !strings.Contains(log, "dispatcher gateway rename up NEW") {
		t.Errorf("the log does not say what to do: %s", log)
	}
}

// overviewOf returns the first page of the console.
func overviewOf(t *testing.T, cfg *config.Config) string {
	t.Helper()
	db, err := dispatch.Open(t.Context(), cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	page := console.New(console.Config{Redis: db.Client, Gateways: cfg.Gateways, Listed: cfg.Names, Guard: httpapi.NewGuard(""), Log: slog.New(slog.DiscardHandler)})
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
	q.RemoteAddr = "127.0.0.1:1234"
	w := httptest.NewRecorder()
	page.ServeHTTP(w, q)
	return w.Body.String()
}

// After "gateway rename", each job is called once, and its id is still known.
// A gateway whose jobs are all done is not empty: their ids go with it, so that a file that is sent again is known.
func TestARenameSaysWhatIsDone(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	db, err := dispatch.Open(t.Context(), r.name("up"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := dispatch.Door(db.Client, r.name("up"), time.Minute).Admit(t.Context(), "up", []job.Job{{ID: "a", Payload: []byte("{}")}}, admission.Park); err != nil {
		t.Fatal(err)
	}
	k := redisdb.NewKeys("up")
	id, generation, _ := job.ParseTaskID(testkit.Pop(t, db.Client, k.Lines()))
	books := dispatch.Books(db.Client, r.name("up").Gateways[0])
	a, _, err := books.Open(t.Context(), id, generation, "w1", time.Minute)
	if err == nil {
		err = books.Done(t.Context(), a, job.Ending{Called: true, Status: 200, Verdict: job.VerdictDone, At: time.UnixMicro(1)})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.name("stripe-eu")
	for _, act := range [][]string{{"rename", "up", "stripe-eu"}, {"forget", "up"}} {
		args := append(append([]string{"gateway"}, act...), "--why", "one name")
		if got := r.run(args...); got.code != 0 || !strings.Contains(got.out+got.err, ": 0 jobs, and what is known of 1 done ones") {
			t.Errorf("%v: %+v", act, got)
		}
		if got := r.run(append(args, "-o", "json")...); !strings.Contains(got.out, `"jobs_done":1,`) {
			t.Errorf("%v: %+v", act, got)
		}
	}
}

func TestAGatewayIsRenamedWithItsJobs(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	r.put(r.name("up"))
	if got := r.run("gateway", "rename", "up", "stripe-eu", "--why", "one name"); got.code != 4 || !strings.Contains(got.err, `no gateway "stripe-eu"`) {
		t.Errorf("%+v", got)
	}
	cfg := r.name("stripe-eu")
	if got := r.run("gateway", "rename", "up"); got.code != 2 || !strings.HasPrefix(got.err, "dispatcher: an argument is missing\nhint: write it like: dispatcher gateway rename OLD NEW") {
		t.Errorf("one name: %+v", got)
	}
	if got := r.run("gateway", "rename", "up", "stripe-eu"); got.code != 2 || !strings.Contains(got.err, "needs a reason") {
		t.Errorf("without a reason: %+v", got)
	}
	if got := r.run("gateway", "rename", "up", "stripe-eu", "--why", "one name"); got.code != 0 || !strings.Contains(got.out+got.err, "would rename up to stripe-eu: 500 jobs (EUR 12,345.00)") {
		t.Errorf("a dry run: %+v", got)
	}
	if got := r.run("gateway", "rename", "nobody", "stripe-eu", "--why", "one name", "--yes"); got.code != 4 {
		t.Errorf("%+v", got)
	}
	got := r.run("gateway", "rename", "up", "stripe-eu", "--why", "one name", "--yes", "-o", "json")
	var d struct {
		Gateway, To string
		Jobs        int64
		Done        bool
	}
	if err := json.Unmarshal([]byte(got.out), &d); err != nil || got.code != 0 || d.Gateway != "up" || d.To != "stripe-eu" || d.Jobs != 500 || !d.Done {
		t.Fatalf("%v: %+v", err, got)
	}
	if got := r.run("status"); strings.Contains(got.out+got.err, "which the file does not have") || !strings.Contains(got.out, "stripe-eu\t500\t") {
		t.Errorf("afterwards: %+v", got)
	}
	r.calledOnce(cfg)
	if got := r.run("dlq", "history", "-o", "json"); !strings.Contains(got.out, `"what":"gateway rename up to stripe-eu","why":"one name"`) || strings.Contains(got.out, `"ended":null`) {
		t.Errorf("the trail: %+v", got)
	}
}

func (r *renamed) calledOnce(cfg *config.Config) {
	r.t.Helper()
	r.serve(func(string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.calls) == 500
	})
	for key, n := range r.calls {
		if n != 1 || !strings.HasPrefix(key, "C-000") {
			r.t.Errorf("%d calls with the key %s", n, key)
		}
	}
	if got := r.run("audit"); got.code != 0 || !strings.Contains(got.out, "\tin order") {
		r.t.Errorf("audit: %+v", got)
	}
	if came := r.put(cfg); came[job.Duplicate] != 500 {
		r.t.Errorf("the same file again: %v", came)
	}
}

// A rename that was broken off and is run again does not say that it moved no jobs, because the first run had moved them.
func TestARenameThatGoesOnDoesNotSayHowManyJobs(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	r.put(r.name("up"))
	cfg := r.name("stripe-eu")
	db, err := dispatch.Open(t.Context(), cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, end := context.WithCancel(t.Context())
	m := dispatch.Moving{Redis: db.Client, Old: "up", New: cfg.Gateways[0], Did: func(int64) { end() }}
	if err := m.Rename(ctx); err == nil {
		t.Fatal("it was not broken off")
	}
	const want = "rename up to stripe-eu: the rest of what was begun before"
	if got := r.run("gateway", "rename", "up", "stripe-eu", "--why", "one name"); !strings.Contains(got.out+got.err, "would "+want) {
		t.Errorf("a dry run: %+v", got)
	}
	if got := r.run("gateway", "rename", "up", "stripe-eu", "--why", "one name", "--yes"); got.code != 0 || !strings.Contains(got.out+got.err, "done: "+want) {
		t.Errorf("%+v", got)
	}
	r.calledOnce(cfg)
}

func TestAGatewayIsCalledWhenTheFileHasItAgain(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	r.put(r.name("up"))
	r.name("stripe-eu")
	r.serve(func(log string) bool { return strings.Contains(log, outOfSight) })
	r.calledOnce(r.name("up"))
}

// All jobs of a gateway are done, and the file has it under another name: there, the same file would be paid again. Doctor says so before.
func TestDoctorNamesARenamedGatewayWhoseJobsAreOver(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	up := r.name("up")
	r.put(up)
	r.calledOnce(up)
	const want = "warn\trenamed\tup\t500 jobs of up, which the file does not have, were done; at stripe-eu, which has had no job, their ids are unknown"
	cfg := r.name("stripe-eu")
	db, err := dispatch.Open(t.Context(), cfg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.Client.Del(t.Context(), redisdb.NewKeys("up").Alive()) // its last dispatcher has long stopped
	if got := r.run("doctor"); !strings.Contains(got.out, want) || !strings.Contains(got.out, "dispatcher gateway rename up stripe-eu") {
		t.Errorf("before a file is enqueued there: %+v", got)
	}
	if came := r.put(cfg); came[job.Enqueued] != 500 {
		t.Fatal(came)
	}
	if got := r.run("doctor"); strings.Contains(got.out, "renamed") {
		t.Errorf("a gateway with jobs is no new name: %+v", got)
	}
}

func TestAGatewayIsForgotten(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	r := newRenamed(t)
	up := r.name("up")
	r.put(up)
	if got := r.run("gateway", "forget", "up", "--why", "trial is over", "--yes"); got.code != 2 || !strings.Contains(got.err, `the file has gateway "up"`) {
		t.Errorf("%+v", got)
	}
	r.name("stripe-eu")
	db, err := dispatch.Open(t.Context(), up, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	k := redisdb.NewKeys("up")
	db.Client.ZAdd(t.Context(), k.Retrying(), redis.Z{Score: 1, Member: "C-000001"})
	db.Client.HSet(t.Context(), k.Job("C-000001"), "am", "1")
	if got := r.run("gateway", "forget", "up", "--why", "trial is over", "--yes"); got.code != 1 || !strings.Contains(got.err, "1 job of up may have been charged") {
		t.Errorf("held back: %+v", got)
	}
	db.Client.HDel(t.Context(), k.Job("C-000001"), "am")
	db.Client.ZRem(t.Context(), k.Retrying(), "C-000001")
	if got := r.run("gateway", "forget", "up", "--why", "trial is over"); got.code != 0 || !strings.Contains(got.out+got.err, "would forget up: 500 jobs (EUR 12,345.00)") {
		t.Errorf("a dry run: %+v", got)
	}
	if got := r.run("gateway", "forget", "up", "--why", "trial is over", "--yes"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if keys := db.Client.Keys(t.Context(), "*{up}*").Val(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
	if got := r.run("gateway", "list"); strings.Contains(got.out, "up\t") {
		t.Errorf("%+v", got)
	}
	if got := r.run("dlq", "history", "-o", "json"); !strings.Contains(got.out, `"gateway":"up"`) || !strings.Contains(got.out, `"what":"gateway forget up","why":"trial is over"`) || !strings.Contains(got.out, `"jobs":500`) {
		t.Errorf("the trail: %+v", got)
	}
}
